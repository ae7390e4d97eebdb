"""An archive goes on while servers are added, keys move, servers leave, and servers and archives are killed, also meanwhile: every
moment comes back, on any number of shards, also behind a new shard that no backup has yet.

A trainer pushes all the time, one push after the other, and a server of one shard takes the same ones: so what a moment brings back is the
tables of that server after some push. At moments while the trainer rests it is known which one; in the midst of a deed it is one of those
that were under way. EMBD_MOMENTS_DEEDS=n: how many deeds a history has; EMBD_MOMENTS_SEED=n;
EMBD_MOMENTS_SERVERS=n: how many servers it begins with, at least; EMBD_MOMENTS_SHARDS=n: shards of each."""
import contextlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import clusters
import embd
from clusters import Embd
from listed import Growing
from wire import Wire

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
DEEDS = int(os.environ.get("EMBD_MOMENTS_DEEDS", "8"))
SEED = int(os.environ.get("EMBD_MOMENTS_SEED", "1"))
NAMES, SERVERS = "abcd", int(os.environ.get("EMBD_MOMENTS_SERVERS", "2"))
SHARDS = int(os.environ.get("EMBD_MOMENTS_SHARDS", "1"))
DIM, KEYS = 2, 400
TABLES = {
    "plain": {"optimizer": embd.Optimizer("adagrad", lr=0.1), "durability": "buffered"},
    "modulo": {"partition": "modulo", "optimizer": embd.Optimizer("adam", lr=0.1), "durability": "buffered"},
    "slot": {"partition": "slot", "slots": 3, "optimizer": embd.Optimizer("sgd", lr=0.1), "durability": "buffered"},
    "rare": {"optimizer": embd.Optimizer("sgd", lr=0.1), "admit_after": 2, "durability": "durable"},
}
BUSY = ("try again", "wait for it", "another")
PARTED = ("keys moved at this moment", "took the places of others at this moment")


def until(what, told=lambda: "it takes too long"):
    end = time.monotonic() + 90
    while not what():
        assert time.monotonic() < end, told()
        time.sleep(0.02)


def embctl(address, *words, timeout=120):
    return subprocess.run([EMBCTL, "--servers", address, *map(str, words)], capture_output=True, text=True, timeout=timeout, check=False)


def digests(client):
    return {d.name: (d.rows, d.candidates, d.step, d.digest) for d in client.digest()}


def do(tables, seed, number):
    """The push of that number."""
    rng = np.random.default_rng([seed, number])
    keys = rng.integers(0, KEYS, 24, dtype=np.uint64)
    tables[number % len(tables)].push(keys, rng.standard_normal((24, DIM)).astype(np.float32))


class Trainer(threading.Thread):
    """Notes when each push began."""

    def __init__(self, address, seed):
        super().__init__(daemon=True)
        self.client, self.seed = embd.connect(address, deadline=90), seed
        self.tables = [self.client.table(name) for name in TABLES]
        self.begun, self.wrong, self.rest, self.stops = [], None, threading.Lock(), threading.Event()

    def run(self):
        try:
            while not self.stops.is_set():
                with self.rest:
                    self.begun.append(time.time())
                    do(self.tables, self.seed, len(self.begun) - 1)
                time.sleep(0.004)
        except Exception as error:  # pylint: disable=broad-except # told by the test
            self.wrong = error

    def until(self, n):
        n += len(self.begun)
        until(lambda: len(self.begun) >= n or self.wrong is not None)
        if self.wrong is not None:
            raise self.wrong

    def end(self):
        self.stops.set()
        self.join(100)
        assert not self.is_alive(), "the trainer hangs"
        self.client.close()


class Archive:
    def __init__(self, address, place):
        self.command = [EMBCTL, "--servers", address, "backup", "--to", place, "--every", "3600", "--records", "0.2"]
        self.log = place + ".log"
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Moment:
    def __init__(self, when, positions, n):
        self.when, self.positions, self.n = when, positions, n

    def at(self, by_time):
        return f"@{self.when:.3f}" if by_time else "records:" + ",".join(map(str, self.positions))


class History:
    def __init__(self, cluster, place, seed):
        self.cluster, self.place, self.seed, self.rng = cluster, place, seed, random.Random(seed)
        self.members, self.moments, self.spans, self.deeds = list(NAMES[:SERVERS]), [], [], []
        self.address, self.last, self.is_fired_at = cluster.address("a"), None, False
        self.archive = self.trainer = None

    def begin(self):
        with embd.connect(self.address, deadline=60) as client:
            for name, fields in TABLES.items():
                client.create_table(name, DIM, seed=5, **fields)
        self.archive = Archive(self.address, self.place)
        until(lambda: "backup.json" in [f for _, _, files in os.walk(self.place) for f in files])
        self.trainer = Trainer(self.address, self.seed)

    def shards(self):
        return SHARDS * len(self.members)

    def count(self):
        """Shards; 0: the server is away."""
        with contextlib.suppress(embd.Error), embd.connect(self.address, deadline=60) as client:
            return len(client.vshards())
        return 0

    def patient(self, *words, n=None):
        """Again while rows that left are removed, a snapshot is made, or a server has died. `n`: how many shards there are then."""
        end = time.monotonic() + 90
        while (ran := embctl(self.address, *words)).returncode != 0 and (n is None or self.count() != n):
            is_busy = ran.returncode == 5 and any(text in ran.stderr for text in BUSY)
            assert (is_busy or self.is_fired_at) and time.monotonic() < end, (words, ran.stderr)
            time.sleep(0.05)

    # What is done to the cluster.

    @contextlib.contextmanager
    def fire(self, names):
        """One of the servers may die meanwhile."""
        self.is_fired_at, delay, name = self.rng.random() < 0.6, self.rng.random() * 0.3, self.rng.choice(names)
        killer = threading.Thread(target=lambda: (time.sleep(delay), self.kill_one(name)))
        if self.is_fired_at:
            killer.start()
        try:
            yield
        finally:  # before the servers that run are ended
            if self.is_fired_at:
                killer.join()
        if self.is_fired_at:
            self.await_all()
        self.is_fired_at = False

    def kill_one(self, name):
        self.cluster.kill(name)
        self.cluster.start(name, waits=False)

    def await_all(self):
        ran = embctl(self.address, "wait")
        assert ran.returncode == 0, ran.stderr

    def add(self):
        name, n = NAMES[len(self.members)], self.shards() + SHARDS
        shutil.rmtree(self.cluster.path(name), ignore_errors=True)
        self.cluster.join(name)
        with self.fire(self.members):
            self.patient("shard", "add", self.cluster.address(name), n=n)
        self.members.append(name)

    def move(self):
        weights = [self.rng.randint(0, 3) for _ in range(self.shards())]
        weights[self.rng.randrange(len(weights))] += 1
        with self.fire(self.members):
            self.patient("rebalance", "--weights", ",".join(map(str, weights)))

    def retire(self):
        left = self.shards() - SHARDS
        self.patient("rebalance", "--weights", ",".join(["1"] * left + ["0"] * SHARDS))
        with self.fire(self.members[:-1]):
            self.patient("shard", "retire", left, n=left)
        self.cluster.kill(self.members.pop())

    def kill(self):
        self.kill_one(self.rng.choice(self.members))
        self.await_all()

    def archive_dies(self):
        self.archive.kill()
        self.trainer.until(3)
        self.archive.start()

    def backup(self):
        self.patient("backup", "--to", self.place)

    def next_deed(self):
        """One of those that were done least."""
        able = [self.move, self.kill, self.archive_dies, self.backup]
        able += [self.add] if len(self.members) < len(NAMES) else []
        able += [self.retire] if len(self.members) > SERVERS else []
        done = [self.deeds.count(deed.__name__) for deed in able]
        return self.rng.choice([deed for deed, n in zip(able, done) if n == min(done)])

    # Moments.

    def positions(self):
        found = []
        for shard in range(self.shards()):
            with Wire(self.cluster.path(f"admin/{self.cluster.port + shard}.sock"), timeout=60) as wire:
                ask = {"name": "test", "cluster": wire.call("cluster", {})[0]["name"], "position": 2**40, "reads": True, "wait_ms": 0}
                found.append(wire.call("follow", ask)[0]["end"])
        return found

    def archived(self, shard):
        """How many records of the shard the last file of the archive goes to."""
        folder = os.path.join(self.place, "journal.records", str(shard))
        names = sorted(name for name in (os.listdir(folder) if os.path.isdir(folder) else []) if "." not in name)
        if not names:
            return 0
        with open(os.path.join(folder, names[-1]), "rb") as file:
            return struct.unpack_from("<Q", file.read(72), 64)[0]

    def note(self):
        """A moment at which the trainer rests, once the archive has all records."""
        with self.trainer.rest:
            positions = self.positions()
            until(lambda: [self.archived(shard) for shard in range(len(positions))] == positions, lambda: (positions, self.told()))
            self.moments.append(Moment(time.time(), positions, len(self.trainer.begun)))
            time.sleep(0.01)

    def run(self, deeds):
        self.trainer.start()
        self.trainer.until(5)
        self.note()
        for number in range(deeds):
            deed = self.add if number == 0 else self.next_deed()
            began = time.time()
            deed()
            self.deeds.append(deed.__name__)
            self.note()
            self.spans.append((began, time.time()))
            self.trainer.until(5)
            self.note()
        self.trainer.end()
        if self.trainer.wrong is not None:
            raise self.trainer.wrong

    def kill_all(self):
        if self.archive is not None:
            self.archive.kill()
        if self.trainer is not None:
            self.trainer.stops.set()

    # The oracle.

    def model(self):
        """What the tables are before the first push, and after each."""
        with Embd() as server, embd.connect(server.addresses[0], deadline=60) as client:
            tables = [client.create_table(name, DIM, seed=5, **{**fields, "durability": "snapshot"}) for name, fields in TABLES.items()]
            self.found = [digests(client)]
            for number in range(len(self.trainer.begun)):
                do(tables, self.seed, number)
                self.found.append(digests(client))

    def restored(self, at, shards):
        """The tables of that moment; a sentence: it is refused."""
        with Embd(shards=shards) as other:
            ran = embctl(other.addresses[0], "restore", "--from", self.place, "--at", at, "-o", "json")
            if ran.returncode != 0:
                return ran.stderr
            self.last = json.loads(ran.stdout)["restore"][0]
            with embd.connect(other.addresses[0], deadline=60) as client:
                return digests(client)

    def told(self):
        with open(self.archive.log, encoding="utf-8") as log:
            said = log.read()
        there = [self.archived(shard) for shard in range(self.shards())]
        return f"seed {self.seed}, deeds {self.deeds}, moments {[(m.n, m.positions) for m in self.moments]}, there {there}, restored {self.last}; {said}"


class Moments(unittest.TestCase):
    def begin(self, seed):
        cluster = Growing(NAMES, SERVERS, shards=SHARDS)
        self.addCleanup(cluster.__exit__, None, None, None)
        for name in cluster.names:
            cluster.start(name, waits=False)
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        history = History(cluster, cluster.path("place"), seed)
        self.addCleanup(history.kill_all)
        history.begin()
        return history

    def test_every_moment_of_a_random_history_comes_back(self):
        history = self.begin(SEED)
        history.run(DEEDS)
        history.kill_all()
        history.model()
        rng = random.Random(SEED)
        spans = json.loads(embctl("", "backup", "list", "--to", history.place, "-o", "json").stdout)["moments"]
        self.assertEqual(len(spans), 1, (spans, history.told()))
        self.assertEqual(embctl("", "verify", history.place).returncode, 0)
        for number, moment in enumerate(history.moments):
            at = moment.at(number % 2 == 0)
            found = history.restored(at, 1 + number % 3)
            self.assertEqual(found, history.found[moment.n], f"moment {number} ({at}): {found}; {history.told()}")
        for began, ended in history.spans:
            when = rng.uniform(began, ended)
            found = history.restored(f"@{when:.3f}", rng.randint(1, 3))
            if isinstance(found, str):
                self.assertTrue(any(text in found for text in PARTED), (found, history.told()))
                continue
            least = max((m.n for m in history.moments if m.when <= when), default=0)
            most = sum(t <= when for t in history.trainer.begun)
            self.assertIn(found, history.found[least:most + 1], (when, least, most, history.told()))


if __name__ == "__main__":
    clusters.main()
