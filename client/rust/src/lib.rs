//! A client of the embd parameter server: tables, pulls, pushes, erases and numbered pushes, over the protocol of
//! proto/PROTOCOL.md. It is small on purpose: copy it, and change what you need. `examples/first.rs` shows it in use.
//!
//! A `Client` may be shared by threads. Its pushes are made one after the other.

mod batch;
mod half;
mod placement;
mod table;
mod value;
mod wire;

pub use batch::Batch;
pub use half::Wire;
pub use placement::Placement;
pub use table::{status, Erased, Pushed, Rows, Table};
pub use value::{fields, Value};
pub use wire::{code, Error, Options, Result};

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wire::Shard;

/// A connection to each shard, also to those that are added to the cluster later, and none to those that left.
pub struct Client {
    pub(crate) cluster: Mutex<Arc<Cluster>>,
    /// The shards of the cluster.
    known: Mutex<Vec<Arc<Shard>>>,
    options: Options,
    id: u64,
    pub(crate) pushing: Mutex<()>,
    /// Of the last push's messages: proto/PROTOCOL.md, "The order of pushes".
    pub(crate) order: AtomicU64,
}

/// The shards, and which of them has which keys.
pub(crate) struct Cluster {
    pub(crate) placement: Arc<Placement>,
    pub(crate) shards: Vec<Arc<Shard>>,
}

impl Cluster {
    fn is_shrunk(&self, before: &Cluster) -> bool {
        self.placement.version() > before.placement.version() && self.shards.len() < before.shards.len()
    }
}

impl Client {
    /// Asks the shard at `address` where the others are, and connects to all of them.
    pub fn connect(address: &str, options: &Options) -> Result<Client> {
        let (answer, _) = Shard::new(address, options, 0).call("cluster", &fields(&[]), &[])?;
        let nothing = Cluster { placement: Arc::new(Placement::of(&Value::Nil, 1)?), shards: vec![] };
        let client = Client {
            cluster: Mutex::new(Arc::new(nothing)),
            known: Mutex::new(vec![]),
            options: options.clone(),
            id: RandomState::new().build_hasher().finish(),
            pushing: Mutex::new(()),
            order: AtomicU64::new(0),
        };
        let cluster = client.add_known(&mut client.known.lock().unwrap(), &answer)?;
        *client.cluster.lock().unwrap() = cluster;
        client.on_all(|shards| ask(shards, "ping", &fields(&[]), &[]))?;
        Ok(client)
    }

    /// The cluster in an answer to `cluster`: the shards that the client knows, but for those that have left, and those
    /// that were added.
    fn add_known(&self, known: &mut Vec<Arc<Shard>>, answer: &Value) -> Result<Arc<Cluster>> {
        let places = answer.get("shards").list();
        if places.is_empty() {
            return Err(Error::new(code::PROTOCOL, "the cluster has 0 shards"));
        }
        let placement = Arc::new(Placement::of(answer, places.len())?);
        known.truncate(places.len()); // a connection ends with the last call that has its shard
        let added = places[known.len()..].iter();
        known.extend(added.map(|p| Arc::new(Shard::new(p.get("address").str(), &self.options, self.id))));
        Ok(Arc::new(Cluster { placement, shards: known.clone() }))
    }

    /// Asks for the map and the shards of the cluster.
    pub(crate) fn learn(&self) -> Result<Arc<Cluster>> {
        let mut known = self.known.lock().unwrap();
        let (answer, _) = known[0].call("cluster", &fields(&[]), &[])?;
        self.add_known(&mut known, &answer)
    }

    /// Whether the client knows all shards. It does from then on.
    fn sees_all(&self) -> Result<bool> {
        let next = self.learn()?;
        let mut cluster = self.cluster.lock().unwrap();
        let has_more = next.shards.len() > cluster.shards.len();
        if has_more {
            *cluster = next;
        }
        Ok(!has_more)
    }

    /// Whether shards have left that cluster. Then the client has the one without them.
    pub(crate) fn has_lost(&self, before: &Cluster) -> bool {
        match self.learn() {
            Ok(next) if next.is_shrunk(before) => {
                *self.cluster.lock().unwrap() = next;
                true
            }
            _ => false,
        }
    }

    /// Runs f with all shards, and once more where it failed since some have left.
    fn on_all<T>(&self, f: impl Fn(&[Arc<Shard>]) -> Result<T>) -> Result<T> {
        loop {
            let cluster = self.cluster();
            match f(&cluster.shards) {
                Err(_) if self.has_lost(&cluster) => continue,
                answer => return answer,
            }
        }
    }

    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        self.cluster.lock().unwrap().clone()
    }

    pub fn n_shards(&self) -> usize {
        self.cluster().shards.len()
    }

    /// Which shard has which keys, as far as the client knows.
    pub fn placement(&self) -> Arc<Placement> {
        self.cluster().placement.clone()
    }

    /// The names of the tables with their ids.
    pub fn tables(&self) -> Result<Vec<(String, u64)>> {
        let (answer, _) = self.cluster().shards[0].call("tables", &fields(&[]), &[])?;
        let list = answer.get("tables").list().iter();
        Ok(list.map(|table| (table.get("name").str().to_string(), table.get("id").uint())).collect())
    }

    /// Creates a table on all shards, or finds it as it is. `schema` is the map of proto/PROTOCOL.md, "Schemas", without
    /// slot_sizes; these may be empty. EXISTS: there is another one of this name.
    pub fn create_table(&self, schema: &Value, slot_sizes: &[u64]) -> Result<Table<'_>> {
        let sizes: Vec<u8> = slot_sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        let mut definition = schema.clone();
        let mut bins: Vec<&[u8]> = vec![];
        if let (Value::Map(list), false) = (&mut definition, slot_sizes.is_empty()) {
            list.push(("slot_sizes".to_string(), true.into()));
            bins.push(&sizes);
        }
        loop {
            self.on_all(|shards| ask(shards, "table_create", &fields(&[("schema", definition.clone())]), &bins))?;
            if self.sees_all()? {
                break; // else again: the cluster got shards meanwhile
            }
        }
        self.open_table(schema.get("name").str())
    }

    /// Looks a table up.
    pub fn open_table(&self, name: &str) -> Result<Table<'_>> {
        let shards = self.cluster().shards.clone();
        let (answer, bins) = shards[0].call("table_describe", &fields(&[("name", name.into())]), &[])?;
        let schema = answer.get("schema");
        let mut starts = vec![0];
        for size in bins.iter().flat_map(|sizes| sizes.chunks_exact(8)) {
            starts.push(starts[starts.len() - 1] + u64::from_le_bytes(size.try_into().unwrap()));
        }
        let dim = schema.get("dim").uint() as usize;
        if dim == 0 {
            return Err(Error::new(code::PROTOCOL, "the table has no columns"));
        }
        let (combiner, partition) = (schema.get("combiner").str().into(), schema.get("partition").str().into());
        let table =
            Table { name: name.into(), dim, client: self, ids: Mutex::new(vec![]), combiner, partition, starts };
        self.on_all(|shards| table.ids_on(shards))?;
        Ok(table)
    }

    /// Begins a stream on all shards. `high` and `low` are random numbers of the caller's. `journaled` says whether the
    /// stream is for tables that are journaled. A stream is opened only before its first push.
    pub fn open_stream(&self, high: u64, low: u64, number: u32, journaled: bool) -> Result<Stream> {
        let stream = Stream { journaled, ..Stream::resume(high, low, number, 1) };
        self.on_all(|shards| stream.open_on(shards))?;
        Ok(stream)
    }

    /// Sends the same request to all shards. The first shard with an error is that of the call.
    #[doc(hidden)]
    pub fn ask_all(&self, method: &str, params: &Value, bins: &[&[u8]]) -> Result<Vec<Value>> {
        ask(&self.cluster().shards, method, params, bins)
    }

    /// Sends a request as it is to one shard.
    #[doc(hidden)]
    pub fn ask(&self, shard: usize, method: &str, params: &Value, bins: &[&[u8]]) -> Result<Value> {
        Ok(self.cluster().shards[shard].call(method, params, bins)?.0)
    }

    #[doc(hidden)]
    pub fn hang_up(&self, shard: usize) {
        self.cluster().shards[shard].hang_up()
    }
}

/// Runs f for all shards at once.
pub(crate) fn all<T: Send>(shards: &[Arc<Shard>], f: impl Fn(usize, &Shard) -> Result<T> + Sync) -> Vec<Result<T>> {
    let run = |i: usize, shard| f(i, shard).map_err(|e| Error::new(e.code, format!("shard {}: {}", i, e.text)));
    if let [only] = shards {
        return vec![run(0, only)];
    }
    let run = &run;
    thread::scope(|scope| {
        let shards = shards.iter().enumerate();
        let calls: Vec<_> = shards.map(|(i, shard)| scope.spawn(move || run(i, shard))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

/// Sends the same request to some shards.
pub(crate) fn ask(shards: &[Arc<Shard>], method: &str, params: &Value, bins: &[&[u8]]) -> Result<Vec<Value>> {
    all(shards, |_, shard| Ok(shard.call(method, params, bins)?.0)).into_iter().collect()
}

/// Numbers pushes, so that each is applied once however often it is sent: `push` repeats a push until it is answered.
pub struct Stream {
    pub high: u64,
    pub low: u64,
    pub number: u32,
    /// Number of the next push.
    pub next: u64,
    /// How long `push` repeats.
    pub patience: Duration,
    journaled: bool,
    /// Shards that it was opened on. 0: the caller sees to that.
    opened: AtomicUsize,
}

impl Stream {
    /// A stream that was opened before, on all shards. `next` is the number of its next push.
    pub fn resume(high: u64, low: u64, number: u32, next: u64) -> Stream {
        let (patience, opened) = (Duration::from_secs(60), AtomicUsize::new(0));
        Stream { high, low, number, next, patience, journaled: true, opened }
    }

    /// Opens the stream where it is not open yet. On a shard that was added it is as far as on the others.
    fn open_on(&self, shards: &[Arc<Shard>]) -> Result<()> {
        let opened = self.opened.load(Ordering::Relaxed);
        if opened < shards.len() {
            let mut params = self.fields();
            params.push(("journaled", self.journaled.into()));
            ask(&shards[opened..], "stream_open", &fields(&params), &[])?;
        }
        self.opened.store(shards.len(), Ordering::Relaxed); // others may get the numbers of those that left
        Ok(())
    }

    /// Before each push.
    pub(crate) fn follow(&self, shards: &[Arc<Shard>]) -> Result<()> {
        match self.opened.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => self.open_on(shards),
        }
    }

    pub(crate) fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![("high", self.high.into()), ("low", self.low.into()), ("stream", u64::from(self.number).into())]
    }

    /// Pushes as `Table::push` does, and repeats a push whose connection was lost or whose server is busy. It uses a
    /// number up when it succeeds. After an error the same push, or one without keys, has to take the number.
    pub fn push(&mut self, table: &Table, batch: &Batch, gradients: &[f32]) -> Result<Pushed> {
        let (end, mut pause) = (Instant::now() + self.patience, Duration::from_millis(10));
        loop {
            match table.push_as(batch, gradients, Some(self)) {
                Err(e) if e.may_repeat() && Instant::now() + pause < end => thread::sleep(pause),
                Err(e) => return Err(e),
                Ok(pushed) => {
                    self.next += 1;
                    return Ok(pushed);
                }
            }
            pause *= 2;
        }
    }
}
