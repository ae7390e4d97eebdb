"""Servers without keys leave a cluster while trainers pull and push: no call fails, no push is lost or applied twice, nobody dials them
any more, and whoever dies, all servers count without them or none does. EMBD_GROWTH_KILLS=n: how many servers die; 6 without it."""
import json
import os
import random
import shutil
import socket
import subprocess
import threading
import time
import unittest

import numpy as np

import clusters
import embd
from test_growth import KILLS, Growth
from test_rebalance import DIM, EMBCTL, KEYS, TABLES, Trainer, digests, embctl, is_busy


class Retiring(Growth):
    def drain(self, cluster, shard):
        self.move(cluster, "--drain", str(shard))

    def retire(self, cluster, shard, code=0):
        """Again while it is busy."""
        end = time.monotonic() + 60
        while True:
            ran = embctl(cluster.address("a"), "shard", "retire", str(shard), "-o", "json")
            if not is_busy(ran):
                break
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.assertEqual(ran.returncode, code, ran.stderr)
        return json.loads(ran.stdout)["retired"][0] if code == 0 else ran.stderr

    def leave(self, cluster, shard, name):
        """The last server has gone for good."""
        self.drain(cluster, shard)
        told = self.retire(cluster, shard)
        cluster.kill(name)
        return told

    def refused(self, cluster, name, *flags):
        """Why the server does not start."""
        ran = subprocess.run([os.path.join(os.environ["EMBD_BIN"], "embd"), "--config", cluster.path("embd.yaml"), "--server", name,
                              "--admin-dir", cluster.path("admin"), *flags], capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(ran.returncode, 0)
        return ran.stderr

    def is_noted(self, cluster, name):
        """Whether the directory says that its server has left."""
        with open(cluster.path(f"{name}/identity.json"), encoding="ascii") as file:
            return json.load(file).get("left", False)

    def again(self, cluster, name):
        """Another server in its place, of a new directory."""
        shutil.rmtree(cluster.path(name))
        cluster.join(name)
        self.add(cluster, name)

    def state(self, cluster):
        """All that a refused command must leave as it was."""
        found = {}
        for name in cluster.running:
            with open(cluster.path(f"{name}/identity.json"), encoding="ascii") as file:
                identity = json.load(file)
                found[name] = {key: identity.get(key) for key in ("cluster_shards", "placement", "members", "left", "most_shards", "moving")}
            with embd.connect(cluster.address(name), deadline=60) as client:
                found[name]["shards"], found[name]["vshards"] = client.shards, client.vshards()
        return found, digests(cluster.address("a"))

    def settle(self, cluster):
        """No note of an attempt is left."""
        end = time.monotonic() + 60
        while any(seen["moving"] for seen in self.state(cluster)[0].values()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        return self.state(cluster)


class Connecting(threading.Thread):
    """Clients that connect, ask and leave, one after the other. A dead server is one; one that has left must not be."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.ends, self.n, self.error = address, False, 0, None

    def ask(self):
        with embd.connect(self.address, deadline=60) as client:
            client.table("t").pull(np.arange(4))
        self.n += 1

    def run(self):
        while not self.ends and self.error is None:
            try:
                self.ask()
            except embd.Error as error:
                self.error = error if "has left" in str(error) else None
            time.sleep(0.001)

    def end(self):
        self.ends = True
        self.join()
        return self.error


class Leaves(Retiring):
    def test_trainers_go_on_while_four_shards_become_two_and_four_again(self):
        cluster = self.begin("abcd", 4)
        client = self.connect(cluster)
        self.counted(client)
        trainers = [Trainer(cluster.address(name), "t", i * KEYS) for i, name in enumerate("ad")]
        for trainer in trainers:
            trainer.start()
        for shard, name in ((3, "d"), (2, "c")):
            for trainer in trainers:
                trainer.until(20)
            self.assertEqual(self.leave(cluster, shard, name)["shards"], shard)
            for trainer in trainers:
                trainer.until(20)
        before = {trainer.n for trainer in trainers}
        for name in "cd":
            self.again(cluster, name)
            self.move(cluster)
            for trainer in trainers:
                trainer.until(20)
        self.assertGreater(min(t.n for t in trainers), max(before) - min(before))
        self.leave(cluster, 3, "d")
        for trainer in trainers:
            trainer.until(20).end()
            self.assertEqual(len(trainer.client.vshards()), 3)
            for at in (client, self.connect(cluster, "c")):
                trainer.check(at)
        seen = digests(cluster.address("a"))
        self.assertEqual(seen[0]["steps"], sum(t.n for t in trainers))
        cluster.list(4)  # the file has the one that left
        for listed in (4, 3):
            for name in "abc":
                cluster.kill(name)
            cluster.list(listed)
            for name in "abc":
                cluster.start(name, waits=False)
            self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
            self.assertEqual(digests(cluster.address("a")), seen)
        for trainer in trainers:
            trainer.check(self.connect(cluster, "b"))

    def test_tables_of_every_kind_have_the_bits_of_one_shard(self):
        cluster = self.begin("abc", 3)
        with clusters.Embd() as model:
            clients = [self.connect(cluster), embd.connect(model.addresses[0], deadline=60)]
            self.addCleanup(clients[1].close)
            for client in clients:
                for name, fields in TABLES.items():
                    client.create_table(name, DIM, seed=5, **fields)
            steps, over = [], threading.Event()
            history = threading.Thread(target=self.train, args=(clients[0], steps, over))
            history.start()
            self.leave(cluster, 2, "c")
            self.leave(cluster, 1, "b")
            over.set()
            history.join(100)
            self.assertFalse(history.is_alive())
            for seed in steps:
                self.push(clients[1], seed)
            self.assertEqual(digests(cluster.address("a")), digests(model.addresses[0]))
            self.assertEqual(clients[0].vshards(), [1024])
            self.push(clients[0], 77)
            self.push(clients[1], 77)
            cluster.kill("a")
            cluster.start("a", waits=False)
            self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
            self.assertEqual(digests(cluster.address("a")), digests(model.addresses[0]))
            self.again(cluster, "b")
            self.move(cluster)
            self.assertEqual(digests(cluster.address("a")), digests(model.addresses[0]))

    def push(self, client, seed):
        rng = np.random.default_rng(seed)
        for name in TABLES:
            keys = rng.integers(0, 700, 300, dtype=np.uint64)
            client.table(name).push(keys, rng.standard_normal((300, DIM)).astype(np.float32))

    def train(self, client, steps, over):
        while not over.is_set() or len(steps) < 6:
            self.push(client, len(steps))
            steps.append(len(steps))

    def test_workers_in_step_make_one_step_a_clock(self):
        cluster = self.begin("abc", 3)
        client = self.connect(cluster)
        self.counted(client)
        workers, wrong, begun = 3, [], threading.Semaphore(0)
        keys = np.arange(500, dtype=np.uint64)

        def work(rank):
            try:
                with embd.connect(cluster.address("abc"[rank]), deadline=90) as own, \
                        embd.Clock(own, "job", worker=rank, workers=workers, lease=3) as clock:
                    table = own.table("t")
                    for step in clock.steps(200):
                        table.push(keys, -np.ones((500, DIM), np.float32), round=clock)
                        begun.release()
                        if step == 100:
                            time.sleep(4)  # heartbeats alone say that it lives
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(workers)]
        for thread in threads:
            thread.start()
        begun.acquire()
        self.leave(cluster, 2, "c")
        for thread in threads:
            thread.join(100)
        self.assertEqual(wrong, [])
        self.assertEqual({float(v) for v in client.table("t").pull(keys).ravel()}, {200.0})
        self.assertEqual(len(client.vshards()), 2)

    def test_numbered_pushes_are_applied_once_and_a_number_that_comes_back_is_another_shard(self):
        cluster = self.begin("abc", 3)
        client = self.connect(cluster)
        table, keys = self.counted(client), np.arange(KEYS, dtype=np.uint64)
        pusher = embd.Pusher(client)

        def push(sequence):
            table.push(keys, -np.ones((KEYS, DIM), np.float32), pusher=pusher, sequence=sequence)

        def own():
            table.push(keys, -np.ones((KEYS, DIM), np.float32))
        for sequence in (1, 2, 3):
            push(sequence)
            own()
        self.leave(cluster, 2, "c")
        for _ in range(3):  # shard 0, whose positions another shard 2 gets, goes on
            own()
        push(3)
        push(4)
        self.again(cluster, "c")
        own()
        push(4)
        self.move(cluster)
        push(5)
        own()
        self.leave(cluster, 2, "c")
        push(5)
        push(6)
        self.assertEqual({float(v) for v in table.pull(keys).ravel()}, {14.0})
        self.assertEqual(pusher.last(), (6, 6))

    def test_handles_that_have_not_heard_of_it_go_on_and_nobody_dials_a_server_that_has_gone(self):
        cluster = self.begin("abc", 3)
        use = {
            "pull": lambda c: c.table("t").pull(np.arange(KEYS)),
            "create": lambda c: self.counted(c, "late"),
            "set": lambda c: c.set_table("t", optimizer={"lr": 0.5}),
            "tables": lambda c: c.tables(),
            "digest": lambda c: c.digest(),
            "keys": lambda c: c.table("t").keys(),
            "dump": lambda c: c.dump(cluster.path("dump")),
            "tick": lambda c: embd.Clock(c, "job", worker=0, workers=1).tick(),
            "snapshot": lambda c: c.snapshot("two"),
            "erase": lambda c: c.table("t").erase(np.arange(5, dtype=np.uint64)),
            "drop": lambda c: c.drop_table("late"),
        }
        handles = {name: self.connect(cluster, "abc"[i % 3], own_thread=i % 2 == 1) for i, name in enumerate(use)}
        self.counted(handles["pull"]).push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        opened = {name: handle.table("t") for name, handle in handles.items()}
        calls = [self.connect(cluster, "b") for _ in range(3)]
        tables = [client.table("t") for client in calls]
        worker = embd.Clock(self.connect(cluster, own_thread=False), "quiet", worker=0, workers=1, lease=3)
        worker.tick()  # from now on it makes no call, and its heartbeats alone say that it lives
        self.leave(cluster, 2, "c")
        began = time.monotonic()
        for name, call in use.items():
            with self.subTest(use=name):
                call(handles[name])
        tables[0].push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        tables[1].pull(np.arange(KEYS))
        tables[2].erase(np.arange(5, dtype=np.uint64))
        for table in opened.values():
            table.pull(np.arange(KEYS))
        self.assertLess(time.monotonic() - began, 55)  # less than one deadline
        self.assertEqual({len(client.shards) for client in [*handles.values(), *calls]}, {2})
        with socket.socket() as there:
            there.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            there.bind(("127.0.0.1", int(cluster.address("c").rsplit(":", 1)[1])))
            there.listen()
            there.settimeout(7)  # servers ask each other every 5 s
            for table in opened.values():
                table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
            self.until_nobody_dials(there)
        self.assertEqual(worker.tick().live, 1)

    def until_nobody_dials(self, there):
        """A heartbeat may find only here that its server has gone."""
        end = time.monotonic() + 60
        while True:
            try:
                there.accept()[0].close()
            except TimeoutError:
                return
            self.assertLess(time.monotonic(), end)

    def test_a_handle_of_a_server_that_left_and_still_runs_follows_the_others(self):
        cluster = self.begin("abc", 3)
        client, other = self.connect(cluster, "c"), self.connect(cluster, "c")
        table = self.counted(client)
        opened = other.table("t")
        self.drain(cluster, 2)
        self.retire(cluster, 2)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.assertEqual(opened.pull(np.arange(KEYS))[0, 0], 1.0)
        self.counted(other, "more")
        fresh = self.connect(cluster, "c")  # which names the others
        self.assertEqual([len(handle.shards) for handle in (client, other, fresh)], [2, 2, 2])
        self.assertEqual(fresh.tables(), ["more", "t"])
        for way in (cluster.address("c"), cluster.path(f"admin/{cluster.port + 2}.sock")):
            for words in (("drain",), ("shard", "drain", "0")):
                ran = embctl(way, *words)
                self.assertEqual((ran.returncode, "has left the cluster" in ran.stderr), (5, True), ran.stderr)
        self.assertTrue(all(server.is_alive() for server in cluster.running.values()))
        cluster.kill("c")
        self.assertIn("left the cluster by embctl shard retire", self.refused(cluster, "c"))

    def test_an_archive_goes_on_with_the_shards_that_stay(self):
        cluster = self.begin("abc", 3)
        table, place = self.counted(self.connect(cluster)), cluster.path("archive")
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        with subprocess.Popen([EMBCTL, "--servers", cluster.address("a"), "backup", "--to", place, "--every", "1", "--records", "1"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as archive:
            try:
                self.until_backup(cluster, place, 3)
                self.leave(cluster, 2, "c")
                table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
                self.until_backup(cluster, place, 2)
            finally:
                archive.terminate()
                archive.communicate(timeout=60)
        self.assertEqual(archive.returncode, 0)

    def until_backup(self, cluster, place, shards):
        end = time.monotonic() + 60
        while True:
            ran = embctl(cluster.address("a"), "backup", "list", "--to", place, "-o", "json")
            found = json.loads(ran.stdout)["backups"] if ran.returncode == 0 else []
            if any((backup["state"], backup["shards"], backup["rows"]) == ("whole", shards, KEYS) for backup in found):
                return
            self.assertLess(time.monotonic(), end, (ran, found))
            time.sleep(0.1)

    def test_calls_in_flight_go_on_by_both_transports(self):
        cluster = self.begin("abcd", 4)
        for shard, name, transport in ((3, "d", "tcp"), (2, "c", "local")):
            command = [os.path.join(os.environ["EMBD_BIN"], "embd-bench"), "--servers", cluster.address("a"), "--durability", "durable",
                       "--keys", "5000", "--batch", "500", "--mix", "train", "--in-flight", "3", "--clients", "2", "--rounds", "3",
                       "--transport", transport]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as bench:
                time.sleep(0.5)
                self.leave(cluster, shard, name)
                said, _ = bench.communicate(timeout=120)
            self.assertEqual(bench.returncode, 0, said)


class Refused(Retiring):
    def test_what_cannot_leave_is_named_and_nothing_changes(self):
        cluster = self.begin("abc", 3)
        client = self.connect(cluster)
        self.counted(client).push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.check(cluster, 2, r"shard 2 has 341 of 1024 vshards.*embctl rebalance --drain 2")
        self.check(cluster, 1, r"shard 1 is not of the last server.*shard 2 is the next")
        self.check(cluster, 0, r"shard 0 does not leave")
        self.check(cluster, 3, r"no such shard 3; the cluster has 0 to 2")
        self.drain(cluster, 2)
        client.create_table("loose", DIM, durability="snapshot")
        self.check(cluster, 2, r"embctl table set loose durability=durable")
        client.drop_table("loose")
        self.check(cluster, 1, r"shard 1 is not of the last server")
        cluster.end("b")
        self.assertIn(cluster.address("b"), self.retire(cluster, 2, code=3))
        cluster.start("b", waits=False)
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        self.settle(cluster)
        self.retire(cluster, 2)
        cluster.kill("c")
        self.drain(cluster, 1)
        self.retire(cluster, 1)
        cluster.kill("b")
        self.check(cluster, 0, r"shard 0 is the last one")

    def check(self, cluster, shard, why):
        before = self.settle(cluster)
        said = self.retire(cluster, shard, code=5)
        self.assertRegex(said.replace("\n", " "), why)
        self.assertEqual(self.settle(cluster), before)

    def test_a_server_leaves_with_all_of_its_shards(self):
        cluster = self.begin("ab", 2, shards=2)
        client = self.connect(cluster)
        self.counted(client).push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.move(cluster, "--weights", "1,1,0,0")
        self.check(cluster, 3, r"shards 2 and 3 are of one server")
        self.check(cluster, 1, r"shard 1 is not of the last server")
        self.assertEqual(self.retire(cluster, 2)["shards"], 2)
        cluster.kill("b")
        self.assertEqual({float(v) for v in client.table("t").pull(np.arange(KEYS)).ravel()}, {1.0})
        self.check(cluster, 1, r"shards 0 and 1 are of one server")


class Kills(Retiring):
    def test_whoever_dies_while_a_server_leaves_all_count_without_it_or_none(self):
        rng = random.Random(int(os.environ.get("EMBD_GROWTH_SEED", "11")))
        cluster = self.begin("abc", 3)
        self.counted(self.connect(cluster))
        trainer = Trainer(cluster.address("b"), "t", 0)
        others = [Connecting(cluster.address(name)) for name in "ab"]
        for thread in (trainer, *others):
            thread.start()
        outcomes = []
        for _ in range(KILLS):
            trainer.until(10)
            self.drain(cluster, 2)
            with subprocess.Popen([EMBCTL, "--servers", cluster.address("a"), "shard", "retire", "2"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True) as retiring:
                time.sleep(rng.uniform(0, 0.06))
                dies = rng.choice("abc")
                cluster.kill(dies)
                time.sleep(rng.uniform(0, 0.2))
                if dies != "c" or not self.is_noted(cluster, "c"):
                    cluster.start(dies, waits=False)
                _, why = retiring.communicate(timeout=90)
                outcomes.append((dies, retiring.returncode, why.strip()))
            if self.has_left(cluster, outcomes) == 3:
                self.retire(cluster, 2)
            trainer.until(10)
            if "c" in cluster.running:
                cluster.kill("c")
            for flags in ((), ("--accept-empty",), ("--join",)):
                self.assertIn("left the cluster by embctl shard retire", self.refused(cluster, "c", *flags), outcomes)
            trainer.until(10)
            self.again(cluster, "c")
            self.move(cluster)
        trainer.end()
        trainer.check(self.connect(cluster))
        self.assertEqual([other.end() for other in others], [None, None], outcomes)
        self.assertGreater(min(other.n for other in others), 0)

    def has_left(self, cluster, outcomes):
        """How many shards all count: those that stay, and the one that was to leave, where it still runs."""
        self.assertEqual(embctl(cluster.address("a"), "wait", timeout=90).returncode, 0, outcomes)
        end = time.monotonic() + 60
        while True:
            counts = set()
            for name in cluster.running:
                try:
                    with embd.connect(cluster.address(name), deadline=60) as client:
                        counts.add(len(client.vshards()))
                except embd.UnreachableError:  # it still counts with a server that has left and ended
                    counts.add(None)
            if len(counts) == 1 and None not in counts:
                return counts.pop()
            self.assertLess(time.monotonic(), end, (counts, outcomes))
            time.sleep(0.05)


if __name__ == "__main__":
    clusters.main()
