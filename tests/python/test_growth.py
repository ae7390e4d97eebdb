"""Servers become members of a cluster while trainers pull and push: no call fails, no push is lost or applied twice, and whoever dies,
all servers count with the new shards or none does. EMBD_GROWTH_KILLS=n: how many servers die; 6 without it."""
import json
import os
import random
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np

import clusters
import embd
from clusters import Embd
from listed import Growing
from ports import free_ports
from test_rebalance import DIM, EMBCTL, KEYS, TABLES, Trainer, digests, embctl, rebalance

KILLS = int(os.environ.get("EMBD_GROWTH_KILLS", "6"))


class Growth(unittest.TestCase):
    def begin(self, names="abcd", listed=2, **more):
        cluster = Growing(names, listed, **more)
        self.addCleanup(cluster.__exit__, None, None, None)
        for name in cluster.names:
            cluster.start(name, waits=False)
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        return cluster

    def connect(self, cluster, name="a", **more):
        client = embd.connect(cluster.address(name), deadline=60, **more)
        self.addCleanup(client.close)
        return client

    def counted(self, client, name="t"):
        return client.create_table(name, DIM, initializer=embd.Initializer("constant", 0.0), optimizer=embd.Optimizer("sgd", lr=1.0))

    def add(self, cluster, name, code=0):
        ran = embctl(cluster.address("a"), "shard", "add", cluster.address(name), "-o", "json")
        self.assertEqual(ran.returncode, code, ran.stderr)
        return json.loads(ran.stdout)["added"][0] if code == 0 else ran.stderr

    def move(self, cluster, *words):
        rebalance(cluster.address("a"), *words)

    def restart(self, cluster, listed=8):
        """The file of the first servers need not have those that were added."""
        for name in list(cluster.running):
            cluster.kill(name)
        names = cluster.names
        for part in (names[:listed], names[listed:]):
            cluster.list(listed if part == names[:listed] else len(names))
            for name in part:
                cluster.start(name, waits=False)
        cluster.list(len(names))
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)

    def rows(self, client, name="t"):
        return [shard.tables[name]["rows"] for shard in client.stats()]

    def until_like(self, follower, tables):
        """A base may be older than the tables: what it lacks follows."""
        end = time.monotonic() + 60
        while json.loads(embctl(follower, "digest", "-o", "json").stdout or "{}").get("tables") != tables:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def follow(self, cluster, shards, room=None, data_dir=None, base=True):
        """A follower that begins anew, with a base of each shard, or goes on in its directory; with room for so many shards."""
        self.of_follower = data_dir or self.folder()
        follower = Embd("--http", "off", "--data-dir", self.of_follower, "--follow", cluster.path(f"admin/{cluster.port}.sock"),
                        shards=room or shards, waits=False)
        self.addCleanup(follower.kill)
        for shard in range(shards if base else 0):
            follower.wait_log(f"follow_has_base shard={shard}", 60)
        return follower

    def check_promoted(self, cluster, follower, value, shards):
        """It has all that its server has, and takes its place."""
        seen = digests(cluster.address("a"))
        self.until_like(follower.admin_path(0), seen)
        for name in list(cluster.running):
            cluster.kill(name)
        self.assertEqual(embctl(follower.admin_path(0), "promote", "--force").returncode, 0)
        with embd.connect(follower.addresses[0], deadline=60) as client:
            self.assertEqual({float(v) for v in client.table("t").pull(np.arange(KEYS)).ravel()}, {value})
            client.table("t").push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
            self.assertEqual((sum(self.rows(client)), len(client.shards)), (KEYS, shards))


class Adds(Growth):
    def test_trainers_go_on_while_two_shards_become_four_and_get_keys(self):
        cluster = self.begin()
        client, threaded = self.connect(cluster), self.connect(cluster, "b")
        self.counted(client)
        trainers = [Trainer(cluster.address(name), "t", i * KEYS) for i, name in enumerate("ab")]
        for trainer in trainers:
            trainer.start()
        for n, name in enumerate("cd", 3):
            for trainer in trainers:
                trainer.until(20)
            cluster.join(name)
            self.assertEqual(self.add(cluster, name)["shards"], n)
            for trainer in trainers:
                trainer.until(20)
            self.move(cluster)
            for trainer in trainers:
                trainer.until(20)
        for trainer in trainers:
            trainer.end()
            self.assertEqual(len(trainer.client.vshards()), 4)
            for at in (client, threaded, self.connect(cluster, "d")):
                trainer.check(at)
        present = sum(int((t.counts > 0).sum()) for t in trainers)
        rows = self.rows(client)
        self.assertEqual((sum(rows), min(rows) > present / 5), (present, True), rows)
        before = digests(cluster.address("a"))
        self.assertEqual(before[0]["steps"], sum(t.n for t in trainers))  # on each shard, or it is none
        for listed in (4, 2, 3):
            self.restart(cluster, listed)
            self.assertEqual(digests(cluster.address("a")), before)
        for trainer in trainers:
            trainer.check(self.connect(cluster, "c"))

    def test_tables_of_every_kind_have_the_bits_of_one_shard(self):
        cluster = self.begin("abc")
        with Embd() as model:
            clients = [embd.connect(address, deadline=60) for address in (cluster.address("a"), model.addresses[0])]
            for client in clients:
                self.addCleanup(client.close)
                for name, fields in TABLES.items():
                    client.create_table(name, DIM, seed=5, **fields)
                client.set_table("plain", optimizer={"lr": 0.05})
            steps, grown = [], threading.Event()
            history = threading.Thread(target=self.train, args=(clients[0], steps, grown))
            history.start()
            cluster.join("c")
            self.add(cluster, "c")
            self.move(cluster)
            self.move(cluster, "--weights", "1,0,2")
            grown.set()
            history.join(100)
            self.assertFalse(history.is_alive())
            for seed in steps:
                self.push(clients[1], seed)
            self.assertGreater(len(steps), 5)
            self.assertEqual(digests(cluster.address("a")), digests(model.addresses[0]))
            self.restart(cluster)
            self.assertEqual(digests(cluster.address("a")), digests(model.addresses[0]))

    def push(self, client, seed):
        rng = np.random.default_rng(seed)
        for name in TABLES:
            keys = rng.integers(0, 700, 300, dtype=np.uint64)
            client.table(name).push(keys, rng.standard_normal((300, DIM)).astype(np.float32))
            if seed % 5 == 4:
                client.table(name).erase(keys[:14])

    def train(self, client, steps, grown):
        while not grown.is_set() or len(steps) < 6:
            self.push(client, len(steps))
            steps.append(len(steps))

    def test_workers_in_step_make_one_step_a_clock(self):
        cluster = self.begin("abc")
        client = self.connect(cluster)
        self.counted(client)
        workers, wrong, begun = 3, [], threading.Semaphore(0)
        keys = np.arange(500, dtype=np.uint64)

        def work(rank):
            try:
                with embd.connect(cluster.address("a"), deadline=90) as own, \
                        embd.Clock(own, "job", worker=rank, workers=workers, lease=60) as clock:
                    table = own.table("t")
                    for _ in clock.steps(200):
                        table.push(keys, -np.ones((500, DIM), np.float32), round=clock)
                        begun.release()
                    self.assertEqual(len(own.vshards()), 3)
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(workers)]
        for thread in threads:
            thread.start()
        cluster.join("c")
        begun.acquire()
        self.add(cluster, "c")
        self.move(cluster)
        for thread in threads:
            thread.join(100)
        self.assertEqual(wrong, [])
        self.assertEqual({float(v) for v in client.table("t").pull(keys).ravel()}, {200.0})

    def test_numbered_pushes_are_applied_once_on_the_new_shard_too(self):
        cluster = self.begin("abc")
        client = self.connect(cluster)
        table, keys = self.counted(client), np.arange(KEYS, dtype=np.uint64)
        pusher = embd.Pusher(client)

        def push(sequence):
            table.push(keys, -np.ones((KEYS, DIM), np.float32), pusher=pusher, sequence=sequence)
        for sequence in (1, 2, 3):
            push(sequence)
        cluster.join("c")
        self.add(cluster, "c")
        push(3)
        push(4)
        self.move(cluster)
        push(4)
        push(5)
        self.restart(cluster)
        push(5)
        push(6)
        self.assertEqual({float(v) for v in table.pull(keys).ravel()}, {6.0})

    def test_a_server_alone_gets_others_and_they_may_have_several_shards(self):
        cluster = self.begin("ab", 1, shards=2)
        client = self.connect(cluster)
        table = self.counted(client)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        cluster.join("b")
        client.add_shard(cluster.address("b"))
        self.assertEqual(len(client.shards), 4)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.move(cluster, "--weights", "1,0,1,2")
        self.assertEqual((sum(self.rows(client)), self.rows(client)[1]), (KEYS, 0))
        self.restart(cluster)
        self.assertEqual({float(v) for v in table.pull(np.arange(KEYS)).ravel()}, {2.0})

    def test_a_handle_that_has_not_heard_of_the_new_shard_makes_tables_and_dumps_whole(self):
        cluster = self.begin("abc")
        handles = [self.connect(cluster) for _ in range(6)]
        self.counted(handles[0]).push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        opened = handles[5].table("t")
        self.assertEqual(embctl(cluster.address("a"), "snapshot", "two").returncode, 0)
        cluster.join("c")
        self.add(cluster, "c")
        self.move(cluster, "--drain", "0")
        self.assertEqual({len(handle.shards) for handle in handles}, {2})
        handles[0].dump(cluster.path("dump"))
        self.assertEqual(handles[1].digest()[0].rows, KEYS)
        self.counted(handles[2], "late")
        handles[3].set_table("t", optimizer={"lr": 0.5})
        self.assertEqual(sum(len(keys) for keys in opened.keys()), KEYS)
        fresh = self.connect(cluster, "c")
        fresh.table("late").push(np.arange(9), -np.ones((9, DIM), np.float32))
        fresh.table("t")  # shards that describe it otherwise are refused
        handles[4].drop_table("late")
        self.assertEqual(set(self.connect(cluster, "c").tables()), {"t"})
        ran = embctl(cluster.address("a"), "verify", cluster.path("dump"))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(json.loads(embctl(cluster.address("a"), "digest", "--directory", cluster.path("dump"), "-o", "json").stdout)
                         ["tables"][0]["rows"], KEYS)
        before = digests(cluster.address("a"))
        self.restart(cluster)  # beside a snapshot of two shards
        self.assertEqual(digests(cluster.address("a")), before)

    def test_calls_in_flight_go_on_by_both_transports(self):
        cluster = self.begin("abcd")
        for name, transport in (("c", "tcp"), ("d", "local")):
            command = [os.path.join(os.environ["EMBD_BIN"], "embd-bench"), "--servers", cluster.address("a"), "--durability", "durable",
                       "--keys", "5000", "--batch", "500", "--mix", "train", "--in-flight", "3", "--clients", "2", "--rounds", "3",
                       "--transport", transport]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as bench:
                time.sleep(0.5)
                cluster.join(name)
                self.add(cluster, name)
                self.move(cluster)
                said, _ = bench.communicate(timeout=120)
            self.assertEqual(bench.returncode, 0, said)

    def test_one_shard_becomes_two(self):
        cluster = self.begin("ab", 1)
        trainer = Trainer(cluster.address("a"), "t", 0) if self.counted(self.connect(cluster)) else None
        trainer.start()
        trainer.until(10)
        cluster.join("b")
        self.add(cluster, "b")
        trainer.until(10)
        self.move(cluster)
        trainer.until(10).end()
        self.restart(cluster)
        trainer.check(self.connect(cluster, "b"))

    def test_snapshots_and_dumps_of_fewer_shards_come_back_into_more(self):
        cluster = self.begin("abc")
        client = self.connect(cluster)
        table = self.counted(client)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        before, dump = digests(cluster.address("a")), cluster.path("dump")
        self.assertEqual(embctl(cluster.address("a"), "dump", "--all", dump).returncode, 0)
        cluster.join("c")
        self.add(cluster, "c")
        self.move(cluster)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.assertEqual(embctl(cluster.address("a"), "snapshot", "three").returncode, 0)
        self.restart(cluster)
        ran = embctl(cluster.address("a"), "load", dump, "--replace")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(digests(cluster.address("a")), before)

    def test_a_server_that_was_added_and_starts_again_has_no_snapshot_wait(self):
        """A client that has not pushed since has left nothing half sent, and the new shard still knows."""
        cluster = self.begin("abc")
        client = self.connect(cluster)
        self.counted(client).push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        cluster.join("c")
        self.add(cluster, "c")
        cluster.kill("c")
        cluster.start("c", waits=False)
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        ran = embctl(cluster.address("a"), "snapshot", "behind")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertNotIn("client_left_out", cluster.running["a"].log())

    def test_what_cannot_be_added_is_named_and_nothing_changes(self):
        cluster = self.begin("abcd")
        client = self.connect(cluster)
        self.counted(client).push(np.arange(50), -np.ones((50, DIM), np.float32))
        self.assertIn("is a member", self.add(cluster, "b", code=5))
        cluster.join("c")
        with self.assertRaisesRegex(embd.Error, "not a member of the cluster yet"):
            embd.connect(cluster.address("c"), deadline=1)
        client.create_table("loose", DIM, durability="snapshot")
        self.assertIn("embctl table set loose durability=durable", self.add(cluster, "c", code=5))
        client.drop_table("loose")
        self.assertEqual(len(client.vshards()), 2)
        self.add(cluster, "c")
        self.assertIn("is a member", self.add(cluster, "c", code=5))
        self.assertEqual(len(client.vshards()), 2)  # of the handle, when it was asked
        self.assertEqual(len(client.vshards()), 3)

    def test_servers_without_a_data_dir_are_not_members_of_more(self):
        """They would forget who the members are."""
        path, port = os.path.join(self.folder(), "embd.yaml"), free_ports(1)
        with Embd("--http", "off") as alone, open(path, "w", encoding="ascii") as file:
            file.write(f'http: "off"\ncluster:\n  servers:\n    - {{listen: "{alone.addresses[0]}"}}\n'
                       f'    - {{listen: "127.0.0.1:{port}", data_dir: "{self.folder()}"}}\n    - {{listen: "127.0.0.1:{port + 1}"}}\n')
            file.flush()
            ran = clusters.run("--config", path, "--server", "2", "--join")
            self.assertEqual((ran.returncode, "needs a data_dir" in ran.stderr), (2, True), ran.stderr)
            joining = Embd("--config", path, "--server", "1", "--join", listen=None, waits=False)
            self.addCleanup(joining.kill)
            joining.wait_log("ready shards", 60)
            ran = embctl(alone.addresses[0], "shard", "add", joining.addresses[0])
            self.assertEqual((ran.returncode, "without it would forget" in ran.stderr), (5, True), ran.stderr)


class Kills(Growth):
    def test_whoever_dies_while_a_server_is_added_all_count_with_it_or_none(self):
        rng = random.Random(int(os.environ.get("EMBD_GROWTH_SEED", "11")))
        cluster = self.begin("abcdefgh"[:2 + KILLS])
        client = self.connect(cluster)
        self.counted(client)
        trainer = Trainer(cluster.address("b"), "t", 0)
        trainer.start()
        outcomes = []
        for kill in range(KILLS):
            name = cluster.all[2 + kill]
            trainer.until(10)
            cluster.join(name)
            with subprocess.Popen([EMBCTL, "--servers", cluster.address("a"), "shard", "add", cluster.address(name)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as adding:
                time.sleep(rng.uniform(0, 0.06))
                dies = rng.choice(["a", "b", name])
                cluster.kill(dies)
                time.sleep(rng.uniform(0, 0.2))
                cluster.start(dies, *(["--join"] if dies == name else []), waits=False)
                _, why = adding.communicate(timeout=90)
                outcomes.append((dies, adding.returncode, why.strip()))
            self.until_one_map(cluster, kill + 2, outcomes)
            trainer.until(10)
        trainer.end()
        trainer.check(self.connect(cluster))

    def until_one_map(self, cluster, n, outcomes):
        """All members count alike; then the server is one of them, by another try where it is not yet."""
        self.assertEqual(embctl(cluster.address("a"), "wait", timeout=90).returncode, 0, outcomes)
        counts = set()
        for name in cluster.all[:n]:
            with embd.connect(cluster.address(name), deadline=60) as client:
                counts.add(len(client.vshards()))
        self.assertEqual(len(counts), 1, outcomes)
        end = time.monotonic() + 60
        while counts == {n} and embctl(cluster.address("a"), "shard", "add", cluster.address(cluster.all[n])).returncode != 0:
            self.assertLess(time.monotonic(), end, outcomes)
            time.sleep(0.2)
        self.move(cluster)


class Followed(Growth):
    """Followers with room for more shards take the map of more, or fewer, from the journals."""

    def test_a_follower_keeps_its_tables_and_has_the_shards_that_are_added_and_leave(self):
        cluster = self.begin("abc")
        table = self.counted(self.connect(cluster))
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.move(cluster, "--weights", "1,3")
        follower = self.follow(cluster, 2, room=3)
        began = follower.log().count("follow_has_base shard=0")
        cluster.join("c")
        self.add(cluster, "c")
        self.move(cluster)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.until_like(follower.admin_path(0), digests(cluster.address("a")))
        self.assertNotIn("begins_anew", follower.log())
        self.assertEqual(follower.log().count("follow_has_base shard=0"), began)
        self.check_promoted(cluster, follower, 2.0, shards=3)

    def test_a_follower_makes_room_for_shards_and_keeps_it(self):
        cluster = self.begin("abcd")
        table = self.counted(self.connect(cluster))
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        follower = self.follow(cluster, 2)
        cluster.join("c")
        self.add(cluster, "c")
        self.move(cluster)
        self.until_like(follower.admin_path(0), digests(cluster.address("a")))
        self.assertNotIn("begins_anew", follower.log())
        follower.kill()
        cluster.join("d")
        self.add(cluster, "d")  # while it is away
        self.move(cluster)
        follower = self.follow(cluster, 3, room=2, data_dir=self.of_follower, base=False)
        follower.wait_log("room_made shard=3", 60)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.check_promoted(cluster, follower, 2.0, shards=4)
        self.assertNotIn("begins_anew", follower.log())

    def test_a_follower_begins_anew_behind_restarts_too(self):
        cluster = self.begin("abc")
        table = self.counted(self.connect(cluster))
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.move(cluster, "--weights", "1,3")
        cluster.join("c")
        self.add(cluster, "c")
        self.move(cluster)
        self.restart(cluster)
        follower = self.follow(cluster, 3)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.check_promoted(cluster, follower, 2.0, shards=3)

    def test_a_follower_of_before_is_told_how_many_shards_there_are_and_gets_them(self):
        cluster = self.begin("abc")
        self.counted(self.connect(cluster))
        cluster.join("c")
        self.add(cluster, "c")
        follower = Embd("--http", "off", "--data-dir", self.folder(), "--follow", cluster.path(f"admin/{cluster.port}.sock"), shards=2,
                        waits=False)
        self.addCleanup(follower.kill)
        follower.wait_log("has 3 shards", 60)
        follower.wait_log("follow_has_base shard=2", 60)


class Promoted(Growth):
    """A server that followed, and was promoted: maps of its epoch have later versions."""

    def test_a_promoted_server_gets_another_shard(self):
        with Embd("--data-dir", self.folder(), "--http", "off") as first, \
                embd.connect(first.addresses[0], deadline=60) as client:
            self.counted(client).push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
            cluster = Growing("ab", 1)
            self.addCleanup(cluster.__exit__, None, None, None)
            follower = cluster.start("a", "--follow", first.admin_path(0), waits=False)
            follower.wait_log("follow_has_base shard=0")
            admin = cluster.path(f"admin/{cluster.port}.sock")
            self.until_like(admin, digests(first.addresses[0]))
            first.kill()
        self.assertEqual(embctl(admin, "promote", "--force").returncode, 0)
        client = self.connect(cluster)
        cluster.join("b")
        self.assertEqual(embctl(cluster.address("a"), "shard", "add", cluster.address("b")).returncode, 0)
        self.move(cluster)
        table = client.table("t")
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        for name in "ab":
            cluster.kill(name)
            cluster.start(name, waits=False)
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        self.assertEqual({float(v) for v in table.pull(np.arange(KEYS)).ravel()}, {2.0})
        self.assertEqual(list(client.vshards()), [512, 512])


if __name__ == "__main__":
    clusters.main()
