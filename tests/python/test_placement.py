"""Maps of keys to shards: uneven ones hold the same rows as one shard, bit for bit; a client follows a newer map without
an exception; a map that would lose rows is refused."""
import json
import os
import random
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

import clusters
import embd
import wire
from clusters import Embd, run
from embd_process import NotReady
from listed import Listed
from ports import free_ports
from wire import vshard

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
DIM, KEYS = 4, 400
PARTITIONS = {"hash": {}, "modulo": {"partition": "modulo"}, "slot": {"partition": "slot", "slots": 7}}


def random_map(rng, shards, version=1):
    """As text, and the shard of each vshard. Some shards may have none."""
    runs, left = [], 1024
    while left > 0:
        n = min(left, rng.choice([1, 7, 100, 300, 900]))
        runs.append((rng.randrange(shards), n))
        left -= n
    return f"{version}:" + ",".join(f"{s}={n}" for s, n in runs), [s for s, n in runs for _ in range(n)]


def connect(server):
    return embd.connect(server.addresses[0], deadline=20)


def train(client, seed, name="t", steps=6, **fields):
    """Pushes, pulls, puts and erases, the same for all clusters with that seed; all rows that are there then."""
    rng = np.random.default_rng(seed)
    table = client.create_table(name, DIM, optimizer="adagrad", durability="snapshot", **fields)
    slots = fields.get("slots", 1)
    for step in range(steps):
        keys = rng.integers(0, KEYS, 70, dtype=np.uint64)
        table.push(keys, rng.standard_normal((70, DIM)).astype(np.float32))
        table.pull(keys)
        if step == 3:
            table.erase(keys[:14])
    keys = np.repeat(np.arange(KEYS, dtype=np.uint64), slots)
    return table, table.pull(keys), keys


class Uneven(unittest.TestCase):
    def test_rows_of_uneven_maps_are_those_of_one_shard(self):
        rng = random.Random(7)
        for shards in range(1, 6):
            text, owners = random_map(rng, shards)
            with Embd("--placement", text, shards=shards) as uneven, Embd(shards=1) as one:
                with connect(uneven) as client, connect(one) as model:
                    for seed, (partition, fields) in enumerate(PARTITIONS.items()):
                        table, rows, keys = train(client, seed, name=partition, **fields)
                        _, expected, _ = train(model, seed, name=partition, **fields)
                        np.testing.assert_array_equal(rows.view(np.uint32), expected.view(np.uint32))
                        slots = np.arange(len(keys), dtype=np.uint16) % fields.get("slots", 1)
                        got = table.get(keys, slots=slots if partition == "slot" else None)
                        counts = [0] * shards
                        for key, slot, found in zip(keys.tolist(), slots.tolist(), got.found):
                            counts[owners[vshard(partition, key, slot, shards)]] += int(found)
                        self.assertEqual([s.tables[partition]["rows"] for s in client.stats()], counts, (shards, partition))

    def test_a_map_with_a_base_is_that_of_a_cluster_that_began_with_so_many_shards(self):
        with Embd("--placement", "3:base=2,0=512,1=512", shards=3) as server, connect(server) as client:
            table = client.create_table("t", DIM, partition="modulo", durability="snapshot")
            table.push(np.arange(90, dtype=np.uint64), np.ones((90, DIM), np.float32))
            self.assertEqual([s.tables["t"]["rows"] for s in client.stats()], [45, 45, 0])

    def test_hostile_maps_are_named(self):
        for text, says in (("1:0=1024,1=1", "a run of 1 vshards"), ("1:0=1000", "1000 vshards together"),
                           ("1:0=1000,2=24", "shard 2"), ("0:even", "version"), ("even", "does not begin"),
                           ("1:0=x", "not SHARD=VSHARDS"), ("1:0=1024,", "not SHARD=VSHARDS"), ("1:0=0,1=1024", "run of 0"),
                           ("1:0=18446744073709551615,1=1", "18446744073709551615"), ("9007199254740993:even", "2^53"),
                           ("1:base=x,0=1024", "behind base="), ("1:base=2", "behind base="), ("1:base=0,0=1024", "base is 0"),
                           ("1:base=2,even", "not SHARD=VSHARDS")):
            done = run("--listen", "127.0.0.1:0", "--shards", "2", "--placement", text, "--check")
            self.assertEqual(done.returncode, 2, (text, done.stderr))
            self.assertIn(says, done.stderr)


class OldClient(unittest.TestCase):
    def test_a_client_that_knows_the_even_map_alone_is_refused_before_any_effect(self):
        with Embd("--placement", "1:0=1000,1=24", shards=2) as server:
            with connect(server) as client:
                client.create_table("t", DIM, durability="snapshot")
                for shard in range(2):
                    with wire.connect(server, shard) as peer:
                        table = peer.call("table_describe", {"name": "t"})[0]["id"]
                        with self.assertRaisesRegex(wire.RpcError, "^26: .*version 1 of the placement.*update the client"):
                            wire.push(peer, table, [], [])
                self.assertEqual([s.tables["t"]["steps"] for s in client.stats()], [0, 0])


def restarted(folder, port, placement, shards=3):
    """A server on the same ports, with the same directory, and its next map."""
    return Embd("--placement", placement, "--data-dir", folder, shards=shards, listen=f"127.0.0.1:{port}")


class Moved(unittest.TestCase):
    """The map changes while clients hold the one before it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="embd-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.port = free_ports(3)

    def batch(self, seed):
        rng = np.random.default_rng(seed)
        return rng.integers(0, KEYS, 60, dtype=np.uint64), rng.standard_normal((60, DIM)).astype(np.float32)

    def check(self, client, owners, n_pushes, partition="hash"):
        """What a cluster of one shard has after these pushes, where the map has it."""
        keys = np.arange(KEYS, dtype=np.uint64)
        with Embd() as one, connect(one) as model:
            expected = model.create_table("t", DIM, optimizer="adagrad", durability="snapshot")
            for seed in range(n_pushes):
                expected.push(*self.batch(seed))
            rows, has = client.table("t").get(keys), expected.get(keys)
        np.testing.assert_array_equal(rows.values.view(np.uint32), has.values.view(np.uint32))
        counts = [0, 0, 0]
        for key, found in zip(keys.tolist(), has.found):
            counts[owners[vshard("hash", key, 0, 3)]] += int(found)
        self.assertEqual([s.tables["t"]["rows"] for s in client.stats()], counts)
        self.assertEqual([s.tables["t"]["steps"] for s in client.stats()], [n_pushes] * 3)

    def test_calls_that_were_started_by_the_map_before_are_split_again_with_their_numbers(self):
        (first, _), (second, owners) = (random_map(random.Random(seed), 3, seed) for seed in (1, 2))
        for begin in ("1:even", first):
            shutil.rmtree(self.folder)
            os.mkdir(self.folder)
            with restarted(self.folder, self.port, begin) as server:
                client = connect(server)
                client.create_table("w", DIM, durability="durable").push(*self.batch(0))  # its streams are open then
                client.drop_table("w")
                table = client.create_table("t", DIM, optimizer="adagrad", durability="durable")
                server.stop()
            calls = [table.push_start(*self.batch(seed)) for seed in range(4)]
            pull = table.pull_start(self.batch(0)[0])
            with client, restarted(self.folder, self.port, second):
                for call in reversed(calls):
                    call.wait()
                self.assertTrue(np.any(pull.wait()))
                table.push(*self.batch(4))
                self.check(client, owners, 5)

    def test_a_client_leaves_a_map_that_its_servers_have_lost(self):
        """It was given by a server that died; the one that was promoted has the map before it."""
        later, (before, owners) = random_map(random.Random(1), 3, 7)[0], random_map(random.Random(2), 3, 2)
        with restarted(self.folder, self.port, later) as server:
            client = connect(server)
            server.stop()
        shutil.rmtree(self.folder)
        os.mkdir(self.folder)
        with client, restarted(self.folder, self.port, before) as server:
            with connect(server) as other:
                other.create_table("t", DIM, optimizer="adagrad", durability="durable")
            client.table("t").push(*self.batch(0))
            self.check(client, owners, 1)

    def test_a_get_a_put_and_an_erase_follow(self):
        keys, rows = np.arange(50, dtype=np.uint64), np.ones((50, DIM), np.float32)
        for what in ("put", "get", "erase", "pull"):
            shutil.rmtree(self.folder)
            os.mkdir(self.folder)
            with restarted(self.folder, self.port, "1:even") as server, connect(server) as client:
                table = client.create_table("t", DIM, durability="durable")
                server.stop()
                with restarted(self.folder, self.port, "2:0=900,2=100,1=24") as server, connect(server) as other:
                    if what == "put":
                        table.put(keys, rows)
                    else:
                        other.table("t").put(keys, rows)
                    if what == "get":
                        np.testing.assert_array_equal(table.get(keys).values, rows)
                    elif what == "pull":
                        np.testing.assert_array_equal(table.pull(keys), rows)
                    elif what == "erase":
                        table.erase(keys)
                    self.assertEqual(int(other.table("t").get(keys).found.sum()), 0 if what == "erase" else 50)

    def start_refused(self, placement, says):
        with self.assertRaisesRegex(NotReady, says):
            restarted(self.folder, self.port, placement).kill()

    def test_a_directory_keeps_its_map_and_takes_no_other_while_it_has_rows(self):
        with restarted(self.folder, self.port, "3:0=500,1=500,2=24") as server, connect(server) as client:
            client.create_table("t", DIM, durability="durable").push(*self.batch(0))
            rows = [s.tables["t"]["rows"] for s in client.stats()]
        self.start_refused("2:even", "versions do not go back")
        self.start_refused("3:even", "the maps differ")
        self.start_refused("4:even", "has table 't' with")
        self.start_refused("4:even", "has table 't' with")  # the refused start has not kept it
        with restarted(self.folder, self.port, "4:0=500,1=500,2=24") as server, connect(server) as client:
            self.assertEqual([s.tables["t"]["rows"] for s in client.stats()], rows)  # the same map, a later version
            client.drop_table("t")
        with restarted(self.folder, self.port, "5:even"):
            pass
        with Embd("--data-dir", self.folder, shards=3) as server, connect(server) as client:
            with wire.connect(server) as peer:
                self.assertEqual(peer.call("cluster", {})[0]["placement"],
                                 {"version": 5, "base": 3, "runs": [0, 342, 1, 341, 2, 341]})
        self.start_refused("4:0=500,1=500,2=24", "versions do not go back")


def identity(cluster, name):
    with open(cluster.path(f"{name}/identity.json"), encoding="ascii") as file:
        return json.load(file)


class Servers(unittest.TestCase):
    """Of one cluster, a process each."""

    def test_servers_serve_by_one_map_or_not_at_all(self):
        with Listed("ab", "placement: '1:weights'\n") as cluster:
            cluster.start("a")
            with connect(cluster.start("b")) as client:
                client.create_table("t", DIM, durability="durable")
            identities = [identity(cluster, name) for name in "ab"]
            self.assertEqual({i.get("placement") is None and i["version"] for i in identities}, {1})
            cluster.end("b")
            cluster.more = "placement: '2:0=1000,1=24'\n"
            cluster.write()
            b = cluster.start("b", waits=False)
            b.wait_log("its placement is version 2, and server 'a' has version 1 or another map")
            self.assertEqual(cluster.page("b", "/readyz")[0], 503)
            with wire.connect(b) as peer, self.assertRaisesRegex(wire.RpcError, "24: .*start all servers with the same placement"):
                peer.call("tables", {})
            cluster.end("a")
            with connect(cluster.start("a")) as client:
                b.wait_log("ready shards=1")
                table = client.table("t")
                table.push(np.arange(2000, dtype=np.uint64), np.ones((2000, DIM), np.float32))
                self.assertLess(client.stats()[1].tables["t"]["rows"], 80)
            identities = [identity(cluster, name) for name in "ab"]
            self.assertEqual([i["placement"] for i in identities], [{"version": 2, "base": 2, "runs": [0, 1000, 1, 24]}] * 2)
            self.assertEqual([i["version"] for i in identities], [2, 2])  # which earlier versions do not start with

    def half_sent(self, cluster, client, push):
        """b is away while `push` begins, and comes back with a later map."""
        call = push()
        with wire.connect(cluster.running["a"]) as peer:
            while not call.done() and peer.call("stats", {})[0]["tables"][0]["stats"]["steps"] == 0:
                pass
        cluster.end("a")  # which b would meet, and not serve beside it
        cluster.more = "placement: '2:0=1000,1=24'\n"
        cluster.write()
        cluster.start("b", waits=False).wait_log("ready shards=1")
        with self.assertRaises(embd.Error) as failed:
            call.wait()
        self.assertEqual(failed.exception.status, embd.Status.MOVED)
        self.assertRegex(str(failed.exception), "by the even one.*; applied by shard 0; refused by shard 1.*"
                                                "stays applied in part: do not push it again, go back to a checkpoint with a new client")

    def steps(self, server):
        with wire.connect(server) as peer:
            return peer.call("table_describe", {"name": "t"})[0]["step"]

    def test_a_push_that_one_shard_applied_and_another_refused_is_not_split_again(self):
        """Nor is it sent again where its caller tries to, by its number, or by one behind it."""
        keys, ones = np.arange(60, dtype=np.uint64), np.ones((60, DIM), np.float32)
        for is_numbered in (False, True):
            with Listed("ab", "placement: '1:even'\n") as cluster:
                cluster.start("a")
                with connect(cluster.start("b")) as client:
                    client.create_table("w", DIM, durability="durable").push(keys, ones)  # its streams are open then
                    pusher = embd.Pusher(client)
                    client.table("w").push(keys, ones, pusher=pusher, sequence=1)
                    client.drop_table("w")
                    table = client.create_table("t", DIM, durability="durable")
                    cluster.end("b")
                    numbers = [{"pusher": pusher, "sequence": 2 + n} if is_numbered else {} for n in range(2)]
                    self.half_sent(cluster, client, lambda t=table, number=numbers[0]: t.push_start(keys, ones, **number))
                    for number in filter(None, numbers):
                        with self.assertRaisesRegex(embd.Error, f"push 2 of the stream is applied in part.* push {number['sequence']} was not sent"):
                            table.push(keys, ones, **number)
                    self.assertEqual(self.steps(cluster.running["b"]), 0)

    def test_a_damaged_map_of_a_directory_refuses(self):
        with Listed("a", "placement: '1:0=1024'\n") as cluster:
            cluster.start("a")
            cluster.end("a")
            whole = identity(cluster, "a")
            self.assertNotIn("placement", whole)  # of one shard it is the even one
            for damage in ({"version": 2}, {"version": 2, "placement": {"version": 1, "base": 1, "runs": [0, 1023]}},
                           {"placement": {"version": 1, "base": 1, "runs": [1, 1024]}}, {"placement": 1}):
                with open(cluster.path("a/identity.json"), "w", encoding="ascii") as file:
                    json.dump({**whole, **damage}, file)
                with self.assertRaisesRegex(NotReady, "identity.json has a placement that is not a map of its shards"):
                    cluster.start("a")

    def test_weights_divide_the_keys_among_hosts_of_different_size(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            port = free_ports(3)
            file.write("cluster:\n  servers:\n"
                       f'    - {{name: a, listen: "127.0.0.1:{port}", shards: 2, weight: 3}}\n'
                       f'    - {{name: b, listen: "127.0.0.1:{port + 2}", weight: 2}}\n')
            file.flush()
            with Embd("--config", file.name, "--server", "b", listen=None, waits=False) as server:
                server.addresses = [f"127.0.0.1:{port + 2}"]
                server.wait_log("ready")
                with wire.connect(server) as peer:
                    self.assertEqual(peer.call("cluster", {})[0]["placement"],
                                     {"version": 1, "base": 3, "runs": [0, 384, 1, 384, 2, 256]})


class Copies(unittest.TestCase):
    """Dumps and snapshots of one map on another."""

    def test_dumps_and_snapshots_load_onto_any_map(self):
        maps = "1:even", "1:0=1000,1=24", "1:1=3,0=600,1=421"
        for source in maps:
            with Embd("--placement", source, "--data-dir", self.folder("data"), shards=2) as server, connect(server) as client:
                expected = {}
                for partition, fields in PARTITIONS.items():
                    _, expected[partition], keys = train(client, 5, name=partition, **fields)
                client.dump(self.folder("dump", make=False))
                client.snapshot("whole")
            for target in maps:
                for path in self.path("dump"), self.path("data/whole"):
                    with Embd("--placement", target, shards=2) as server, connect(server) as client:
                        client.load(path)
                        for partition, fields in PARTITIONS.items():
                            keys = np.repeat(np.arange(KEYS, dtype=np.uint64), fields.get("slots", 1))
                            np.testing.assert_array_equal(client.table(partition).pull(keys), expected[partition])

    def test_a_start_takes_no_snapshot_of_another_map(self):
        with Embd("--placement", "1:0=1000,1=24", "--data-dir", self.folder("data"), shards=2) as server, connect(server) as client:
            train(client, 5)
            client.snapshot("whole")
        self.folder("other")
        shutil.copytree(self.path("data/whole"), self.path("other/whole"))
        with self.assertRaisesRegex(NotReady, "its placement of keys on shards is not that of this cluster; use embctl load"):
            Embd("--data-dir", self.path("other"), "--restore", "whole", shards=2).kill()

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="embd-test-")
        self.addCleanup(shutil.rmtree, self.top)

    def path(self, name):
        return os.path.join(self.top, name)

    def folder(self, name, make=True):
        shutil.rmtree(self.path(name), ignore_errors=True)
        if make:
            os.mkdir(self.path(name))
        return self.path(name)


if __name__ == "__main__":
    clusters.main()
