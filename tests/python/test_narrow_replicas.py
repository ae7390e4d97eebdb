"""Replicas with `serve_dtype`: rows as f16, i8 or another dtype and no optimizer state, taken in rounds. Their rows are the
cluster's, rounded by the rule of the dtype, of one step of each shard's table, and never of an earlier one than before; what such
a replica cannot do it refuses; it outlives kills of either side, tables that come and go, keys that move, and parts that are
lost, doubled or changed on their way."""
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import msgpack
import numpy as np

import clusters
import embd
import wire
from certificates import Authority, Tokens
from embd_process import Embd, run
from ports import free_ports
from test_follow import unpacker

SHARDS, DIM, LONG_S = 2, 8, 90
f32 = np.float32
ADAM = embd.Optimizer("adam", lr=0.1)
EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
EMULATED = os.path.join(os.environ["EMBD_BIN"], "embd-cuda-emulated")


def narrowed(rows, dtype):
    """The rows as the dtype has them, by SEMANTICS.md, as f32."""
    if dtype == "f16":
        return rows.astype(np.float16).astype(f32)
    if dtype == "bf16":
        bits = rows.view(np.uint32).astype(np.uint64)
        return (((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)).view(f32)
    if dtype == "i8":
        scale = np.max(np.abs(rows), axis=1, keepdims=True) / f32(127)
        with np.errstate(invalid="ignore", divide="ignore"):
            codes = np.where(scale > 0, np.rint(rows / scale), f32(0)).astype(f32)
        return (np.clip(codes, -127, 127) + f32(0)) * scale  # there is one zero
    return rows


def row_bytes(dtype, dim):
    return 4 + (dim + 3) // 4 * 4 if dtype in ("i8", "e4m3") else dim * {"f32": 4, "f16": 2, "bf16": 2}[dtype]


def kept_as(own, dtype, dim):
    """A row never becomes wider."""
    return dtype if row_bytes(dtype, dim) < row_bytes(own, dim) else own


def rows_of(table):
    """{(slot, stored key): row}"""
    found = {}
    for batch in table.scan():
        slots = batch.slots if batch.slots is not None else np.zeros(batch.keys.size, np.uint16)
        found.update(zip(zip(slots.tolist(), batch.keys.tolist()), batch.values))
    return found


class Narrow(unittest.TestCase):
    on_gpu = ""  # which of the two has its rows there

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="embd-narrow-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.ports = [free_ports(SHARDS) for _ in range(2)]
        self.admin = os.path.join(self.dir, "admin")
        self.primary = self.start_primary()
        self.client = embd.connect(self.primary.addresses[0], deadline=LONG_S)
        self.addCleanup(self.client.close)

    def start(self, *flags, port=None, **options):
        server = Embd("--http", "off", *flags, shards=SHARDS, listen=f"127.0.0.1:{port or free_ports(SHARDS)}", **options)
        self.addCleanup(server.kill)
        return server

    def start_primary(self):
        data = os.path.join(self.dir, "data")
        os.makedirs(data, exist_ok=True)
        return self.start("--data-dir", data, *self.gpu("primary")[0], port=self.ports[0], admin=self.admin, ready_s=LONG_S,
                          **self.gpu("primary")[1])

    def gpu(self, who):
        return (("--store", "cuda"), {"program": EMULATED}) if self.on_gpu == who else ((), {})

    def start_replica(self, dtype="f16", *flags, follow=None, port=None):
        return self.start("--follow", follow or self.primary.admin_path(0), "--serve", "yes", "--serve-dtype", dtype, *flags,
                          *self.gpu("replica")[0], port=port, waits=False, **self.gpu("replica")[1])

    def until(self, what, replica, seconds=LONG_S):
        end, last = time.monotonic() + seconds, None
        while time.monotonic() < end:
            try:
                last = what()
                if last:
                    return last
            except (wire.RpcError, embd.Error, OSError) as error:
                last = error
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {last}\n{replica.log()}")

    def tables(self, server, shard):
        """{name: (id, step, rows, dtype)}"""
        with wire.Wire(server.admin_path(shard)) as peer:
            names = [table["name"] for table in peer.call("tables")[0]["tables"]]
            found = {name: peer.call("table_describe", {"name": name})[0] for name in names}
            return {name: (d["id"], d["step"], d["rows"], d["schema"]["dtype"]) for name, d in found.items()}

    def describes_alike(self, replica, dtype, dim, but):
        for shard in range(SHARDS):
            there, here = self.tables(self.primary, shard), self.tables(replica, shard)
            expected = {name: (*known[:3], kept_as(known[3], dtype, dim.get(name, DIM))) for name, known in there.items()
                        if name not in but}
            if expected != here:
                return False
        return True

    def same(self, replica, dtype="f16", dim={}, but=()):
        """Waits until both have the same steps and numbers of rows, and compares the rows. Nothing is pushed."""
        time.sleep(0.01)  # answers that are on their way
        self.until(lambda: self.serves(replica) and self.describes_alike(replica, dtype, dim, but), replica)
        rng = np.random.default_rng(1)
        with embd.connect(replica.addresses[0], deadline=LONG_S) as other:
            for name in self.client.tables():
                if name in but:
                    continue
                there, here = self.client.table(name), other.table(name)
                expected = rows_of(there)
                found = self.until(lambda: (rows := rows_of(here)) and rows.keys() == expected.keys() and rows or not expected, replica)
                self.assertEqual(here.state_floats, 0)
                width = dim.get(name, DIM)
                as_kept = kept_as(there.schema.dtype, dtype, width)
                if expected:
                    rows = narrowed(np.stack(list(expected.values())), as_kept)
                    np.testing.assert_array_equal(np.stack([found[key] for key in expected]).view(np.uint32), rows.view(np.uint32))
                if there.schema.slots == 1 and there.schema.dtype in ("f32", as_kept):  # others are rounded twice there
                    keys = rng.integers(0, 1 << 40, 50).astype(np.uint64)  # absent: first values
                    np.testing.assert_array_equal(here.pull(keys), narrowed(there.pull(keys), as_kept))

    def serves(self, replica):
        for shard in range(SHARDS):
            with wire.connect(replica, shard) as peer:
                if "loading" in peer.call("hello", {"protocol": 1})[0]:
                    return False
        return True


class Rows(Narrow):
    dim = {"small": 2, "slots": 4}

    def make(self):
        c = self.client
        c.create_table("plain", DIM, combiner="concat", optimizer=ADAM)
        c.create_table("half", DIM, combiner="concat", dtype="f16", rounding="master", optimizer=ADAM)
        c.create_table("brain", DIM, dtype="bf16", optimizer=embd.Optimizer("adagrad", lr=0.1), combiner="concat")
        c.create_table("small", 2, dtype="f16", combiner="concat")  # which i8 would make no smaller
        c.create_table("codes", DIM, dtype="i8", combiner="concat", initializer=embd.Initializer("normal", 0, 1))
        c.create_table("full", DIM, capacity=150, on_full="evict_lfu", combiner="concat", optimizer=ADAM)
        c.create_table("old", DIM, capacity=150, on_full="evict_ttl", ttl=3, combiner="concat")
        c.create_table("picky", DIM, admit_after=3, combiner="concat", partition="modulo")
        c.create_table("slots", 4, slots=2, slot_sizes=[1000, 5000], partition="slot", combiner="concat", optimizer=ADAM)
        c.create_table("all", DIM, combiner="concat", optimizer=embd.Optimizer("momentum", lr=0.1, update="global"))
        c.create_table("pulled", DIM, combiner="concat", create_on="pull", durability="snapshot")
        c.create_table("lazy", DIM, combiner="concat", optimizer=embd.Optimizer("adam", lr=0.1, update="lazy_global"))
        for i in range(12):  # more than others may subscribe to
            c.create_table(f"more{i}", DIM, combiner="concat")

    def change(self, rng):
        for name in self.client.tables():
            table, width = self.client.table(name), self.dim.get(name, DIM)
            n = 2 * int(rng.integers(10, 60))
            keys = rng.integers(0, 1000, n).astype(np.uint64)
            try:
                table.push(keys, rng.standard_normal((n, width), dtype=f32))
            except embd.FullError:  # nothing has expired
                self.assertEqual(name, "old")
            if rng.random() < 0.4:
                table.erase(2 * rng.integers(0, 500, 10).astype(np.uint64) if name != "slots" else keys[:10])
            if name == "pulled":
                table.pull(rng.integers(0, 1000, 20).astype(np.uint64))

    def test_rows_are_the_servers_rounded_by_the_rule_of_the_dtype(self):
        self.make()
        rng = np.random.default_rng(7)
        self.change(rng)
        replicas = {dtype: self.start_replica(dtype) for dtype in ("f16", "i8", "f32")}
        for _ in range(3):
            for dtype, replica in replicas.items():
                with self.subTest(dtype):
                    self.same(replica, dtype, self.dim, but=("lazy",))
            for _ in range(4):
                self.change(rng)
        log = replicas["i8"].log()
        self.assertRegex(log, "replica_leaves_out shard=0 table=lazy why=.*change without a push")
        self.assertNotIn("table=plain why", log)  # it was taken once
        for dtype in ("i8", "f16"):
            replicas[dtype].kill()
        replica = self.start_replica("bf16")
        self.same(replica, "bf16", self.dim, but=("lazy",))
        self.assertEqual(replica.stop(), 0)
        self.assertEqual(replicas["f32"].stop(), 0)

    def test_its_own_row_memory_refuses_nothing(self):
        table = self.client.create_table("items", DIM, combiner="concat")
        table.push(np.arange(40000), np.ones((40000, DIM), f32))
        replica = self.start_replica("f16", "--row-memory", "256K")
        self.same(replica)
        replica.wait_log("row_memory_low", LONG_S)

    def test_rows_take_less_memory(self):
        table, n = self.client.create_table("items", 32, combiner="concat", optimizer=ADAM), 20000
        table.push(np.arange(n), np.ones((n, 32)))

        def bytes_of(server):
            total = 0
            for shard in range(SHARDS):
                with wire.Wire(server.admin_path(shard)) as peer:
                    total += peer.call("stats")[0]["stats"]["row_memory_bytes"]
            return total / n
        wide = bytes_of(self.primary)
        self.assertGreater(wide, 3 * 4 * 32)
        for dtype, bytes_of_row in ("f32", 128), ("f16", 64), ("i8", 36):
            replica = self.start_replica(dtype)
            self.same(replica, dtype, {"items": 32})
            found = bytes_of(replica)
            replica.kill()
            self.assertGreaterEqual(found, bytes_of_row)
            self.assertLess(found, bytes_of_row + 40)  # the key, and room to grow


class OnGpus(Narrow):
    on_gpu = "replica"

    def test_rows_change_and_tables_go_on_gpus(self):
        rng, keys = np.random.default_rng(5), np.arange(400, dtype=np.uint64)
        kept = self.client.create_table("kept", DIM, combiner="concat", optimizer=ADAM)
        kept.push(keys, rng.standard_normal((keys.size, DIM), dtype=f32))
        replicas = {dtype: self.start_replica(dtype) for dtype in ("f16", "i8")}
        for turn in range(3):
            self.client.create_table(f"t{turn}", DIM, combiner="concat").push(keys[:50], np.ones((50, DIM), f32))
            if turn > 0:
                self.client.drop_table(f"t{turn - 1}")
            kept.push(rng.integers(0, 500, 100).astype(np.uint64), rng.standard_normal((100, DIM), dtype=f32))
            kept.erase(rng.integers(0, 500, 20).astype(np.uint64))
            for dtype, replica in replicas.items():
                self.same(replica, dtype)
        for replica in replicas.values():
            self.assertEqual(replica.stop(), 0)


class OfGpus(OnGpus):
    on_gpu = "primary"


class Lives(Narrow):
    def test_tables_come_and_go_and_both_sides_are_killed(self):
        rng, stop = np.random.default_rng(3), threading.Event()
        kept = self.client.create_table("kept", DIM, combiner="concat", optimizer=ADAM, durability="durable")
        self.client.create_table("reborn", DIM, combiner="concat")
        keys = np.arange(3000, dtype=np.uint64)
        kept.push(keys, np.ones((keys.size, DIM), f32))
        replica = self.start_replica(port=self.ports[1])
        self.same(replica)
        errors = []

        def read():
            try:
                with embd.connect(self.primary.addresses[0], readers=replica.addresses[0], deadline=LONG_S) as reader:
                    table = reader.table("kept")
                    while not stop.is_set():
                        self.assertTrue(np.isfinite(table.pull(keys[:100])).all())
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        reader = threading.Thread(target=read)
        reader.start()
        for turn in range(4):
            for _ in range(5):
                some = rng.integers(0, 4000, 500).astype(np.uint64)
                kept.push(some, rng.standard_normal((some.size, DIM), dtype=f32))
            kept.erase(rng.integers(0, 4000, 100).astype(np.uint64))
            self.client.drop_table("reborn")
            new = self.client.create_table("reborn", DIM, combiner="concat", dtype=("f32", "f16")[turn % 2],
                                           initializer=embd.Initializer("constant", turn))
            new.push(keys[:50 + turn], np.ones((50 + turn, DIM), f32))
            other = self.client.create_table(f"other{turn}", DIM, combiner="concat")
            other.push(keys[:10], np.ones((10, DIM), f32))
            if turn > 0:
                self.client.drop_table(f"other{turn - 1}")
            if turn % 2:
                replica.kill()
                replica = self.start_replica(port=self.ports[1])
            else:
                self.primary.kill()
                self.primary = self.start_primary()
            self.same(replica)
        stop.set()
        reader.join(LONG_S)
        self.assertEqual(errors, [])
        self.assertEqual(replica.stop(), 0)

    def test_keys_move(self):
        table = self.client.create_table("items", DIM, combiner="concat", optimizer=ADAM)
        keys, stop, errors = np.arange(4000, dtype=np.uint64), threading.Event(), []
        table.put(keys, np.repeat(keys.astype(f32)[:, None], DIM, 1))
        replica = self.start_replica("f32")
        self.same(replica, "f32")

        def read():
            try:
                with embd.connect(self.primary.addresses[0], readers=replica.addresses[0], deadline=LONG_S) as reader:
                    while not stop.is_set():
                        np.testing.assert_array_equal(reader.table("items").pull(keys)[:, 0], keys.astype(f32))
            except BaseException as error:  # noqa: BLE001
                errors.append(error)
        reader = threading.Thread(target=read)
        reader.start()
        admins = embd.connect(self.primary.addresses[0], deadline=LONG_S)
        for weights in [1, 3], [3, 1]:
            admins.rebalance(weights)
            self.same(replica, "f32")
        admins.close()
        stop.set()
        reader.join(LONG_S)
        self.assertEqual(errors, [])
        self.assertIn("placement_taken shard=0 version=3", replica.log())

    def test_a_pull_shows_one_round_and_tells_how_old_it_is(self):
        table = self.client.create_table("items", 4, combiner="concat", optimizer=embd.Optimizer("sgd", lr=1.0),
                                         initializer=embd.Initializer("constant", 0.0), durability="buffered")
        keys, stop, errors, n_seen = np.arange(120000, dtype=np.uint64), threading.Event(), [], [0]
        table.push(keys, np.zeros((keys.size, 4), f32))
        replica = self.start_replica("f16")
        self.same(replica, "f16", {"items": 4})
        own = [key for key in keys[::20].tolist() if wire.owner(key, SHARDS) == 0]

        def pull(peer, **more):
            answer = peer.call("pull", {"parts": [{"table": table_id, "keys": len(own)}], **more}, wire.keys(own))
            return answer[0], np.frombuffer(answer[1], f32)

        table_id = self.tables(replica, 0)["items"][0]

        def read():
            try:
                with wire.connect(replica) as peer:
                    last = 0.0
                    while not stop.is_set():
                        try:
                            rows = pull(peer)[1]
                        except wire.RpcError as error:  # a round is applied in several turns
                            self.assertIn("has taken a part of what changed", str(error))
                            continue
                        self.assertEqual(rows.min(), rows.max())
                        self.assertGreaterEqual(rows[0], last)
                        n_seen[0] += rows[0] > last
                        last = rows[0]
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        reader = threading.Thread(target=read)
        reader.start()
        step, end = 0, time.monotonic() + LONG_S
        while n_seen[0] < 4 and reader.is_alive() and time.monotonic() < end:  # exact in f16
            table.push(keys, -np.ones((keys.size, 4), f32))
            step += 1
        stop.set()
        reader.join(LONG_S)
        self.assertEqual(errors, [])
        self.assertGreaterEqual(n_seen[0], 4)
        with wire.connect(replica) as peer:
            self.until(lambda: pull(peer)[1][0] == step, replica)
            said = self.until(lambda: (found := pull(peer, max_behind=60000)[0]) and found, replica)
            self.assertLess(said["behind_ms"], 60000)
            with wire.Wire(replica.admin_path(0)) as admin:
                stats = admin.call("stats")[0]["stats"]
            self.assertEqual((stats["follows"], stats["follow_connected"]), (1, 1))
            self.assertGreater(stats["follow_freshness_p99_us"], 0)
            self.primary.pause()
            with self.assertRaisesRegex(wire.RpcError, "ms behind, and max_behind is 100") as caught:
                end = time.monotonic() + LONG_S
                while time.monotonic() < end:
                    pull(peer, max_behind=100)
            self.assertEqual(caught.exception.number, wire.LOADING)
            self.assertEqual(pull(peer)[1][0], step)
            self.primary.go_on()
            self.until(lambda: pull(peer, max_behind=5000), replica)


    def test_a_server_that_was_deposed_gives_no_rounds(self):
        table = self.client.create_table("items", DIM, combiner="concat")
        table.push([1], np.ones((1, DIM)))
        replica = self.start_replica("f16")
        self.same(replica)
        follower = self.start("--data-dir", tempfile.mkdtemp(dir=self.dir), "--follow", self.primary.admin_path(0), waits=False)
        for shard in range(SHARDS):
            follower.wait_log(f"follow_has_base shard={shard}", LONG_S)
        promote = [EMBCTL, "--servers", follower.admin_path(0), "promote"]
        self.until(lambda: subprocess.run(promote, capture_output=True, text=True, timeout=60).returncode == 0, follower)
        self.primary.wait_log("deposed", LONG_S)
        self.until(lambda: "follow_lost" in replica.log(), replica)
        table_id = self.tables(replica, 0)["items"][0]
        own = next(key for key in range(100) if wire.owner(key, SHARDS) == 0)
        with wire.connect(replica) as peer:
            pull = {"parts": [{"table": table_id, "keys": 1}]}
            peer.call("pull", pull, wire.keys([own]))

            def is_behind():
                try:
                    peer.call("pull", {**pull, "max_behind": 500}, wire.keys([own]))
                except wire.RpcError as error:
                    return "ms behind" in str(error)
                return False
            self.until(is_behind, replica)

    def test_a_table_has_seven_and_the_eighth_is_left_out(self):
        table = self.client.create_table("items", DIM, combiner="concat")
        table.push(range(50), np.ones((50, DIM)))
        self.client.create_table("others", DIM, combiner="concat").push(range(50), np.ones((50, DIM)))
        peers = []
        for _ in range(7):
            peers.append(wire.connect(self.primary))
            self.addCleanup(peers[-1].close)
            peers[-1].call("changes", {"table": "items"})
        replica = self.start_replica("f16")
        replica.wait_log("replica_leaves_out shard=0 table=items why=", LONG_S)
        replica.wait_log("replica_has_table shard=0 table=others", LONG_S)
        self.assertNotIn("items", self.tables(replica, 0))
        peers[0].close()
        self.same(replica)


class Refusals(Narrow):
    def test_what_it_cannot_do_it_refuses(self):
        table = self.client.create_table("items", DIM, combiner="concat", optimizer=ADAM)
        table.push(range(100), np.ones((100, DIM)))
        replica = self.start_replica("i8")
        self.same(replica, "i8")
        says = "a replica of .* with rows as i8 and without optimizer state.*cannot be changed, compared, saved or promoted"
        with embd.connect(replica.addresses[0], deadline=LONG_S) as other:
            for change in (lambda: other.table("items").push([1], np.ones((1, DIM))), lambda: other.table("items").erase([1]),
                           lambda: other.drop_table("items"), lambda: other.create_table("new", DIM),
                           lambda: other.table("items").put([1], np.ones((1, DIM)))):
                with self.assertRaisesRegex(embd.UnsupportedError, says):
                    change()
        path = replica.admin_path(0)
        for server, *command in ((path, "promote"), (path, "snapshot", "now"), (path, "dump", "items", os.path.join(self.dir, "d")),
                                 (self.primary.admin_path(0), "digest", "--against", path)):
            with self.subTest(command):
                done = subprocess.run([EMBCTL, "--servers", server, *command], capture_output=True, text=True, timeout=60)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, says)
        follower = self.start("--data-dir", tempfile.mkdtemp(dir=self.dir), "--follow", path, waits=False)
        follower.wait_log("without optimizer state", LONG_S)
        second = self.start_replica("f16", follow=path)
        second.wait_log("without optimizer state", LONG_S)
        self.same(replica, "i8")

    def test_settings_that_do_not_go_together(self):
        follow = "--follow", self.primary.admin_path(0)
        for flags, says in [(("--serve-dtype", "f16"), "--serve-dtype: is for a replica: set follow and serve, too"),
                            ((*follow, "--serve-dtype", "f16"), "set follow and serve, too"),
                            ((*follow, "--serve", "yes", "--serve-dtype", "i4"), "is 'i4', expected f32, f16, bf16, i8 or e4m3"),
                            ((*follow, "--serve", "yes", "--serve-dtype", "i8", "--data-dir", self.dir), "leave out data_dir"),
                            ((*follow, "--serve", "yes", "--serve-dtype", "i8", "--promote"), "cannot be promoted"),
                            ((*follow, "--serve", "yes", "--serve-dtype", "i8", "--digest-interval", "5"), "leave out digest_interval"),
                            ((*follow, "--serve", "yes"), "needs a data_dir")]:
            with self.subTest(flags):
                done = run("--check", *flags)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(says, done.stderr)

    def test_another_number_of_shards_is_told(self):
        replica = Embd("--http", "off", "--follow", self.primary.admin_path(0), "--serve", "yes", "--serve-dtype", "f16", shards=1,
                       waits=False)
        self.addCleanup(replica.kill)
        replica.wait_log("has 2 shards, this server has 1: set shards to as many", LONG_S)


class Far(unittest.TestCase):
    def test_it_follows_by_tls_and_a_token_which_has_more_subscriptions_than_others(self):
        folder = tempfile.mkdtemp(prefix="embd-narrow-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        ca, tokens, port = Authority(folder, "ca"), Tokens(folder), free_ports(2 * SHARDS)
        cert, key = ca.issue("server")
        for name, role in ("root", "admin"), ("reads", "reader"):
            tokens.add(name, role)
        flags = "--http", "off", "--tokens", tokens.path, "--tls-cert", cert, "--tls-key", key
        primary = Embd(*flags, "--data-dir", tempfile.mkdtemp(dir=folder), "--admin-listen", f"127.0.0.1:{port + SHARDS}",
                       shards=SHARDS, listen=f"127.0.0.1:{port}")
        self.addCleanup(primary.kill)
        replica = Embd(*flags, "--follow", f"127.0.0.1:{port + SHARDS}", "--follow-token", tokens.file("root"), "--peer-ca", ca.path,
                       "--serve", "yes", "--serve-dtype", "f16", shards=SHARDS, waits=False)
        self.addCleanup(replica.kill)
        keys, secured = np.arange(100, dtype=np.uint64), {"tls_ca": ca.path, "deadline": LONG_S}
        with embd.connect(primary.addresses[0], token_file=tokens.file("root"), **secured) as client:
            for i in range(20):
                client.create_table(f"t{i}", DIM, combiner="concat").put(keys, np.full((keys.size, DIM), i, f32))
            for shard in range(SHARDS):
                for i in range(20):
                    replica.wait_log(f"replica_has_table shard={shard} table=t{i} ", LONG_S)
            rounds = embd.follow(client, "t0", interval=0)  # beside them
            self.assertEqual(next(rounds).keys.size, keys.size)
            rounds.close()
        end = time.monotonic() + LONG_S
        with embd.connect(replica.addresses[0], token_file=tokens.file("reads"), **secured) as client:
            for i in range(20):
                while not (client.table(f"t{i}").pull(keys) == i).all():
                    self.assertLess(time.monotonic(), end)
        self.assertNotIn("replica_leaves_out", replica.log())


class Between:
    """Admin sockets in another directory, which pass frames, and do with an answer to `changes` what `tamper` says. Questions of
    shard 0 for a method in `gates` wait for its event, and are in `held` then."""

    def __init__(self, server, folder):
        self.server, self.folder, self.tamper, self.n_tampered, self.listeners = server, folder, None, 0, []
        self.gates, self.held = {}, set()
        for shard in range(SHARDS):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self.path(shard))
            listener.listen()
            self.listeners.append(listener)
            threading.Thread(target=self.accept, args=(listener, shard), daemon=True).start()

    def path(self, shard):
        return os.path.join(self.folder, f"{shard}.sock")

    def close(self):
        for listener in self.listeners:
            listener.close()

    def accept(self, listener, shard):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client, shard), daemon=True).start()

    def serve(self, client, shard):
        with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:  # the replica leaves
            server.connect(self.server.admin_path(shard))
            reading, answers, before = unpacker(), unpacker(), None
            while data := client.recv(1 << 20):
                reading.feed(data)
                for message in reading:
                    if shard == 0 and message[2] in self.gates:
                        self.held.add(message[2])
                        self.gates[message[2]].wait(LONG_S)
                    answer = self.ask(server, answers, message)
                    if message[2] == "cluster":
                        for i, place in enumerate(answer[3][0]["shards"]):
                            place["admin"] = self.path(i)
                    if message[2] == "changes":
                        is_part = answer[3] and answer[3][0]["part"] > 1 and before
                        kept = answer
                        if is_part and self.tamper and len(answer[3][3]):
                            answer = self.tampered(server, answers, message, answer, before)
                        before = kept
                    client.sendall(msgpack.packb(answer, use_bin_type=True))

    def ask(self, server, answers, message):
        server.sendall(msgpack.packb(message, use_bin_type=True))
        while True:
            for answer in answers:
                return answer
            answers.feed(server.recv(1 << 20))

    def tampered(self, server, answers, message, answer, before):
        tamper, self.tamper = self.tamper, None
        self.n_tampered += 1
        if tamper == "doubled":
            return [1, message[1], None, before[3]]
        if tamper == "changed":
            rows = bytearray(answer[3][3])
            rows[len(rows) // 2] ^= 1
            return [1, message[1], None, [*answer[3][:3], bytes(rows), *answer[3][4:]]]
        if tamper == "step":
            return [1, message[1], None, [{**answer[3][0], "step": answer[3][0]["step"] + 1}, *answer[3][1:]]]
        part = answer[3][0]  # lost: the one behind it comes in its place
        question = {**message[3][0], "id": part["id"], "part": part["part"], "chain": part["chain"]}
        return self.ask(server, answers, [0, message[1], "changes", [question]])


class Tampered(Narrow):
    def test_rows_of_a_later_map_are_not_shown_by_an_earlier_one(self):
        table = self.client.create_table("items", DIM, combiner="concat", initializer=embd.Initializer("constant", -1.0))
        keys = np.arange(2000, dtype=np.uint64)
        table.put(keys, np.repeat(keys.astype(f32)[:, None], DIM, 1))
        between = Between(self.primary, tempfile.mkdtemp(dir=self.dir))
        self.addCleanup(between.close)
        between.gates["changes"] = threading.Event()
        replica = self.start_replica("f32", follow=between.path(0))
        self.until(lambda: "changes" in between.held, replica)  # it has the map, and no rows
        self.client.rebalance([1, 7])
        between.gates["cluster"] = threading.Event()
        between.gates["changes"].set()
        self.until(lambda: "cluster" in between.held, replica)  # it has all rows that are left on shard 0
        table_id, own = self.tables(self.primary, 0)["items"][0], [key for key in keys.tolist() if wire.owner(key, SHARDS) == 0]
        with wire.connect(replica) as peer, self.assertRaises(wire.RpcError) as caught:
            peer.call("pull", {"parts": [{"table": table_id, "keys": len(own)}]}, wire.keys(own))
        self.assertEqual(caught.exception.number, wire.LOADING)
        between.gates["cluster"].set()
        self.same(replica, "f32")

    def test_a_part_that_is_lost_doubled_or_changed_is_seen_and_all_tables_are_taken_anew(self):
        table = self.client.create_table("items", 32, combiner="concat")
        keys, rng = np.arange(24000, dtype=np.uint64), np.random.default_rng(1)  # several parts
        table.put(keys, rng.standard_normal((keys.size, 32), dtype=f32))
        folder = tempfile.mkdtemp(dir=self.dir)
        between = Between(self.primary, folder)
        self.addCleanup(between.close)
        replica = self.start_replica("f16", follow=between.path(0))
        self.same(replica, "f16", {"items": 32})
        n = 0
        for tamper, says in [("lost", "lost, doubled or swapped"), ("doubled", "lost, doubled or swapped"),
                             ("changed", "changed on its way"), ("step", "changed on its way")]:
            with self.subTest(tamper):
                between.tamper = tamper
                table.put(keys, rng.standard_normal((keys.size, 32), dtype=f32))
                table.push(keys[:1], np.zeros((1, 32), f32))  # a step, to know the rows by
                n += 1
                self.until(lambda: between.n_tampered == n, replica)
                self.until(lambda: replica.log().count("follow_lost") == n and replica.log().rsplit("follow_lost", 1)[1].count(says) == 1,
                           replica)
                self.same(replica, "f16", {"items": 32})


if __name__ == "__main__":
    clusters.main()
