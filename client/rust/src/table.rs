//! Pull, push and erase.

use crate::batch::{Batch, Share};
use crate::placement::Kind;
use crate::value::{fields, Value};
use crate::wire::Shard;
use crate::wire::{code, Error, Result};
use crate::{ask, Client, Stream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Statuses of keys.
pub mod status {
    pub const HIT: u8 = 0;
    pub const INSERTED: u8 = 1;
    pub const MISSING: u8 = 2;
    pub const FILTERED: u8 = 3;
    pub const EVICTED: u8 = 4;
    pub const FULL: u8 = 5;
}

/// A table of all shards.
pub struct Table<'a> {
    pub name: String,
    pub dim: usize,
    pub(crate) client: &'a Client,
    pub(crate) ids: Mutex<Vec<(Arc<Shard>, u64)>>, // on each shard
    pub(crate) combiner: String,
    pub(crate) partition: String,
    /// With slot_sizes: where the keys of each slot begin.
    pub(crate) starts: Vec<u64>,
}

/// The answer to a pull.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// [rows][dim]
    pub values: Vec<f32>,
    /// Of each key, where asked for.
    pub statuses: Vec<u8>,
}

/// The answer to a push. Counts are sums over the shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pushed {
    pub step: u64,
    pub inserted: u64,
    pub full: u64,
    pub filtered: u64,
    pub evicted: u64,
    pub statuses: Vec<u8>,
    /// A numbered push that was applied before; nothing else is set.
    pub again: bool,
}

/// The answer to an erase.
#[derive(Clone, Debug, PartialEq)]
pub struct Erased {
    pub erased: u64,
    pub statuses: Vec<u8>,
}

fn parts(share: &Share, part: Value, more: &[(&str, Value)]) -> Value {
    let mut params = vec![("parts", Value::List(vec![part]))];
    params.extend_from_slice(more);
    if share.placement > 0 {
        params.push(("placement", share.placement.into()));
    }
    fields(&params)
}

fn new_statuses(batch: &Batch) -> Vec<u8> {
    vec![0; if batch.status { batch.keys.len() } else { 0 }]
}

impl Table<'_> {
    /// The stored key of a slot's key, in tables with slot_sizes; elsewhere the key itself.
    pub fn key(&self, slot: usize, key: u64) -> u64 {
        key + self.starts.get(slot).unwrap_or(&0)
    }

    /// The table's id on each shard: shards may give it different ones. Those that were not asked yet are asked.
    pub(crate) fn ids_on(&self, shards: &[Arc<Shard>]) -> Result<Vec<u64>> {
        let mut ids = self.ids.lock().unwrap();
        let n = ids.iter().zip(shards).take_while(|(known, shard)| Arc::ptr_eq(&known.0, shard)).count();
        if n < shards.len() {
            let params = fields(&[("name", self.name.as_str().into())]);
            let answers = ask(&shards[n..], "table_describe", &params, &[])?;
            ids.truncate(n);
            ids.extend(shards[n..].iter().cloned().zip(answers.iter().map(|answer| answer.get("id").uint())));
        }
        Ok(ids[..shards.len()].iter().map(|known| known.1).collect())
    }

    /// Reads rows. Rows of mean and sqrtn tables are finished, unless `batch.sums`. With a 16-bit wire and several shards,
    /// the shards' sums are rounded before they are added.
    pub fn pull(&self, batch: &Batch) -> Result<Rows> {
        batch.check(&self.partition)?;
        let (shares, answers) = self.placed(batch, Kind::Repeatable, None, |shard, share| {
            if share.rows.is_empty() && !share.is_only {
                return Ok(vec![vec![], vec![]]);
            }
            let (part, bins) = self.part(batch, share);
            let (_, data) = shard.call("pull", &parts(share, part, &[]), &bins)?;
            match data.first().map(Vec::len) == Some(share.rows.len() * self.dim * batch.wire.bytes()) {
                true => Ok(data),
                false => Err(Error::new(code::PROTOCOL, "the answer has not the rows asked for")),
            }
        })?;
        let mut rows = Rows { values: self.add(batch, &shares, &answers), statuses: new_statuses(batch) };
        for (share, data) in shares.iter().zip(&answers) {
            share.tell(data.get(1), &mut rows.statuses)?;
        }
        Ok(rows)
    }

    /// Sends gradients, [rows][dim]: one step of the table, on all shards. Gradients are those of finished rows, unless
    /// `batch.sums`. Each shard takes or refuses its share by itself.
    pub fn push(&self, batch: &Batch, gradients: &[f32]) -> Result<Pushed> {
        self.push_as(batch, gradients, None)
    }

    /// Removes the batch's keys. It has neither offsets nor weights.
    pub fn erase(&self, batch: &Batch) -> Result<Erased> {
        if batch.offsets.is_some() || batch.weights.is_some() {
            return Err(Error::new(code::INVALID, "an erase has neither offsets nor weights"));
        }
        batch.check(&self.partition)?;
        let keys = Batch { status: batch.status, slots: batch.slots, ..Batch::of(batch.keys) };
        let count = AtomicU64::new(0);
        let (shares, answers) = self.placed(batch, Kind::Repeatable, None, |shard, share| {
            let (part, bins) = self.part(&keys, share);
            let (answer, data) = shard.call("erase", &parts(share, part, &[]), &bins)?;
            count.fetch_add(first(&answer)?.get("erased").uint(), Ordering::Relaxed);
            Ok(data)
        })?;
        let mut erased = Erased { erased: count.into_inner(), statuses: new_statuses(batch) };
        for (share, data) in shares.iter().zip(&answers) {
            share.tell(data.first(), &mut erased.statuses)?;
        }
        Ok(erased)
    }

    pub(crate) fn push_as(&self, batch: &Batch, gradients: &[f32], stream: Option<&Stream>) -> Result<Pushed> {
        batch.check(&self.partition)?;
        if gradients.len() != batch.n_rows() * self.dim {
            let text = format!("{} gradients for {} rows of {}", gradients.len(), batch.n_rows(), self.dim);
            return Err(Error::new(code::INVALID, text));
        }
        let _one = self.client.pushing.lock().unwrap();
        let kind = if stream.is_some() { Kind::NumberedPush } else { Kind::PlainPush };
        let (shares, answers) = self.placed(batch, kind, stream, |shard, share| {
            let (part, mut bins) = self.part(batch, share);
            let mut grads = Vec::new();
            for r in &share.rows {
                batch.wire.write(&gradients[r * self.dim..(r + 1) * self.dim], &mut grads);
            }
            bins.push(&grads);
            let order = self.client.order.load(Ordering::Relaxed);
            shard.call("push", &parts(share, part, &numbered(order, stream)), &bins)
        })?;
        let mut pushed = Pushed { statuses: new_statuses(batch), ..Pushed::default() };
        for (share, (answer, data)) in shares.iter().zip(&answers) {
            if answer.get("again") == &Value::Bool(true) {
                return Ok(Pushed { again: true, ..Pushed::default() });
            }
            share.tell(data.first(), &mut pushed.statuses)?;
            pushed.count(first(answer)?);
        }
        Ok(pushed)
    }

    /// Whether rows are divided, and gradients with them.
    pub(crate) fn divides(&self, batch: &Batch) -> bool {
        batch.offsets.is_some() && !batch.sums && matches!(self.combiner.as_str(), "mean" | "sqrtn")
    }

    /// The map of a shard's part, and its bins but gradients.
    fn part<'s>(&self, batch: &Batch, share: &'s Share) -> (Value, Vec<&'s [u8]>) {
        let mut part = vec![("table", share.table.into()), ("keys", (share.at.len() as u64).into())];
        let mut bins: Vec<&[u8]> = vec![&share.keys];
        if batch.offsets.is_some() {
            part.push(("rows", (share.rows.len() as u64).into()));
            bins.push(&share.offsets);
        }
        if batch.slots.is_some() {
            part.push(("slots", true.into()));
            bins.push(&share.slots);
        }
        if batch.offsets.is_some() && share.is_weighted {
            part.push(("weights", true.into()));
            bins.push(&share.weights);
        }
        if batch.scores.is_some() {
            part.push(("scores", true.into()));
            bins.push(&share.scores);
        }
        if batch.wire.bytes() < 4 {
            part.push(("dtype", batch.wire.name().into()));
        }
        if let Some(lr) = batch.lr {
            part.push(("lr", f64::from(lr).into()));
        }
        let scale = self.divides(batch) && share.is_only;
        for (name, is) in [("status", batch.status), ("zero", batch.zero), ("scale", scale)] {
            if is {
                part.push((name, true.into()));
            }
        }
        (fields(&part), bins)
    }

    /// Puts the shards' rows together, in the order of the shards, and divides sums.
    fn add(&self, batch: &Batch, shares: &[Share], answers: &[Vec<Vec<u8>>]) -> Vec<f32> {
        let (dim, mut values) = (self.dim, vec![0.0; batch.n_rows() * self.dim]);
        let mut begun = vec![false; batch.n_rows()];
        for (share, data) in shares.iter().zip(answers) {
            let sums = batch.wire.read(&data[0]);
            for (&r, sum) in share.rows.iter().zip(sums.chunks(dim)) {
                for (value, &x) in values[r * dim..].iter_mut().zip(sum) {
                    *value = if begun[r] { *value + x } else { x };
                }
                begun[r] = true;
            }
        }
        if self.divides(batch) && shares.len() > 1 {
            for (r, row) in values.chunks_mut(dim).enumerate() {
                let by = batch.divisor(&self.combiner, r);
                row.iter_mut().for_each(|value| *value /= by);
            }
        }
        values
    }
}

impl Pushed {
    fn count(&mut self, part: &Value) {
        self.step = part.get("step").uint();
        self.inserted += part.get("inserted").uint();
        self.full += part.get("full").uint();
        self.filtered += part.get("filtered").uint();
        self.evicted += part.get("evicted").uint();
    }
}

/// The map of the answer's part.
fn first(answer: &Value) -> Result<&Value> {
    match answer.get("parts").list() {
        [part] => Ok(part),
        _ => Err(Error::new(code::PROTOCOL, "the answer has not one part")),
    }
}

/// What the messages of a push have besides their parts.
fn numbered(order: u64, stream: Option<&Stream>) -> Vec<(&'static str, Value)> {
    let mut more = vec![("order", order.into())];
    if let Some(stream) = stream {
        let mut writer = stream.fields();
        writer.push(("sequence", stream.next.into()));
        more.push(("writer", fields(&writer)));
    }
    more
}
