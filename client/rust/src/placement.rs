//! Which shard has which keys, and requests whose keys have moved.

use crate::batch::{Batch, Share};
use crate::value::Value;
use crate::wire::{code, Error, Result, Shard};
use crate::{all, Stream, Table};
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

/// The answers of the first `n` shards, which the later map still has, and what the failures of the others come to: those
/// without keys had nothing to do. A push with keys that may have been applied there stays as it is.
fn without_left<T>(mut answers: Vec<Result<T>>, keys: &[usize], n: usize, is_push: bool) -> Vec<Result<T>> {
    for (answer, &keys) in answers.split_off(n).into_iter().zip(&keys[n..]) {
        match answer {
            Err(e) if is_push && keys > 0 && e.code == code::CLOSED => answers.push(Err(e)),
            Err(_) if !is_push || keys > 0 => {
                answers.push(Err(Error::new(code::MOVED, "the shard has left the cluster")))
            }
            _ => (),
        }
    }
    answers
}

/// Whether one of them has failed, otherwise than by a refusal.
fn has_failed<T>(answers: &[Result<T>]) -> bool {
    answers.iter().any(|answer| answer.is_err() && !is_moved(answer))
}

impl Table<'_> {
    /// Sends each shard its share of the batch. Where shards have another map, it asks for that one, splits the whole
    /// batch again and sends it again, until the timeout of a call has passed. The stream of a push is opened on shards that
    /// were added.
    pub(crate) fn placed<T: Send>(
        &self,
        batch: &Batch,
        is_push: bool,
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
            let divided = match is_push && shards.len() > 1 && self.divides(batch) {
                true => Some(batch.divided(&self.combiner)),
                false => None,
            };
            if is_push {
                client.order.fetch_add(1, Ordering::Relaxed); // also of a push that was refused: servers have seen that one
            }
            let mut shares = batch.shares(&self.partition, divided.as_deref().or(batch.weights), placement, &ids);
            let mut answers = all(shards, |i, shard| send(shard, &shares[i]));
            if has_failed(&answers[1..]) && client.has_lost(&cluster) {
                let (n, keys) = (client.n_shards(), shares.iter().map(|share| share.at.len()).collect::<Vec<_>>());
                answers = without_left(answers, &keys, n, is_push);
                shares.truncate(n);
            }
            if !splits_again(&answers, is_push) || Instant::now() + pause > end {
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

    /// A push to a shard that has left may have been applied there, unless it had no keys for it, or was refused.
    #[test]
    fn shards_that_left_are_left_out() {
        let [fine, moved, closed, unreachable] = [Ok(()), Err(code::MOVED), Err(code::CLOSED), Err(code::UNREACHABLE)]
            .map(|a| a.map_err(|c| Error::new(c, "")));
        for (answers, keys, is_push, again, number) in [
            ([fine.clone(), closed.clone()], 0, true, false, None),
            ([moved.clone(), closed.clone()], 0, true, true, Some(code::MOVED)),
            ([fine.clone(), closed.clone()], 3, true, false, Some(code::CLOSED)),
            ([moved, unreachable], 3, true, true, Some(code::MOVED)),
            ([fine, closed], 3, false, true, Some(code::MOVED)),
        ] {
            let left = without_left(answers.to_vec(), &[2, keys], 1, is_push);
            assert_eq!(splits_again(&left, is_push), again, "{:?}", left);
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
}
