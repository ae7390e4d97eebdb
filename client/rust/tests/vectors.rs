//! Runs the files of $EMBD_VECTORS (../../proto/vectors) against the server at $EMBD_SERVER, which must be fresh. See
//! proto/vectors/README.md.

use embd::{fields, Batch, Client, Options, Placement, Result, Stream, Table, Value, Wire};
use serde_json::{json, Value as Json};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, path::Path, thread};

fn connect() -> Option<Client> {
    match env::var("EMBD_SERVER") {
        Ok(address) => Some(Client::connect(&address, &Options::default()).unwrap()),
        Err(_) => {
            println!("skipped: EMBD_SERVER is not set");
            None
        }
    }
}

#[test]
fn the_client_agrees_with_all_vectors() {
    let client = match connect() {
        Some(client) => client,
        None => return,
    };
    let folder = env::var("EMBD_VECTORS").unwrap_or_else(|_| "../../proto/vectors".into());
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().map_or(false, |ending| ending == "json"));
    paths.sort();
    let n: usize = paths.iter().map(|path| run_file(&client, path)).sum();
    assert!(n >= 40, "only {} vectors in {} hold for {} shards", n, folder, client.n_shards());
    println!("{} vectors agree, {} shards", n, client.n_shards());
}

fn run_file(client: &Client, path: &Path) -> usize {
    let file: Json = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let is_foreign = |step: &Json| ["columns", "round", "put", "get"].iter().any(|kind| step.get(kind).is_some());
    let holds = |vector: &&Json| {
        list(&vector["shards"]).contains(&json!(client.n_shards())) && !list(&vector["steps"]).iter().any(is_foreign)
    };
    let vectors: Vec<_> = list(&file["vectors"]).iter().filter(holds).collect();
    for vector in &vectors {
        for (i, step) in list(&vector["steps"]).iter().enumerate() {
            if let Some(difference) = run_step(client, step) {
                panic!("{}, {}, step {}: {}", path.display(), vector["name"], i, difference);
            }
        }
    }
    vectors.len()
}

/// How the answer differs from the one in the file.
fn run_step(client: &Client, step: &Json) -> Option<String> {
    let (got, wanted) = match ask(client, step) {
        Ok(None) => return None,
        Ok(Some(answer)) => (answer, &step["answer"]),
        Err(e) => (json!(e.code), &step["error"]),
    };
    (&got != wanted).then(|| format!("got {}, expected {}", got, wanted))
}

// ---- JSON ----

fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], |list| list)
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or("")
}

fn is(value: &Json) -> bool {
    value.as_bool().unwrap_or(false)
}

fn uints(value: &Json) -> Vec<u64> {
    list(value).iter().map(|n| n.as_u64().unwrap()).collect()
}

fn wire(value: &Json) -> Wire {
    match text(value) {
        "f16" => Wire::F16,
        "bf16" => Wire::BF16,
        _ => Wire::F32,
    }
}

/// The numbers of hex digits.
fn floats(digits: &str, wire: Wire) -> Vec<f32> {
    let bytes = |word| u32::from_str_radix(word, 16).unwrap().to_le_bytes()[..wire.bytes()].to_vec();
    wire.read(&digits.split_whitespace().flat_map(bytes).collect::<Vec<u8>>())
}

fn digits(values: &[f32], wire: Wire) -> String {
    let mut bytes = Vec::new();
    wire.write(values, &mut bytes);
    let word = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{:02x}", byte)).collect::<String>();
    bytes.chunks(wire.bytes()).map(word).collect::<Vec<_>>().join(" ")
}

fn value_of(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(is) => Value::Bool(*is),
        Json::Number(n) if n.is_u64() => Value::Uint(n.as_u64().unwrap()),
        Json::Number(n) if n.is_i64() => Value::Int(n.as_i64().unwrap()),
        Json::Number(n) => Value::Float(n.as_f64().unwrap()),
        Json::String(text) => Value::Str(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(value_of).collect()),
        Json::Object(map) => Value::Map(map.iter().map(|(name, item)| (name.clone(), value_of(item))).collect()),
    }
}

/// An answer in the file's form: statuses stand there where they were asked for.
fn with(mut answer: Json, what: &Json, statuses: &[u8]) -> Option<Json> {
    if is(&what["status"]) {
        answer["status"] = json!(statuses);
    }
    Some(answer)
}

// ---- steps ----

/// The arrays of a batch.
struct Arrays {
    keys: Vec<u64>,
    offsets: Vec<u32>,
    slots: Vec<u16>,
    weights: Vec<f32>,
    scores: Vec<f32>,
}

impl Arrays {
    fn of(what: &Json) -> Arrays {
        Arrays {
            keys: uints(&what["keys"]),
            offsets: uints(&what["offsets"]).iter().map(|&n| n as u32).collect(),
            slots: uints(&what["slots"]).iter().map(|&n| n as u16).collect(),
            weights: floats(text(&what["weights"]), Wire::F32),
            scores: floats(text(&what["scores"]), Wire::F32),
        }
    }

    fn batch(&self, what: &Json) -> Batch<'_> {
        Batch {
            offsets: what["offsets"].is_array().then(|| &self.offsets[..]),
            slots: what["slots"].is_array().then(|| &self.slots[..]),
            weights: what["weights"].is_string().then(|| &self.weights[..]),
            scores: what["scores"].is_string().then(|| &self.scores[..]),
            wire: wire(&what["dtype"]),
            status: is(&what["status"]),
            zero: is(&what["zero"]),
            lr: what["lr"].as_f64().map(|lr| lr as f32),
            sums: !is(&what["scale"]),
            ..Batch::of(&self.keys)
        }
    }
}

/// None: this client does not speak to admin listeners.
fn ask(client: &Client, step: &Json) -> Result<Option<Json>> {
    let (kind, what) =
        step.as_object().unwrap().iter().find(|(name, _)| !["answer", "error"].contains(&name.as_str())).unwrap();
    let arrays = Arrays::of(what);
    let batch = arrays.batch(what);
    match kind.as_str() {
        "create" => create(client, what),
        "push" => push(client, what, &batch),
        "pull" => {
            let table = client.open_table(text(&what["table"]))?;
            let rows = table.pull(&batch)?;
            let values: Vec<_> = rows.values.chunks(table.dim).map(|row| digits(row, batch.wire)).collect();
            Ok(with(json!({ "values": values }), what, &rows.statuses))
        }
        "erase" => {
            let erased = client.open_table(text(&what["table"]))?.erase(&batch)?;
            Ok(with(json!({ "erased": erased.erased }), what, &erased.statuses))
        }
        "describe" => {
            let answers = client.ask_all("table_describe", &fields(&[("name", text(&what["table"]).into())]), &[])?;
            let sum = |name| answers.iter().map(|answer| answer.get(name).uint()).sum::<u64>();
            let step = answers[0].get("step").uint();
            Ok(Some(json!({ "step": step, "rows": sum("rows"), "candidates": sum("candidates") })))
        }
        "stream_open" => {
            let answer = &client.ask_all(kind, &value_of(what), &[])?[0];
            Ok(Some(json!({ "last": answer.get("last").uint(), "opened": answer.get("opened") == &Value::Bool(true) })))
        }
        "writer" => {
            let answer = &client.ask_all(kind, &value_of(what), &[])?[0];
            Ok(Some(json!({ "journaled": answer.get("journaled").uint(), "other": answer.get("other").uint() })))
        }
        "route" => {
            let slot = |i: usize| arrays.slots.get(i).copied().unwrap_or(0);
            let n = what["shards"].as_u64().unwrap() as usize;
            let placement = Placement::of(&value_of(what), n)?;
            let place = |(i, &key)| placement.shard_of(text(&what["partition"]), key, slot(i));
            Ok(Some(json!(arrays.keys.iter().enumerate().map(place).collect::<Vec<_>>())))
        }
        "call" => {
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            let bytes = |digits: &Json| text(digits).as_bytes().chunks(2).map(byte).collect::<Vec<u8>>();
            let bins: Vec<_> = list(&what["bins"]).iter().map(bytes).collect();
            let bins: Vec<_> = bins.iter().map(|bin| &bin[..]).collect();
            client.ask(0, text(&what["method"]), &value_of(&what["params"]), &bins).map(|_| Some(json!("accepted")))
        }
        _ => Ok(None),
    }
}

fn create(client: &Client, what: &Json) -> Result<Option<Json>> {
    let table = client.create_table(&value_of(&what["schema"]), &uints(&what["slot_sizes"]))?;
    let tables = client.tables()?;
    let (_, id) = tables.iter().find(|(name, _)| name == &table.name).unwrap();
    Ok(Some(json!({ "id": id, "created": true })))
}

fn push(client: &Client, what: &Json, batch: &Batch) -> Result<Option<Json>> {
    let table = client.open_table(text(&what["table"]))?;
    let grads: Vec<f32> = list(&what["grads"]).iter().flat_map(|row| floats(text(row), batch.wire)).collect();
    let writer = &what["writer"];
    let number = |name: &str| writer[name].as_u64().unwrap_or(0);
    let pushed = if writer.is_object() {
        let (high, low, number, next) = (number("high"), number("low"), number("stream") as u32, number("sequence"));
        let mut stream = Stream::resume(high, low, number, next);
        stream.patience = Duration::ZERO;
        stream.push(&table, batch, &grads)?
    } else {
        table.push(batch, &grads)?
    };
    if pushed.again {
        return Ok(Some(json!({ "again": true })));
    }
    let counts = json!({ "step": pushed.step, "inserted": pushed.inserted, "full": pushed.full,
                         "filtered": pushed.filtered, "evicted": pushed.evicted });
    Ok(with(counts, what, &pushed.statuses))
}

// ---- streams ----

#[test]
fn a_push_whose_connection_is_lost_is_applied_once() {
    let client = match connect() {
        Some(client) => client,
        None => return,
    };
    let schema = fields(&[
        ("name", "streamed".into()),
        ("dim", 1.into()),
        ("durability", "snapshot".into()),
        ("optimizer", fields(&[("kind", "sgd".into()), ("lr", 1.into())])),
        ("initializer", fields(&[("kind", "constant".into())])),
    ]);
    let table = client.create_table(&schema, &[]).unwrap();
    let mut stream = client.open_stream(77, 78, 0, false).unwrap();
    let batch = Batch::of(&[1, 2, 3, 4, 5]);
    for _ in 0..3 {
        stream.push(&table, &batch, &[1.0; 5]).unwrap();
        client.hang_up(0);
    }
    stream.next = 3;
    assert!(stream.push(&table, &batch, &[1.0; 5]).unwrap().again);
    assert_eq!(table.pull(&batch).unwrap().values, [-3.0; 5]);
}

// ---- keys that move ----

const MOVES: u64 = 5;

/// Moves keys. By an even move shard 0 has none then, by an odd one the last shard.
fn rebalance(embctl: &str, shards: usize, number: u64) {
    let weight = |i| if number % 2 == 1 { shards - 1 - i } else { i };
    let weights: Vec<_> = (0..shards).map(|i| weight(i).to_string()).collect();
    operate(embctl, &["rebalance", "--weights", &weights.join(",")]);
}

fn operate(embctl: &str, words: &[&str]) {
    let (servers, end) = (env::var("EMBD_SERVER").unwrap(), Instant::now() + Duration::from_secs(60));
    loop {
        let done = Command::new(embctl).args(["--servers", &servers]).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        if done.status.success() {
            return;
        }
        assert!(said.contains("try again") && Instant::now() < end, "{}", said);
        thread::sleep(Duration::from_millis(10)); // something else is under way
    }
}

fn moving<'a>(client: &'a Client, partition: &str) -> Table<'a> {
    let schema = fields(&[
        ("name", format!("moving-{}", partition).as_str().into()),
        ("dim", 1.into()),
        ("partition", partition.into()),
        ("slots", if partition == "slot" { 7 } else { 1 }.into()),
        ("optimizer", fields(&[("kind", "sgd".into()), ("lr", 1.into())])),
        ("initializer", fields(&[("kind", "constant".into())])),
    ]);
    client.create_table(&schema, &[]).unwrap()
}

/// The tables' partitions, all keys, and half of them.
type Moving<'a> = [(&'static str, Batch<'a>, Batch<'a>); 3];

fn all_of<'a>(keys: &'a [u64], slots: &'a [u16]) -> Moving<'a> {
    [("hash", false), ("modulo", false), ("slot", true)].map(|(partition, has_slots)| {
        let slots = has_slots.then_some(slots);
        let half = Batch { slots: slots.map(|slots| &slots[..500]), status: true, ..Batch::of(&keys[..500]) };
        (partition, Batch { slots, status: true, ..Batch::of(keys) }, half)
    })
}

/// Clients that were connected before follow the new map, whatever they ask first: each of `pushes` is there, and shard 0
/// has no keys.
fn check_moved(clients: [&Client; 3], tables: [[Table; 3]; 3], all: &Moving, pushes: i32) {
    for (i, (_, batch, half)) in all.iter().enumerate() {
        assert_eq!(tables[1][i].pull(batch).unwrap().values, [-pushes as f32; 1000]);
        assert_eq!(tables[2][i].erase(half).unwrap().erased, 500);
        let name = tables[0][i].name.as_str();
        let shards = clients[0].ask_all("table_describe", &fields(&[("name", name.into())]), &[]).unwrap();
        let rows: Vec<_> = shards.iter().map(|shard| shard.get("rows").uint()).collect();
        assert_eq!(rows.iter().sum::<u64>(), 500);
        assert!(rows.len() == 1 || rows[0] == 0);
    }
}

/// Each push takes 1 from every row, and is applied once. $EMBD_SERVER has several shards and a data directory; $EMBCTL is
/// embctl.
#[test]
fn keys_move_while_a_client_pushes() {
    let (pusher, puller, eraser, embctl) = match (connect(), connect(), connect(), env::var("EMBCTL")) {
        (Some(pusher), Some(puller), Some(eraser), Ok(embctl)) => (pusher, puller, eraser, embctl),
        _ => return println!("skipped: EMBD_SERVER or EMBCTL is not set"),
    };
    let (keys, slots): (Vec<u64>, Vec<u16>) = (0..1000).map(|k| (k, (k % 7) as u16)).unzip();
    let all = all_of(&keys, &slots);
    let clients = [&pusher, &puller, &eraser];
    let tables = clients.map(|client| ["hash", "modulo", "slot"].map(|partition| moving(client, partition)));
    let mut stream = pusher.open_stream(79, 80, 0, true).unwrap();
    let (before, mut pushes, mut more) = (pusher.placement().version(), 0, 3);
    thread::scope(|scope| {
        let moves = scope.spawn(|| (0..MOVES).for_each(|number| rebalance(&embctl, pusher.n_shards(), number)));
        while more > 0 {
            for (table, (_, batch, _)) in tables[0].iter().zip(&all) {
                stream.push(table, batch, &[1.0; 1000]).unwrap();
            }
            pushes += 1;
            more -= i32::from(moves.is_finished());
        }
    });
    assert_eq!(pusher.placement().version(), before + MOVES);
    println!("{} pushes while keys moved", pushes);
    check_moved(clients, tables, &all, pushes);
}

// ---- servers that become members ----

/// Each push takes 1/2 from both keys of a row, until the cluster has changed. Returns how many there were.
fn push_means(table: &Table, batch: &Batch, stream: &mut Stream, has_changed: &AtomicBool) -> u32 {
    let mut pushes = 0;
    while !has_changed.load(Ordering::Relaxed) {
        stream.push(table, batch, &[1.0; 100]).unwrap();
        pushes += 1;
    }
    pushes
}

/// Pushes to all tables until `change` has ended, and a little longer, and to `means`. Returns how often to each.
fn push_while(
    change: impl FnOnce() + Send,
    tables: &[Table; 3],
    all: &Moving,
    stream: &mut Stream,
    means: (&Table, &Batch, &mut Stream),
) -> (i32, u32) {
    let (mut pushes, mut more, mut halves, has_changed) = (0, 3, 0, AtomicBool::new(false));
    thread::scope(|scope| {
        let change = scope.spawn(change);
        let other = scope.spawn(|| push_means(means.0, means.1, means.2, &has_changed));
        while more > 0 {
            for (table, (_, batch, _)) in tables.iter().zip(all) {
                stream.push(table, batch, &[1.0; 1000]).unwrap();
            }
            pushes += 1;
            has_changed.store(change.is_finished(), Ordering::Relaxed); // also if it failed
            more -= i32::from(change.is_finished());
        }
        halves = other.join().unwrap();
    });
    (pushes, halves)
}

/// The last server leaves the cluster, and is killed.
fn retire(embctl: &str, shard: usize, pid: &str) {
    operate(embctl, &["rebalance", "--drain", &shard.to_string()]);
    operate(embctl, &["shard", "retire", &shard.to_string()]);
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
}

/// Each push is applied once, also of tables and streams from before. $EMBD_SERVER has one shard and a data directory;
/// $EMBD_ADDED are servers that were started to join it, $EMBD_PIDS their processes.
#[test]
fn a_cluster_grows_and_shrinks_while_clients_push() {
    let set = (env::var("EMBCTL"), env::var("EMBD_ADDED"));
    let (pusher, puller, eraser, embctl, added) = match (connect(), connect(), connect(), set) {
        (Some(pusher), Some(puller), Some(eraser), (Ok(embctl), Ok(added))) => (pusher, puller, eraser, embctl, added),
        _ => return println!("skipped: EMBD_SERVER, EMBCTL or EMBD_ADDED is not set"),
    };
    let (keys, slots): (Vec<u64>, Vec<u16>) = (0..1000).map(|k| (k, (k % 7) as u16)).unzip();
    let all = all_of(&keys, &slots);
    let clients = [&pusher, &puller, &eraser];
    let tables = clients.map(|client| ["hash", "modulo", "slot"].map(|partition| moving(client, partition)));
    let offsets: Vec<u32> = (0..=100).map(|r| 2 * r).collect();
    let pairs = Batch { offsets: Some(&offsets), ..Batch::of(&keys[..200]) };
    let means = puller
        .create_table(
            &fields(&[
                ("name", "means".into()),
                ("dim", 1.into()),
                ("combiner", "mean".into()),
                ("optimizer", fields(&[("kind", "sgd".into()), ("lr", 1.into())])),
                ("initializer", fields(&[("kind", "constant".into())])),
            ]),
            &[],
        )
        .unwrap();
    let mut stream = pusher.open_stream(81, 82, 0, true).unwrap();
    let mut of_means = puller.open_stream(83, 84, 0, true).unwrap();
    let added: Vec<&str> = added.split(',').collect();
    let grow = || {
        for (i, server) in added.iter().enumerate() {
            operate(&embctl, &["shard", "add", server]);
            rebalance(&embctl, i + 2, 0);
        }
    };
    let shrink = || {
        for (i, pid) in env::var("EMBD_PIDS").unwrap().split(',').enumerate() {
            retire(&embctl, added.len() - i, pid);
        }
    };
    let (pushes, halves) = push_while(grow, &tables[0], &all, &mut stream, (&means, &pairs, &mut of_means));
    assert_eq!(pusher.n_shards(), added.len() + 1);
    println!("{} and {} pushes while the cluster grew", pushes, halves);
    assert_eq!(means.pull(&pairs).unwrap().values, [-(halves as f32) / 2.0; 100]);
    let early = eraser.create_table(&fields(&[("name", "early".into()), ("dim", 1.into())]), &[]).unwrap();
    let (more, more_halves) = push_while(shrink, &tables[0], &all, &mut stream, (&means, &pairs, &mut of_means));
    assert_eq!(pusher.n_shards(), 1);
    println!("{} and {} pushes until servers had left the cluster", more, more_halves);
    early.push(&Batch::of(&keys), &[1.0; 1000]).unwrap(); // its client has heard of nothing, and they have ended
    assert_eq!(means.pull(&pairs).unwrap().values, [-((halves + more_halves) as f32) / 2.0; 100]);
    check_moved(clients, tables, &all, pushes + more);
    let later = eraser.create_table(&fields(&[("name", "later".into()), ("dim", 1.into())]), &[]).unwrap();
    assert_eq!(later.pull(&Batch::of(&keys)).unwrap().values.len(), keys.len());
}
