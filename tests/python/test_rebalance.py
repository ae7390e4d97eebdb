"""Keys move between shards while trainers pull and push: no push is lost or applied twice, no call fails, the bits are those of one
shard, and whoever dies, each key is where it was or where it was to go. EMBD_MOVE_KILLS=n: how many servers die; 6 without it."""
import json
import os
import re
import random
import subprocess
import threading
import time
import unittest

import numpy as np

import clusters
import embd
from clusters import Embd
from listed import Listed

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
KILLS = int(os.environ.get("EMBD_MOVE_KILLS", "6"))
KEYS, DIM = 6000, 4
TABLES = {
    "plain": {"optimizer": embd.Optimizer("adagrad", lr=0.1)},
    "modulo": {"partition": "modulo", "optimizer": embd.Optimizer("adam", lr=0.1)},
    "slot": {"partition": "slot", "slots": 7, "optimizer": embd.Optimizer("ftrl", lr=0.1)},
    "half": {"dtype": "f16", "optimizer": embd.Optimizer("rmsprop", lr=0.1)},
    "lazy": {"optimizer": embd.Optimizer("adam", lr=0.1, update="lazy_global")},
    "whole": {"optimizer": embd.Optimizer("momentum", lr=0.1, update="global")},
    "rare": {"optimizer": embd.Optimizer("sgd", lr=0.1), "admit_after": 3},
}


def embctl(address, *words, timeout=120):
    return subprocess.run([EMBCTL, "--servers", address, *words], capture_output=True, text=True, timeout=timeout, check=False)


def is_busy(ran):
    """Rows that left are being removed, a table's first base is written, or a snapshot is made."""
    return ran.returncode == 5 and ("try again" in ran.stderr or "wait for it" in ran.stderr)


def rebalance(address, *words):
    """Again while it is busy."""
    end = time.monotonic() + 60
    while is_busy(ran := embctl(address, "rebalance", *words)) and time.monotonic() < end:
        time.sleep(0.05)
    assert ran.returncode == 0, ran.stderr


def digests(address):
    """Of each table: what no number or map of shards changes."""
    ran = embctl(address, "digest", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)["tables"]


class Trainer(threading.Thread):
    """Adds 1 to keys of its own again and again, and compares what it pulls with what it counted."""

    def __init__(self, address, name, first):
        super().__init__(daemon=True)
        self.client = embd.connect(address, deadline=90)
        self.table = self.client.table(name)
        self.keys = np.arange(first, first + KEYS, dtype=np.uint64)
        self.counts, self.n, self.wrong, self.stops = np.zeros(KEYS), 0, None, threading.Event()

    def step(self, rng):
        at = rng.choice(KEYS, 200, replace=False)
        self.table.push(self.keys[at], -np.ones((200, DIM), np.float32))
        self.counts[at] += 1
        self.n += 1
        if self.n % 7 == 0:
            np.testing.assert_array_equal(self.table.pull(self.keys[at])[:, 0], self.counts[at])

    def run(self):
        rng = np.random.default_rng(int(self.keys[0]))
        try:
            while not self.stops.is_set():
                self.step(rng)
        except Exception as error:  # pylint: disable=broad-except # told by the test
            self.wrong = error

    def until(self, n):
        """Until it has made so many steps more."""
        n += self.n
        end = time.monotonic() + 90
        while self.n < n and self.wrong is None:
            assert time.monotonic() < end, "the trainer stands still"
            time.sleep(0.005)
        return self

    def end(self):
        self.stops.set()
        self.join(100)
        assert not self.is_alive(), "the trainer hangs"
        if self.wrong is not None:
            raise self.wrong

    def check(self, client):
        np.testing.assert_array_equal(client.table(self.table.name).pull(self.keys)[:, 0], self.counts)


class Rebalance(unittest.TestCase):
    names = "abc"

    def begin(self, names=None, **more):
        cluster = Listed(names or self.names, **more)
        self.addCleanup(cluster.__exit__, None, None, None)
        for name in cluster.names:
            cluster.start(name, waits=False)
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        return cluster

    def connect(self, cluster, name="a"):
        client = embd.connect(cluster.address(name), deadline=60)
        self.addCleanup(client.close)
        return client

    def move(self, cluster, weights, *flags, code=0):
        ran = embctl(cluster.address("a"), "rebalance", "--weights", ",".join(map(str, weights)), *flags, "-o", "json")
        self.assertEqual(ran.returncode, code, ran.stderr)
        return json.loads(ran.stdout)["rebalance"][0] if code == 0 else ran.stderr

    def rows(self, client, name):
        return [shard.tables[name]["rows"] for shard in client.stats()]


class Moves(Rebalance):
    def counted(self, client, name="t"):
        return client.create_table(name, DIM, initializer=embd.Initializer("constant", 0.0),
                                   optimizer=embd.Optimizer("sgd", lr=1.0))

    def test_trainers_go_on_while_keys_move_and_all_is_there_after_a_restart(self):
        cluster = self.begin()
        client = self.connect(cluster)
        self.counted(client)
        trainers = [Trainer(cluster.address(name), "t", i * KEYS) for i, name in enumerate("ab")]
        for trainer in trainers:
            trainer.start()
        shares = [(1, 1, 2), (0, 1, 1), (5, 0, 1), (1, 1, 1)]
        for weights in shares:
            for trainer in trainers:
                trainer.until(20)
            self.move(cluster, weights)
        for trainer in trainers:
            trainer.until(20).end()
        for trainer in trainers:
            trainer.check(client)
        present = sum(int((t.counts > 0).sum()) for t in trainers)
        self.assertEqual(sum(self.rows(client, "t")), present)  # nothing is left where it was
        self.move(cluster, (0, 3, 1))
        self.assertEqual(self.rows(client, "t")[0], 0)
        before = digests(cluster.address("a"))
        for name in cluster.names:
            cluster.kill(name)
        for name in cluster.names:
            cluster.start(name, waits=False)
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        again = self.connect(cluster, "b")
        self.assertEqual(self.rows(again, "t")[0], 0)
        for trainer in trainers:
            trainer.check(again)
        self.assertEqual(digests(cluster.address("a")), before)

    def test_tables_of_every_kind_have_the_bits_of_one_shard(self):
        """Also of pushes that came while their keys moved."""
        cluster = self.begin("ab")
        with Embd() as model:
            clients = [embd.connect(address, deadline=60) for address in (cluster.address("a"), model.addresses[0])]
            for client in clients:
                self.addCleanup(client.close)
                for name, fields in TABLES.items():
                    client.create_table(name, DIM, seed=5, **fields)
            steps, moved = [], threading.Event()
            history = threading.Thread(target=self.train, args=(clients[0], steps, moved))
            history.start()
            rng = random.Random(3)
            for _ in range(6):
                self.move(cluster, rng.choice([(1, 3), (1, 1), (3, 1), (0, 1), (1, 0)]))
            moved.set()
            history.join(100)
            self.assertFalse(history.is_alive())
            for seed in steps:
                self.push(clients[1], seed)
            self.assertGreater(len(steps), 5)
            self.assertEqual(digests(cluster.address("a")), digests(model.addresses[0]))

    def push(self, client, seed):
        rng = np.random.default_rng(seed)
        for name in TABLES:
            keys = rng.integers(0, 700, 300, dtype=np.uint64)
            client.table(name).push(keys, rng.standard_normal((300, DIM)).astype(np.float32))
            if seed % 5 == 4:
                client.table(name).erase(keys[:14])

    def train(self, client, steps, moved):
        while not moved.is_set() or len(steps) < 6:
            self.push(client, len(steps))
            steps.append(len(steps))

    def test_workers_in_step_make_one_step_a_clock(self):
        cluster = self.begin("ab")
        client = self.connect(cluster)
        self.counted(client)
        workers, wrong = 3, []
        keys = np.arange(500, dtype=np.uint64)

        def work(rank):
            try:
                with embd.connect(cluster.address("a"), deadline=90) as own, \
                        embd.Clock(own, "job", worker=rank, workers=workers, lease=60) as clock:
                    table = own.table("t")
                    for _ in clock.steps(60):
                        table.push(keys, -np.ones((500, DIM), np.float32), round=clock)
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(workers)]
        for thread in threads:
            thread.start()
        moves = 0
        while any(thread.is_alive() for thread in threads) and moves < 12:
            ran = embctl(cluster.address("a"), "rebalance", "--weights", ("1,3", "3,1")[moves % 2])
            self.assertIn(ran.returncode, (0, 5), ran.stderr)
            moves += 1
        for thread in threads:
            thread.join(100)
        self.assertEqual(wrong, [])
        self.assertEqual({float(v) for v in client.table("t").pull(keys).ravel()}, {60.0})

    def test_what_cannot_move_is_named_and_nothing_changes(self):
        cluster = self.begin("ab")
        client = self.connect(cluster)
        self.counted(client).push(np.arange(50), -np.ones((50, DIM), np.float32))
        before = digests(cluster.address("a")), self.rows(client, "t")
        for words, code, says in ((("--weights", "1"), 2, "one number for each of the 2 shards"),
                                  (("--weights", "1,x"), 2, "numbers up to"), (("--weights", "0,0"), None, "no shard"),
                                  (("--drain", "2"), 2, "no such shard"), (("--drain", "0", "--weights", "1,1"), 2, "goes with neither"),
                                  (("--by", "rows", "--weights", "1,1"), 2, "goes with neither"), (("--by", "x"), 2, "neither rows nor load")):
            ran = embctl(cluster.address("a"), "rebalance", *words)
            self.assertNotEqual(ran.returncode, 0)
            self.assertIn(says, ran.stderr)
            if code is not None:
                self.assertEqual(ran.returncode, code, ran.stderr)
        plan = json.loads(embctl(cluster.address("a"), "rebalance", "--weights", "1,3", "--plan", "-o", "json").stdout)["plan"][0]
        self.assertEqual((plan["placement"], plan["vshards"]), (2, 256))
        client.create_table("loose", DIM, durability="snapshot")
        self.assertIn("embctl table set loose durability=durable", self.move(cluster, (1, 3), code=5))
        client.drop_table("loose")
        with Embd() as alone:
            ran = embctl(alone.addresses[0], "rebalance", "-o", "json")
            self.assertEqual((ran.returncode, json.loads(ran.stdout)["rebalance"][0]["vshards"]), (0, 0))
        self.assertEqual((digests(cluster.address("a")), self.rows(client, "t")), before)

    def test_servers_without_a_data_directory_move_keys_in_memory(self):
        with Embd(shards=3) as server, embd.connect(server.addresses[0], deadline=60) as client:
            self.counted(client).push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
            client.rebalance([0, 1, 1])
            self.assertEqual((client.vshards()[0], self.rows(client, "t")[0]), (0, 0))
            client.table("t").push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
            self.assertEqual({float(v) for v in client.table("t").pull(np.arange(KEYS)).ravel()}, {2.0})

    def test_shares_follow_rows_and_load(self):
        with Embd(shards=3) as server, embd.connect(server.addresses[0], deadline=60) as client:
            def by(what, *flags, code=0):
                ran = embctl(server.addresses[0], "rebalance", "--by", what, *flags)
                self.assertEqual(ran.returncode, code, ran.stderr)
                client.vshards()
                return ran.stderr

            self.assertIn("no shard has rows", by("rows", code=2))
            self.assertIn("no key was pulled", by("load", "--seconds", "1", code=2))
            table = self.counted(client)
            table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
            client.rebalance([1, 6, 0])
            by("rows")
            for rows in self.rows(client, "t"):
                self.assertAlmostEqual(rows, KEYS / 3, delta=KEYS / 12)
            by("rows", "--drain", "1")
            self.assertEqual(client.vshards()[1], 0)
            self.assertEqual(sum(self.rows(client, "t")), KEYS)
            self.counted(client, "hot").push([7], np.zeros((1, DIM)))
            hot = self.rows(client, "hot").index(1)
            before, stop = client.vshards(), threading.Event()

            def pull():
                with embd.connect(server.addresses[0], deadline=60) as other:
                    while not stop.is_set():
                        other.table("t").pull([7] * 30 + list(range(100, 120)))

            thread = threading.Thread(target=pull)
            thread.start()
            by("load", "--seconds", "1")
            stop.set()
            thread.join()
            after = client.vshards()
            self.assertLess(after[hot], before[hot], (before, after))
            self.assertGreater(after[1], 0)  # the drained one is as the others again
            self.assertEqual({float(v) for v in table.pull(np.arange(KEYS)).ravel()}, {1.0})

    def test_snapshots_and_moves_follow_each_other(self):
        """And a snapshot of a map is loaded into a cluster of another one."""
        cluster = self.begin("ab")
        client = self.connect(cluster)
        table = self.counted(client)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.move(cluster, (1, 3))
        before = digests(cluster.address("a"))
        dump = cluster.path("dump")
        self.assertEqual(embctl(cluster.address("a"), "snapshot", "moved").returncode, 0)
        self.assertEqual(embctl(cluster.address("a"), "dump", "--all", dump).returncode, 0)
        self.assertEqual(embctl(cluster.address("a"), "verify", dump).returncode, 0)
        self.move(cluster, (3, 1))
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        for more in ((), ("--replace",)):  # into others, and back into this one, whose map is another one now
            with Embd(shards=3) as other:
                address = cluster.address("a") if more else other.addresses[0]
                ran = embctl(address, "load", dump, *more)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                self.assertEqual(digests(address), before)
        self.move(cluster, (1, 1))
        self.assertEqual(digests(cluster.address("a")), before)

    def test_an_increment_is_upon_no_snapshot_of_an_earlier_map(self):
        """In it, keys that moved would be gone. A backup takes all rows then; the next increment is one again."""
        cluster = self.begin("ab")
        client = self.connect(cluster)
        table, place = self.counted(client), cluster.path("backups")
        os.mkdir(place)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.assertEqual(embctl(cluster.address("a"), "snapshot", "before").returncode, 0)
        self.backup(cluster, place, 0)
        self.move(cluster, (1, 3))
        ran = embctl(cluster.address("a"), "snapshot", "upon", "--incremental", "before")
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("make a snapshot of all rows", ran.stderr)
        self.backup(cluster, place, KEYS)
        table.push(np.arange(9), -np.ones((9, DIM), np.float32))
        self.backup(cluster, place, 9)
        before = digests(cluster.address("a"))
        with Embd(shards=3) as other:
            ran = embctl(other.addresses[0], "restore", "--from", place)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual(digests(other.addresses[0]), before)

    def check_looked(self, cluster, givers):
        """Behind a move those that lost keys looked for rows that left, and no other shard read anything."""
        for shard, name in enumerate(cluster.names):
            looked = int(re.findall(r"moved_rows_removed shard=\d+ keys=\d+ of=(\d+)", cluster.running[name].log())[-1])
            self.assertTrue(looked > 0 if shard in givers else looked == 0, f"shard {shard} looked at {looked} keys, {givers} gave")

    def test_named_vshards_go_to_a_shard_and_all_others_stay(self):
        cluster = self.begin()
        client = self.connect(cluster)
        trainer = Trainer(cluster.address("b"), self.counted(client).name, 0)
        trainer.start()
        trainer.until(20)
        wanted = client.vshard_shards()
        for first, last, shard in ((0, 0, 2), (100, 699, 0), (1020, 1023, 1), (0, 1023, 2), (341, 682, 1)):
            ran = embctl(cluster.address("a"), "shard", "move", "--vshards", f"{first}-{last}", "--to", str(shard), "-o", "json")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            moved = sum(s != shard for s in wanted[first:last + 1])
            self.check_looked(cluster, set(wanted[first:last + 1]) - {shard})
            self.assertEqual(json.loads(ran.stdout)["rebalance"][0]["vshards"], moved)
            wanted[first:last + 1] = [shard] * (last + 1 - first)
            self.assertEqual(client.vshard_shards(), wanted)
        self.assertEqual(client.move_vshards(3, 2, 0, plan=True).vshards, 2)
        self.assertEqual(client.vshard_shards(), wanted)
        self.assertEqual(client.move_vshards(3, 2, 2).vshards, 0)
        ran = embctl(cluster.address("a"), "shard", "vshards", "-o", "json")
        self.assertEqual([tuple(run.values()) for run in json.loads(ran.stdout)["vshards"]], [(0, 340, 2), (341, 682, 1), (683, 1023, 2)])
        trainer.until(20).end()
        trainer.check(client)
        self.assertEqual(sum(self.rows(client, "t")), int((trainer.counts > 0).sum()))
        self.assertEqual(self.rows(client, "t")[0], 0)
        for words, code, says in ((("--vshards", "5-4", "--to", "1"), 2, "FIRST-LAST"), (("--vshards", "1024", "--to", "1"), 2, "0 to 1023"),
                                  (("--vshards", "-1", "--to", "1"), 2, "FIRST-LAST"), (("--vshards", "5"), 2, "are needed"),
                                  (("--vshards", "5", "--to", "3"), 5, "has shards 0 to 2")):
            ran = embctl(cluster.address("a"), "shard", "move", *words)
            self.assertEqual(ran.returncode, code, ran.stderr)
            self.assertIn(says, ran.stderr)
        for first, n in ((1023, 2), (1024, 1)):
            with self.assertRaisesRegex(embd.InvalidError, "there are vshards 0 to 1023"):
                client.move_vshards(first, n, 0)
        self.assertEqual(client.vshard_shards(), wanted)

    def backup(self, cluster, place, rows):
        """An increment, or a base where none can be made; `rows` are in it."""
        ran = embctl(cluster.address("a"), "backup", "--to", place, "--incremental", "-o", "json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        if rows:
            self.assertEqual(json.loads(ran.stdout)["backup"][0]["rows"], rows)

    def test_subscribers_begin_anew_and_end_with_what_there_is(self):
        cluster = self.begin("ab")
        client, own = self.connect(cluster), self.connect(cluster, "b")
        table = self.counted(client)
        table.push(np.arange(KEYS, dtype=np.uint64), -np.ones((KEYS, DIM), np.float32))
        copy, rounds = {}, embd.follow(own, "t", interval=0)

        def take():
            round_ = next(rounds)
            if round_.all:
                copy.clear()
            for key in round_.gone:
                copy.pop(int(key), None)
            copy.update((int(key), row[0]) for key, row in zip(round_.keys, round_.rows))
            return round_.all
        take()
        for weights in ((1, 3), (3, 1), (0, 1)):
            self.move(cluster, weights)
            at = np.arange(0, KEYS, 3, dtype=np.uint64)
            table.push(at, -np.ones((len(at), DIM), np.float32))
            table.erase(np.arange(weights[0], KEYS, 50, dtype=np.uint64))
            while not take():
                pass
            take()
            keys = np.fromiter(sorted(copy), np.uint64, len(copy))
            self.assertEqual(len(keys), sum(self.rows(client, "t")))
            np.testing.assert_array_equal(table.pull(keys)[:, 0], [copy[int(key)] for key in keys])
        rounds.close()


class Kills(Moves):
    """The classes' other tests run once, above."""

    def test_a_server_that_stands_still_while_keys_move_costs_waiting_alone(self):
        """For less than a hold lasts, and for longer: then the move fails, or shard 0 has decided it."""
        cluster = self.begin("ab")
        client = self.connect(cluster)
        self.counted(client)
        trainer = Trainer(cluster.address("b"), "t", 0)
        trainer.start()
        rng = random.Random(int(os.environ.get("EMBD_MOVE_SEED", "12")))
        for i in range(int(os.environ.get("EMBD_MOVE_PAUSES", "3"))):
            trainer.until(10)
            with subprocess.Popen([EMBCTL, "--servers", cluster.address("a"), "rebalance", "--weights", ("1,3", "3,1")[i % 2]],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as mover:
                time.sleep(rng.uniform(0, 0.12))
                server = cluster.running[rng.choice("ab")]
                server.pause()
                time.sleep((0.3, 6.5)[i % 2])
                server.go_on()
                _, why = mover.communicate(timeout=90)
            versions = {embd_version(cluster, name) for name in "ab"}
            self.assertEqual(len(versions), 1, (why, versions))
        trainer.until(10).end()
        trainer.check(client)
        self.until_swept(cluster)
        self.assertEqual(sum(self.rows(client, "t")), int((trainer.counts > 0).sum()))

    def test_whoever_dies_while_keys_move_no_push_is_lost(self):
        cluster = self.begin("ab")
        client = self.connect(cluster)
        self.counted(client)
        trainer = Trainer(cluster.address("b"), "t", 0)
        trainer.start()
        rng = random.Random(int(os.environ.get("EMBD_MOVE_SEED", "11")))
        outcomes = []
        for kill in range(KILLS):
            trainer.until(10)
            weights = ("1,3", "3,1")[kill % 2]
            with subprocess.Popen([EMBCTL, "--servers", cluster.address("a"), "rebalance", "--weights", weights],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as mover:
                time.sleep(rng.uniform(0, 0.15))
                dies = rng.choice("ab")
                cluster.kill(dies)
                time.sleep(rng.uniform(0, 0.2))
                cluster.start(dies, waits=False)
                _, why = mover.communicate(timeout=90)
                outcomes.append((dies, mover.returncode, why.strip()))
            self.assertEqual(embctl(cluster.address("a"), "wait", timeout=90).returncode, 0, outcomes)
            versions = {embd_version(cluster, name) for name in "ab"}
            self.assertEqual(len(versions), 1, (outcomes, versions))
            trainer.until(10)
        trainer.end()
        trainer.check(self.connect(cluster))
        self.until_swept(cluster)
        self.assertEqual(sum(self.rows(client, "t")), int((trainer.counts > 0).sum()), outcomes)

    def until_swept(self, cluster):
        end = time.monotonic() + 60
        while embctl(cluster.address("a"), "digest").returncode != 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)


def embd_version(cluster, name):
    """Of the map that a server has."""
    with embd.connect(cluster.address(name), deadline=60) as client:
        return tuple(client.vshards())


for inherited in [name for name in dir(Moves) if name.startswith("test_")]:
    setattr(Kills, inherited, None)

if __name__ == "__main__":
    clusters.main()
