//! Which shard has which keys, and requests whose keys have moved.

use crate::batch::{Batch, Share};
use crate::value::Value;
use crate::wire::{code, Error, Result, Shard};
use crate::{all, Client, Cluster, Stream, Table};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const VSHARDS: usize = 1024;
/// For so long a server with an older map is behind. Then it was promoted without the move.
const STAYS_BEHIND: Duration = Duration::from_secs(1);

/// The map of vshards to shards: proto/PROTOCOL.md, "Placement".
pub struct Placement {
    version: u64,
    /// Version in requests. 0: none, the map is even.
    pub(crate) told: u64,
    /// Shards of the even map that residues go by.
    base: usize,
    /// The shard of each vshard.
    owners: [usize; VSHARDS],
}

impl Placement {
    /// The map in an answer to `cluster` of n shards. Where there is none, it is the even one.
    pub fn of(answer: &Value, n: usize) -> Result<Placement> {
        let wrong = || {
            let text = format!("the cluster's placement is not a map of {} vshards to {} shards", VSHARDS, n);
            Error::new(code::PROTOCOL, text)
        };
        let mut p = Placement { version: 1, told: 0, base: n, owners: [0; VSHARDS] };
        (0..VSHARDS).for_each(|v| p.owners[v] = v * n / VSHARDS);
        let given = answer.get("placement");
        if given != &Value::Nil {
            let mut owners = vec![];
            for run in given.get("runs").list().chunks_exact(2) {
                let (shard, count) = (run[0].uint() as usize, run[1].uint() as usize);
                if shard >= n || count > VSHARDS - owners.len() {
                    return Err(wrong());
                }
                owners.resize(owners.len() + count, shard);
            }
            let owners = owners.try_into().map_err(|_| wrong())?;
            let (version, base) = (given.get("version").uint(), given.get("base").uint() as usize);
            let told = if base == n && owners == p.owners { 0 } else { version };
            p = Placement { version, told, base, owners };
        }
        match n > 0 && (1..=VSHARDS).contains(&p.base) {
            true => Ok(p),
            false => Err(wrong()),
        }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Which shard has the key.
    pub fn shard_of(&self, partition: &str, key: u64, slot: u16) -> usize {
        let residue = match partition {
            "modulo" => key,
            "slot" => slot.into(),
            _ => return self.owners[(mix64(key) >> 54) as usize],
        };
        let r = (residue % (self.base * (VSHARDS / self.base)) as u64) as usize;
        self.owners[(r % self.base * VSHARDS + self.base - 1) / self.base + r / self.base]
    }
}

/// MurmurHash3's 64-bit finalizer.
fn mix64(x: u64) -> u64 {
    let x = (x ^ x >> 33).wrapping_mul(0xff51afd7ed558ccd);
    let x = (x ^ x >> 33).wrapping_mul(0xc4ceb9fe1a85ec53);
    x ^ x >> 33
}

fn is_moved<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(e) if e.code == code::MOVED)
}

/// Whether a request has to be split by another map. A push that a shard may have applied is never split again: its
/// number there stands for other keys.
fn splits_again<T>(answers: &[Result<T>], is_push: bool) -> bool {
    let moved = answers.iter().filter(|answer| is_moved(answer)).count();
    moved == answers.len() || moved > 0 && !is_push
}

/// All answers, or the first error. MOVED is before all others: such a request is not repeated.
fn all_or_first<T>(mut answers: Vec<Result<T>>) -> Result<Vec<T>> {
    if let Some(i) = answers.iter().position(is_moved) {
        answers.swap(0, i);
    }
    answers.into_iter().collect()
}

/// What a request does. A push with a number is applied once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A pull, an erase.
    Repeatable,
    PlainPush,
    NumberedPush,
}

/// The answers of the first `n` shards, which the later map still has, and what the failures of the others come to: those
/// without keys had nothing to do. A push with keys that may have been applied there stays as it is, unless it has a
/// number: then it was applied by all shards before one of them left, or by none.
fn without_left<T>(mut answers: Vec<Result<T>>, keys: &[usize], n: usize, kind: Kind) -> Vec<Result<T>> {
    let left = answers.split_off(n);
    let is_there = kind == Kind::NumberedPush && answers.iter().any(Result::is_ok);
    for (answer, &keys) in left.into_iter().zip(&keys[n..]) {
        match answer {
            Ok(_) => (),
            Err(_) if is_there || kind != Kind::Repeatable && keys == 0 => (),
            Err(e) if kind == Kind::PlainPush && e.code == code::CLOSED => answers.push(Err(e)),
            Err(_) => answers.push(Err(Error::new(code::MOVED, "the shard has left the cluster"))),
        }
    }
    answers
}

/// Whether some shards have refused the request for its map, and it is not known what became of it on others. With its
/// number it may be sent again as it is: those that applied it say so, the others refuse it, too.
fn is_in_doubt<T>(answers: &[Result<T>]) -> bool {
    answers.iter().any(is_moved) && answers.iter().any(|answer| matches!(answer, Err(e) if e.may_repeat()))
}

/// Whether one of them has failed, otherwise than by a refusal.
fn has_failed<T>(answers: &[Result<T>]) -> bool {
    answers.iter().any(|answer| answer.is_err() && !is_moved(answer))
}

impl Client {
    /// Sends a request to all shards of the cluster, and returns each one's answer, and how many of them have not left it
    /// meanwhile. These get a numbered push again while it is in doubt.
    fn sent<T: Send>(
        &self,
        cluster: &Cluster,
        kind: Kind,
        end: Instant,
        send: impl Fn(usize, &Shard) -> Result<T> + Sync,
    ) -> (Vec<Result<T>>, usize) {
        let (mut answers, mut n, mut pause) = (vec![], cluster.shards.len(), Duration::from_millis(10));
        loop {
            if kind != Kind::Repeatable {
                self.order.fetch_add(1, Ordering::Relaxed); // also of a push that was refused: servers have seen that one
            }
            let now = all(&cluster.shards[..n], &send);
            answers.splice(..n.min(answers.len()), now);
            if has_failed(&answers[1..n]) && self.has_lost(cluster) {
                n = n.min(self.n_shards());
            }
            if kind != Kind::NumberedPush || !is_in_doubt(&answers[..n]) || Instant::now() + pause > end {
                return (answers, n);
            }
            thread::sleep(pause);
            pause += Duration::from_millis(10);
        }
    }
}

impl Table<'_> {
    /// Sends each shard its share of the batch. Where shards have another map, it asks for that one, splits the whole
    /// batch again and sends it again, until the timeout of a call has passed. The stream of a push is opened on shards that
    /// were added.
    pub(crate) fn placed<T: Send>(
        &self,
        batch: &Batch,
        kind: Kind,
        stream: Option<&Stream>,
        send: impl Fn(&Shard, &Share) -> Result<T> + Sync,
    ) -> Result<(Vec<Share>, Vec<T>)> {
        let (client, mut pause, mut behind) = (self.client, Duration::from_millis(10), None);
        let end = Instant::now() + client.cluster().shards[0].timeout();
        loop {
            let cluster = client.cluster();
            let (placement, shards) = (&cluster.placement, &cluster.shards);
            let begun = self.ids_on(shards).and_then(|ids| {
                stream.map_or(Ok(()), |stream| stream.follow(shards))?;
                Ok(ids)
            });
            let ids = match begun {
                Err(_) if client.has_lost(&cluster) => continue,
                begun => begun?,
            };
            let divided = match kind != Kind::Repeatable && shards.len() > 1 && self.divides(batch) {
                true => Some(batch.divided(&self.combiner)),
                false => None,
            };
            let mut shares = batch.shares(&self.partition, divided.as_deref().or(batch.weights), placement, &ids);
            let (mut answers, n) = client.sent(&cluster, kind, end, |i, shard| send(shard, &shares[i]));
            if n < shares.len() {
                let keys = shares.iter().map(|share| share.at.len()).collect::<Vec<_>>();
                answers = without_left(answers, &keys, n, kind);
                shares.truncate(n);
            }
            if !splits_again(&answers, kind != Kind::Repeatable) || Instant::now() + pause > end {
                return Ok((shares, all_or_first(answers)?));
            }
            let next = client.learn()?;
            let since = *behind.get_or_insert_with(Instant::now);
            let stays = next.placement.version < placement.version && since.elapsed() > STAYS_BEHIND;
            if next.placement.version > placement.version || stays {
                *client.cluster.lock().unwrap() = next;
            } else {
                thread::sleep(pause); // the server is behind
                pause += Duration::from_millis(10);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fields, Options};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
    use std::sync::Mutex;

    /// A push to a shard that has left may have been applied there, unless it had no keys for it, or was refused, or has a
    /// number that no other shard has applied.
    #[test]
    fn shards_that_left_are_left_out() {
        use Kind::*;
        let [fine, moved, closed, unreachable] = [Ok(()), Err(code::MOVED), Err(code::CLOSED), Err(code::UNREACHABLE)]
            .map(|a| a.map_err(|c| Error::new(c, "")));
        for (answers, keys, kind, again, number) in [
            ([&fine, &closed], 0, PlainPush, false, None),
            ([&moved, &closed], 0, PlainPush, true, Some(code::MOVED)),
            ([&fine, &closed], 3, PlainPush, false, Some(code::CLOSED)),
            ([&moved, &closed], 3, PlainPush, false, Some(code::MOVED)),
            ([&moved, &unreachable], 3, PlainPush, true, Some(code::MOVED)),
            ([&fine, &closed], 3, Repeatable, true, Some(code::MOVED)),
            ([&fine, &closed], 3, NumberedPush, false, None),
            ([&moved, &closed], 3, NumberedPush, true, Some(code::MOVED)),
        ] {
            let left = without_left(answers.map(Clone::clone).to_vec(), &[2, keys], 1, kind);
            assert_eq!(splits_again(&left, kind != Repeatable), again, "{:?}", left);
            assert_eq!(all_or_first(left).err().map(|e| e.code), number);
        }
    }

    #[test]
    fn pushes_that_may_be_applied_are_not_split_again() {
        let (fine, moved) = (Ok(()), Err(Error::new(code::MOVED, "moved")));
        let closed = Err(Error::new(code::CLOSED, "closed"));
        for (answers, pulls, pushes, number) in [
            (vec![moved.clone(), moved.clone()], true, true, code::MOVED),
            (vec![fine.clone(), moved.clone()], true, false, code::MOVED),
            (vec![closed.clone(), moved], true, false, code::MOVED),
            (vec![fine, closed], false, false, code::CLOSED),
        ] {
            assert_eq!((splits_again(&answers, false), splits_again(&answers, true)), (pulls, pushes), "{:?}", answers);
            assert_eq!(all_or_first(answers).unwrap_err().code, number);
        }
    }
    /// A shard. Its connections break in the midst of `breaks` pushes; pushes of an earlier map are refused.
    struct Broken {
        listener: TcpListener,
        breaks: AtomicUsize,
        /// Numbers of pushes.
        applied: Mutex<Vec<u64>>,
    }

    impl Broken {
        fn new(breaks: usize) -> Arc<Broken> {
            let (listener, breaks) = (TcpListener::bind("127.0.0.1:0").unwrap(), breaks.into());
            Arc::new(Broken { listener, breaks, applied: Mutex::new(vec![]) })
        }

        fn address(&self) -> Value {
            fields(&[("address", self.listener.local_addr().unwrap().to_string().as_str().into())])
        }

        /// As long as the process runs. `cluster` is its answer, with its map.
        fn serve(self: Arc<Broken>, cluster: impl Fn() -> Value + Clone + Send + 'static) {
            thread::spawn(move || {
                for stream in self.listener.incoming() {
                    let (shard, cluster) = (self.clone(), cluster.clone());
                    thread::spawn(move || shard.talk(stream.unwrap(), &cluster));
                }
            });
        }

        fn talk(&self, mut stream: TcpStream, cluster: &impl Fn() -> Value) {
            while let Ok(message) = Value::read(&mut stream) {
                let message = message.list();
                let (refusal, answer) = match message[2].str() {
                    "cluster" => (Value::Nil, cluster()),
                    "table_describe" => {
                        let schema = fields(&[("dim", Value::Uint(1)), ("partition", "hash".into())]);
                        (Value::Nil, fields(&[("id", Value::Uint(1)), ("schema", schema)]))
                    }
                    "push" if self.breaks.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok() => return,
                    "push" => self.push(&message[3].list()[0], cluster().get("placement").get("version")),
                    _ => (Value::Nil, fields(&[])),
                };
                let (mut bytes, result) = (vec![], Value::List(vec![answer]));
                Value::List(vec![Value::Uint(1), message[1].clone(), refusal, result]).write(&mut bytes);
                stream.write_all(&bytes).unwrap();
            }
        }

        fn push(&self, params: &Value, version: &Value) -> (Value, Value) {
            let (sequence, mut applied) = (params.get("writer").get("sequence").uint(), self.applied.lock().unwrap());
            if applied.contains(&sequence) {
                return (Value::Nil, fields(&[("again", true.into())]));
            }
            if params.get("placement") != version {
                return (Value::List(vec![Value::Uint(code::MOVED.into()), "moved".into()]), Value::Nil);
            }
            applied.push(sequence);
            (Value::Nil, fields(&[("parts", Value::List(vec![fields(&[("step", Value::Uint(1))])]))]))
        }
    }

    /// Connections break in the midst of a numbered push to shards of which one has left: the client learns the map, and
    /// each shard that stays applies it once, with its number.
    #[test]
    fn numbered_pushes_follow_a_map_over_broken_connections() {
        for (breaks, leaves, stays) in [(1, 2, 2), (1, 3, 2), (2, 3, 2)] {
            let version = Arc::new(AtomicU64::new(2));
            let shards: Vec<_> = (0..leaves).map(|i| Broken::new(if i > 0 { breaks } else { 0 })).collect();
            let addresses: Vec<_> = shards.iter().map(|shard| shard.address()).collect();
            for shard in &shards {
                let (addresses, version) = (addresses.clone(), version.clone());
                shard.clone().serve(move || {
                    let version = version.load(SeqCst);
                    let (n, runs) = match version {
                        2 if leaves == 2 => (2, vec![0, 1, 1, 1023]),
                        2 => (3, vec![0, 1, 1, 1, 2, 1022]),
                        _ => (stays, vec![0, 2, 1, 1022]),
                    };
                    let runs = Value::List(runs.into_iter().map(Value::Uint).collect());
                    let map = [("version", Value::Uint(version)), ("base", Value::Uint(1)), ("runs", runs)];
                    fields(&[("shards", Value::List(addresses[..n].to_vec())), ("placement", fields(&map))])
                });
            }
            let options = Options { timeout: Duration::from_secs(60), ..Options::default() };
            let client = Client::connect(addresses[0].get("address").str(), &options).unwrap();
            let table = client.open_table("t").unwrap();
            version.store(3, SeqCst);
            let mut stream = Stream::resume(1, 2, 0, 7);
            stream.push(&table, &Batch::of(&[1, 2, 3, 4]), &[1.0; 4]).unwrap();
            for (i, shard) in shards.iter().enumerate() {
                assert_eq!(*shard.applied.lock().unwrap(), if i < stays { vec![7] } else { vec![] }, "shard {}", i);
            }
        }
    }
}
