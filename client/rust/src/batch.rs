//! The keys of a request: which shard gets which, and what pooled rows are divided by.

use crate::half::Wire;
use crate::placement::Placement;
use crate::wire::{code, Error, Result};

/// The keys of a pull, push or erase. `Batch::of(&keys)` has only keys; set what else it has.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Stored keys; see `Table::key`.
    pub keys: &'a [u64],
    /// Row r pools the keys `offsets[r]` to `offsets[r + 1] - 1`. None: each key is a row.
    pub offsets: Option<&'a [u32]>,
    /// Of each row, in tables with partition "slot" and only there.
    pub slots: Option<&'a [u16]>,
    /// Of each key, with offsets only. None: 1.
    pub weights: Option<&'a [f32]>,
    /// Push to an evict_score table: of each key, finite, or -inf: none. None: no key has one.
    pub scores: Option<&'a [f32]>,
    pub wire: Wire,
    /// Ask for the status of each key.
    pub status: bool,
    /// Pull: keys without a row give zeros, and get none.
    pub zero: bool,
    /// Push: the learning rate of this step. None: the table's.
    pub lr: Option<f32>,
    /// Rows of mean and sqrtn tables are sums, and gradients are those of sums.
    pub sums: bool,
}

impl<'a> Batch<'a> {
    pub fn of(keys: &'a [u64]) -> Batch<'a> {
        let (status, zero, sums) = (false, false, false);
        let (offsets, slots, weights, scores, lr) = (None, None, None, None, None);
        Batch { keys, offsets, slots, weights, scores, wire: Wire::F32, status, zero, lr, sums }
    }

    pub fn n_rows(&self) -> usize {
        self.offsets.map_or(self.keys.len(), |offsets| offsets.len().saturating_sub(1))
    }

    fn span(&self, r: usize) -> std::ops::Range<usize> {
        self.offsets.map_or(r..r + 1, |offsets| offsets[r] as usize..offsets[r + 1] as usize)
    }

    fn slot(&self, r: usize) -> u16 {
        self.slots.map_or(0, |slots| slots[r])
    }

    /// Finds what would make shares go out of range. The server checks everything else.
    pub(crate) fn check(&self, partition: &str) -> Result<()> {
        let wrong = |text: String| Err(Error::new(code::INVALID, text));
        if let Some(offsets) = self.offsets {
            if offsets.last().map(|&last| last as usize) != Some(self.keys.len()) {
                return wrong(format!("the last offset is not the number of keys, {}", self.keys.len()));
            }
            if let Some(r) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
                return wrong(format!("offsets[{}] is {}, below offsets[{}]", r + 1, offsets[r + 1], r));
            }
        }
        let n_slots = self.slots.map_or(0, |slots| slots.len());
        if (self.slots.is_some() || partition == "slot") && n_slots != self.n_rows() {
            return wrong(format!("{} slots for {} rows", n_slots, self.n_rows()));
        }
        for (name, floats) in [("weights", self.weights), ("scores", self.scores)] {
            let n = floats.map_or(self.keys.len(), |floats| floats.len());
            if n != self.keys.len() {
                return wrong(format!("{} {} for {} keys", n, name, self.keys.len()));
            }
        }
        Ok(())
    }

    /// What row r is divided by.
    pub(crate) fn divisor(&self, combiner: &str, r: usize) -> f32 {
        let span = self.span(r);
        let sum = match self.weights {
            None => span.len() as f32,
            Some(weights) => weights[span].iter().fold(0.0, |sum, &w| sum + if combiner == "mean" { w } else { w * w }),
        };
        match combiner {
            "mean" | "sqrtn" if sum == 0.0 => 1.0,
            "mean" => sum,
            "sqrtn" => sum.sqrt(),
            _ => 1.0,
        }
    }

    /// The weights that make gradients of finished rows those of sums: weight / divisor.
    pub(crate) fn divided(&self, combiner: &str) -> Vec<f32> {
        let mut weights = self.weights.map_or_else(|| vec![1.0; self.keys.len()], |weights| weights.to_vec());
        for r in 0..self.n_rows() {
            let by = self.divisor(combiner, r);
            weights[self.span(r)].iter_mut().for_each(|w| *w /= by);
        }
        weights
    }

    /// Gives each key to its shard. A row has a share wherever it has keys; one without keys goes to a single shard.
    pub(crate) fn shares(&self, partition: &str, weights: Option<&[f32]>, p: &Placement, ids: &[u64]) -> Vec<Share> {
        let (placement, is_weighted) = (p.told, weights.is_some());
        let is_only = ids.len() == 1;
        let new = |&table| Share { table, is_only, placement, is_weighted, offsets: vec![0; 4], ..Share::default() };
        let mut shares: Vec<Share> = ids.iter().map(new).collect();
        for r in 0..self.n_rows() {
            if self.span(r).is_empty() {
                shares[p.shard_of(partition, 0, self.slot(r))].begin_row(self, r);
            }
            for k in self.span(r) {
                let share = &mut shares[p.shard_of(partition, self.keys[k], self.slot(r))];
                if share.rows.last() != Some(&r) {
                    share.begin_row(self, r);
                }
                share.add_key(self, k, weights);
            }
        }
        shares
    }
}

/// What one shard gets of a batch: bytes as they travel.
#[derive(Default)]
pub(crate) struct Share {
    pub keys: Vec<u8>,
    pub offsets: Vec<u8>,
    pub slots: Vec<u8>,
    pub weights: Vec<u8>,
    pub scores: Vec<u8>,
    pub is_weighted: bool,
    /// The table's id on the shard.
    pub table: u64,
    /// There is one shard.
    pub is_only: bool,
    /// Version of the map that they were split by. 0: the even one.
    pub placement: u64,
    /// Of the batch, in its order.
    pub rows: Vec<usize>,
    /// The place of each key in the batch.
    pub at: Vec<usize>,
}

impl Share {
    fn begin_row(&mut self, batch: &Batch, r: usize) {
        self.rows.push(r);
        self.offsets.extend((self.at.len() as u32).to_le_bytes());
        if let Some(slots) = batch.slots {
            self.slots.extend(slots[r].to_le_bytes());
        }
    }

    fn add_key(&mut self, batch: &Batch, k: usize, weights: Option<&[f32]>) {
        self.keys.extend(batch.keys[k].to_le_bytes());
        self.at.push(k);
        let end = self.offsets.len() - 4;
        self.offsets[end..].copy_from_slice(&(self.at.len() as u32).to_le_bytes());
        if let Some(weights) = weights {
            self.weights.extend(weights[k].to_le_bytes());
        }
        if let Some(scores) = batch.scores {
            self.scores.extend(scores[k].to_le_bytes());
        }
    }

    /// Copies the shard's statuses to where their keys stand.
    pub fn tell(&self, answer: Option<&Vec<u8>>, statuses: &mut [u8]) -> Result<()> {
        match answer {
            _ if statuses.is_empty() => Ok(()),
            Some(list) if list.len() == self.at.len() => {
                self.at.iter().zip(list).for_each(|(&k, &status)| statuses[k] = status);
                Ok(())
            }
            _ => Err(Error::new(code::PROTOCOL, "the answer has not the statuses asked for")),
        }
    }
}
