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
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wire::Shard;

/// A connection to each shard.
pub struct Client {
    pub(crate) shards: Vec<Shard>,
    pub(crate) placement: Mutex<Arc<Placement>>,
    pub(crate) pushing: Mutex<()>,
    /// Of the last push's messages: proto/PROTOCOL.md, "The order of pushes".
    pub(crate) order: AtomicU64,
}

impl Client {
    /// Asks the shard at `address` where the others are, and connects to all of them.
    pub fn connect(address: &str, options: &Options) -> Result<Client> {
        let (answer, _) = Shard::new(address, options, 0).call("cluster", &fields(&[]), &[])?;
        let places = answer.get("shards").list();
        let id = RandomState::new().build_hasher().finish();
        let shards = places.iter().map(|p| Shard::new(p.get("address").str(), options, id)).collect();
        let placement = Placement::of(&answer, places.len())?;
        let (placement, order) = (Mutex::new(Arc::new(placement)), AtomicU64::new(0));
        let client = Client { shards, placement, pushing: Mutex::new(()), order };
        client.ask_all("ping", &fields(&[]), &[])?;
        Ok(client)
    }

    pub fn n_shards(&self) -> usize {
        self.shards.len()
    }

    /// Which shard has which keys, as far as the client knows.
    pub fn placement(&self) -> Arc<Placement> {
        self.placement.lock().unwrap().clone()
    }

    /// The names of the tables with their ids.
    pub fn tables(&self) -> Result<Vec<(String, u64)>> {
        let (answer, _) = self.shards[0].call("tables", &fields(&[]), &[])?;
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
        self.ask_all("table_create", &fields(&[("schema", definition)]), &bins)?;
        self.open_table(schema.get("name").str())
    }

    /// Looks a table up.
    pub fn open_table(&self, name: &str) -> Result<Table<'_>> {
        let (answer, bins) = self.shards[0].call("table_describe", &fields(&[("name", name.into())]), &[])?;
        let schema = answer.get("schema");
        let mut starts = vec![0];
        for size in bins.iter().flat_map(|sizes| sizes.chunks_exact(8)) {
            starts.push(starts[starts.len() - 1] + u64::from_le_bytes(size.try_into().unwrap()));
        }
        let dim = schema.get("dim").uint() as usize;
        if dim == 0 {
            return Err(Error::new(code::PROTOCOL, "the table has no columns"));
        }
        let ids = self.ask_all("table_describe", &fields(&[("name", name.into())]), &[])?; // shards may give it different ones
        let ids = ids.iter().map(|answer| answer.get("id").uint()).collect();
        let (combiner, partition) = (schema.get("combiner").str().into(), schema.get("partition").str().into());
        Ok(Table { name: name.into(), dim, client: self, ids, combiner, partition, starts })
    }

    /// Begins a stream on all shards. `high` and `low` are random numbers of the caller's. `journaled` says whether the
    /// stream is for tables that are journaled. A stream is opened only before its first push.
    pub fn open_stream(&self, high: u64, low: u64, number: u32, journaled: bool) -> Result<Stream> {
        let stream = Stream { high, low, number, next: 1, patience: Duration::from_secs(60) };
        let mut params = stream.fields();
        params.push(("journaled", journaled.into()));
        self.ask_all("stream_open", &fields(&params), &[])?;
        Ok(stream)
    }

    /// Runs f for all shards at once.
    pub(crate) fn all<T: Send>(&self, f: impl Fn(usize, &Shard) -> Result<T> + Sync) -> Vec<Result<T>> {
        let run = |i: usize, shard| f(i, shard).map_err(|e| Error::new(e.code, format!("shard {}: {}", i, e.text)));
        if let [only] = &self.shards[..] {
            return vec![run(0, only)];
        }
        let run = &run;
        thread::scope(|scope| {
            let shards = self.shards.iter().enumerate();
            let calls: Vec<_> = shards.map(|(i, shard)| scope.spawn(move || run(i, shard))).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        })
    }

    /// Sends the same request to all shards. The first shard with an error is that of the call.
    #[doc(hidden)]
    pub fn ask_all(&self, method: &str, params: &Value, bins: &[&[u8]]) -> Result<Vec<Value>> {
        self.all(|_, shard| Ok(shard.call(method, params, bins)?.0)).into_iter().collect()
    }

    /// Sends a request as it is to one shard.
    #[doc(hidden)]
    pub fn ask(&self, shard: usize, method: &str, params: &Value, bins: &[&[u8]]) -> Result<Value> {
        Ok(self.shards[shard].call(method, params, bins)?.0)
    }

    #[doc(hidden)]
    pub fn hang_up(&self, shard: usize) {
        self.shards[shard].hang_up()
    }
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
}

impl Stream {
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
