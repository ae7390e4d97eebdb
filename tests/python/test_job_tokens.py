"""Jobs whose trainers have tokens of their own, on one cluster of three server processes: each makes checkpoints of its job
and goes back to them beside the other; what is not its own it cannot name, and nothing changes where it tries."""
import contextlib
import functools
import os
import shutil
import signal
import sys
import tempfile
import threading
import unittest

import clusters
from certificates import Authority, Tokens
from ports import free_ports
import wire

import embd
import numpy as np

FIELDS = {"optimizer": embd.Optimizer("sgd", lr=1.0), "initializer": embd.Initializer("constant", 0)}
KEYS = range(30)
ONES = np.ones((30, 1), np.float32)
INVALID, EXISTS, FULL, BUSY, DENIED, UNSUPPORTED = 1, wire.EXISTS, wire.FULL, wire.BUSY, 20, 7


class Cluster:
    """Three processes with one list of tokens. They and their clients reach each other by TLS alone, as on hosts of their
    own; or, not `far`, by the sockets of one host."""

    def __init__(self, test, far=True, peer_token=True):
        self.test, self.far = test, far
        folder = tempfile.TemporaryDirectory(prefix="embd-job-tokens-")
        test.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.tokens = Tokens(self.folder)
        for name, role, tables in (("a", "trainer", "a_"), ("b", "trainer", "b_"), ("root", "admin", "*"),
                                   ("ps", "server", "*"), ("all", "trainer", "*"), ("c", "trainer", "c_")):
            self.tokens.add(name, role, tables, "snapshots=2 snapshot_bytes=64K row_bytes=1M tables=2" if name == "c" else "")
        self.data = [os.path.join(self.folder, f"data{i}") for i in range(3)]
        for path in self.data:
            os.mkdir(path)
        port = free_ports(6)
        secured = ""
        if far:
            self.ca = Authority(self.folder, "ca")
            cert, key = self.ca.issue("server")
            self.peer_ca = shutil.copy(self.ca.path, os.path.join(self.folder, "peer-ca.pem"))
            secured = f"tls_cert: {cert}\ntls_key: {key}\npeer_ca: {self.peer_ca}\n"
            secured += f"peer_token: {self.tokens.file('ps')}\n" if peer_token else ""
        self.config = os.path.join(self.folder, "embd.yaml")
        with open(self.config, "w", encoding="ascii") as file:
            file.write(f"http: off\nadmin_dir: {self.folder}/admin\ntokens: {self.tokens.path}\n{secured}cluster:\n  servers:\n")
            for i in range(3):
                admin = f', admin_listen: "127.0.0.1:{port + 3 + i}"' if far else ""
                file.write(f'    - {{name: s{i}, listen: "127.0.0.1:{port + i}"{admin}}}\n')
        self.servers = [None] * 3
        for i in range(3):
            self.start(i)

    def start(self, i):
        sockets = os.path.join(self.folder, f"admin{i}" if self.far else "admin")
        server = clusters.Embd("--config", self.config, "--server", f"s{i}", "--data-dir", self.data[i], "--admin-dir", sockets,
                               listen=None)
        self.test.addCleanup(server.kill)
        if self.far and i == 1:  # which clients ask for the map: the sockets in it are not there
            os.rename(sockets, f"{sockets}.{server.pid}")
        self.servers[i] = server

    def connect(self, name, **options):
        authority = {"tls_ca": self.ca.path} if self.far else {}
        client = embd.connect(self.servers[1].addresses[0], deadline=30, token_file=self.tokens.file(name), **authority, **options)
        self.test.addCleanup(client.close)
        return client

    def job(self, name, **options):
        """A job of that token, and its table."""
        client = self.connect(name)
        job = embd.Job(client, f"{name}_job", self.data, **options)
        return job, job.table("t", 1, durability="durable", **FIELDS)

    def admin(self, name, shard=0):
        """A connection to a shard's admin socket, with that token."""
        port = self.servers[shard].port()
        peer = wire.Wire(os.path.join(self.folder, f"admin{shard}" if self.far else "admin", f"{port}.sock"))
        self.test.addCleanup(peer.close)
        with open(self.tokens.file(name), encoding="ascii") as file:
            peer.call("hello", {"protocol": 1, "token": file.read().strip()})
        return peer

    def state(self):
        """All that is on the disks but journals, and all rows."""
        files = sorted(os.path.relpath(os.path.join(at, name), self.folder) for path in self.data
                       for at, _, names in os.walk(path) for name in names if "journal" not in name)
        with self.connect("root") as client:
            return files, {name: client.table(name).pull(KEYS).tolist() for name in client.tables()}


def values(table):
    return table.pull(KEYS)


class Jobs(unittest.TestCase):
    def test_two_jobs_go_back_beside_each_other(self):
        cluster = Cluster(self)
        (a, mine), (b, theirs) = cluster.job("a", keep=2), cluster.job("b", keep=2)
        mine.push(KEYS, ONES)
        a.checkpoint(1, blobs={"place": b"line 7"})
        kept = values(mine)
        over, failed = threading.Event(), []

        def go_on():
            step = 0
            while not over.is_set():
                step += 1
                try:
                    theirs.push(KEYS, ONES)
                    b.checkpoint(step)
                except embd.Error as error:
                    failed.append(error)
                    return
        beside = threading.Thread(target=go_on)
        beside.start()
        with contextlib.ExitStack() as stack:
            stack.callback(beside.join)
            stack.callback(over.set)
            for step in range(2, 5):
                mine.push(KEYS, ONES)
                a.checkpoint(step, blobs={"place": b"line %d" % step})
                kept = values(mine)
            mine.push(KEYS, ONES)
        self.assertEqual(failed, [])
        there = values(theirs)
        for i in (0, 2):
            cluster.servers[i].kill()
            cluster.start(i)
        again, table = cluster.job("a", keep=2)
        at = again.resume()
        self.assertEqual((at.step, at.blobs), (4, {"place": b"line 4"}))
        np.testing.assert_array_equal(values(table), kept)
        np.testing.assert_array_equal(values(cluster.connect("b").table("b_job--t")), there)
        for path in cluster.data:
            self.assertEqual(sorted(n for n in os.listdir(path) if n.startswith("a_job")), ["a_job-3", "a_job-4"])
            self.assertIn(len([n for n in os.listdir(path) if n.startswith("b_job")]), (1, 2))

    def test_two_loads_go_on_through_a_compacted_journal_and_kill_9(self):
        folder = tempfile.TemporaryDirectory(prefix="embd-two-loads-")
        self.addCleanup(folder.cleanup)
        tokens = Tokens(folder.name)
        secret = {name: tokens.add(name, "trainer", f"{name}_") for name in "ab"}
        secret["root"] = tokens.add("root", "admin")
        serve = functools.partial(clusters.Embd, "--http", "off", "--data-dir", folder.name, "--tokens", tokens.path,
                                  "--journal-limit", "64K")

        def connected(address, name):
            peer = wire.Wire(address)
            self.addCleanup(peer.close)
            peer.call("hello", {"protocol": 1, "token": secret[name]})
            return peer
        server = serve()
        self.addCleanup(lambda: server.kill())  # pylint: disable=unnecessary-lambda
        root = connected(("127.0.0.1", server.port()), "root")
        tables = {name: wire.create(root, f"{name}_t", durability="durable") for name in "ab"}
        loaders = {name: connected(server.admin_path(), name) for name in "ab"}

        def load(first):
            rows = range(first, first + 1000)
            for at, name in enumerate("ab", 1):
                loaders[name].call("load", {"table": f"{name}_t", "rows": 1000, "candidates": 0, "staged": at}, wire.keys(rows),
                                   wire.floats([float(at + row % 7) for row in rows for _ in range(4)]), b"", b"")
        for at, name in enumerate("ab", 1):
            loaders[name].call("table_stage", {"id": at, "schema": wire.constant_schema(f"{name}_t", durability="durable")})
        load(0)
        while not root.call("stats", {})[0]["stats"]["journal_bases"]:
            wire.push(root, tables["a"], range(200), [1.0] * 800)
        load(1000)
        for at, name in enumerate("ab", 1):
            job = {"name": f"replace-{at}"}
            loaders[name].call("snapshot", {**job, "phase": "start", "staged": at, "staged_tables": 1})
            while (told := loaders[name].call("snapshot", {**job, "phase": "progress"})[0])["state"] == "running":
                pass
            self.assertEqual(told["state"], "done", told)
        server.process.kill()
        server.wait()
        server.kill()
        server = serve()
        root = connected(("127.0.0.1", server.port()), "root")
        for at, name in enumerate("ab", 1):
            self.assertEqual(wire.pull(root, tables[name], range(2000)), [float(at + row % 7) for row in range(2000) for _ in range(4)])

    def test_servers_of_one_host_need_no_peer_token(self):
        cluster = Cluster(self, far=False)
        cluster.job("b")[1].push(KEYS, ONES)
        peer = cluster.admin("b")
        peer.call("snapshot", {"name": "b_1", "phase": "start", "job": "b_job", "tables": ["b_job--*"]})
        ask = {"name": "b_1", "phase": "progress"}
        while (told := peer.call("snapshot", ask)[0])["state"] == "running":
            pass
        self.assertEqual((told["state"], told["rows"]), ("done", 30))
        with self.assertRaises(wire.RpcError):
            cluster.admin("a").call("snapshot", ask)

    def test_without_peer_token_a_trainer_is_told_what_is_missing(self):
        cluster = Cluster(self, peer_token=False)
        job, _ = cluster.job("a")
        with self.assertRaisesRegex(embd.Error, "set peer_token on the coordinating server"):
            job.checkpoint(1)
        cluster.connect("root").snapshot("night")


class Strangers(unittest.TestCase):
    """One cluster with a checkpoint of job a; a trainer of job b that tries what is not its own."""

    @classmethod
    def setUpClass(cls):
        cls.cleanups = contextlib.ExitStack()
        cls.addCleanup = cls.cleanups.callback  # of the cluster: it lives as long as the class
        cls.cluster = Cluster(cls)
        for name in ("a", "b"):
            job, table = cls.cluster.job(name)
            table.push(KEYS, ONES)
            job.checkpoint(1, blobs={"place": b"line 7"})
        del cls.addCleanup

    @classmethod
    def tearDownClass(cls):
        cls.cleanups.close()

    def setUp(self):
        self.cluster.test = self

    def refused(self, peer, numbers, method, fields, *bins):
        with self.assertRaises(wire.RpcError, msg=f"{method} {fields}") as caught:
            peer.call(method, fields, *bins)
        self.assertIn(caught.exception.number, numbers, f"{method} {fields}: {caught.exception}")
        return caught.exception.text

    def test_what_is_not_its_own_a_trainer_cannot_name(self):
        peer, before = self.cluster.admin("b"), self.cluster.state()
        own = {"name": "b_job-9", "phase": "start", "job": "b_job", "tables": ["b_job--*"]}
        for change, word in (({"name": "a_job-9"}, "a_job-9"), ({"name": "x"}, "'x'"), ({"job": "a_job"}, "a_job"),
                             ({"tables": ["a_job--t"]}, "a_job--t"), ({"tables": ["b_job--*", "a_job--*"]}, "a_job--*"),
                             ({"tables": ["b*"]}, "'b*'"), ({"base": "a_job-1"}, "a_job-1"), ({"read": True}, "'read'"),
                             ({"staged": 7, "staged_tables": 1, "name": "a_replace"}, "a_replace")):
            self.assertIn(word, self.refused(peer, [DENIED], "snapshot", {**own, **change, "keep": 1}))
        for without, word in (("job", "'job'"), ("tables", "all tables")):
            self.assertIn(word, self.refused(peer, [DENIED], "snapshot", {k: v for k, v in own.items() if k != without}))
        for name in ("../b_job", "b_job/../a_job-1", "b_/x", "b_job-9.tmp", "b_" + 80 * "x", "b_\0"):
            self.refused(peer, [INVALID], "snapshot", {**own, "name": name})
        for name in ("a_job-1", "a_job-2", "night"):
            self.refused(peer, [DENIED], "snapshot", {"name": name, "phase": "cancel"})
            for fields in {"phase": "progress"}, {"phase": "go", "job": 1}:
                self.refused(peer, [INVALID], "snapshot", {"name": name, **fields})
            self.refused(peer, [DENIED], "snapshot", {"name": name, "phase": "blob", "blob": "x", "xxh3": 1}, b"x")
        self.refused(peer, [INVALID], "snapshot", {"name": "b_job-1", "phase": "blob", "blob": "x", "xxh3": 1}, b"x")
        for phase in ({"phase": "begin"}, {"phase": "cut"}, {"phase": "write"}, {"phase": "abort"}, {"phase": "keep", "keep": 1},
                      {"phase": "commit", "parts": []}, {"phase": "fetch", "file": "manifest.json"}):
            self.refused(peer, [DENIED], "snapshot", {"name": "b_job-1", **phase})
        for method, fields in (("hold", {}), ("release", {}), ("table_replace", {"id": 1, "phase": "apply"}), ("scan", {}),
                               ("drain", {}), ("writers", {}), ("table_stage", {"id": 1, "schema": wire.constant_schema("a_job--t")}),
                               ("load", {"table": "b_job--t", "rows": 0, "candidates": 0}),
                               ("load", {"table": "a_job--t", "rows": 0, "candidates": 0, "staged": 1}),
                               ("table_drop", {"name": "a_job--t"}), ("table_drop", {"name": "a_job--nothing"})):
            self.refused(peer, [DENIED], method, fields)
        self.assertRegex(peer.call("snapshot", {"name": "", "phase": "progress"})[0]["name"], "^b_")
        self.assertEqual(self.cluster.state(), before)

    def test_a_trainer_of_all_tables_makes_no_snapshot_of_all_tables(self):
        peer, before = self.cluster.admin("all"), self.cluster.state()
        for fields in {}, {"job": "x"}, {"tables": ["a_job--t"]}, {"read": True}:
            self.refused(peer, [DENIED], "snapshot", {"name": "x", "phase": "start", **fields})
        self.assertEqual(self.cluster.state(), before)

    def test_a_trainer_takes_no_more_room_than_its_token_has(self):
        job, table = self.cluster.job("c", keep=0)
        table.push(KEYS, ONES)
        before = self.cluster.state()

        def refused(limit, of=job, **options):
            with self.assertRaisesRegex(embd.Error, limit) as caught:
                of.checkpoint(9, **options)
            self.assertEqual(caught.exception.status, embd.Status.FULL)
        refused("snapshot_bytes in the list", blobs={"dense": bytes(65536)})
        refused("snapshot_bytes in the list", blobs={"dense": bytes(3 << 20)})
        self.assertEqual(self.cluster.state(), before)
        keys = range(1000, 25000)
        table.push(keys, np.ones((24000, 1), np.float32))
        refused("snapshot_bytes in the list")
        table.erase(keys)
        self.assertEqual(self.cluster.state(), before)
        kept = values(table)
        for step in range(2):
            job.checkpoint(step)
        other = embd.Job(job.client, "c_other", self.cluster.data)
        other.table("t", 1, **FIELDS)
        full = self.cluster.state()
        refused("limit is 2 .snapshots in the list")
        refused("limit is 2 .snapshots in the list", of=other)
        self.assertEqual(self.cluster.state(), full)
        table.push(KEYS, ONES)
        self.assertEqual(job.resume().step, 1)
        np.testing.assert_array_equal(values(table), kept)

    def test_a_load_beside_takes_no_more_room_than_its_token_has(self):
        job, table = self.cluster.job("c")
        peer, keys = self.cluster.admin("c"), []
        for name in "c_job--t", "c_job--u":
            peer.call("table_stage", {"id": 5, "schema": {**wire.constant_schema(name), "dim": 1}})
        self.assertIn("limit is 2", self.refused(peer, [FULL], "table_stage", {"id": 5, "schema": wire.constant_schema("c_job--v")}))
        rows = wire.owned(100000, 0, 3)
        fields = {"table": "c_job--u", "rows": 2000, "candidates": 0, "staged": 5}
        with self.assertRaises(wire.RpcError) as caught:
            for first in range(0, len(rows), 2000):
                part = rows[first:first + 2000]
                peer.call("load", fields, wire.keys(part), wire.floats([1.0] * len(part)), b"", b"")
                keys += part
        self.assertEqual((caught.exception.number, "row_bytes" in caught.exception.text), (FULL, True), caught.exception)
        self.assertGreater(len(keys), 10000)
        peer.call("table_stage", {"id": 5, "drop": True})
        table.push(KEYS, ONES)

    def test_loads_of_two_tokens_do_not_wait_for_each_other(self):
        job, table = self.cluster.job("a")
        job.checkpoint(11)
        kept = values(table)
        table.push(KEYS, ONES)
        others = [self.cluster.admin("b", shard) for shard in (0, 2)]
        for peer in others:  # and it never ends
            peer.call("table_stage", {"id": 5, "schema": wire.constant_schema("b_job--t", durability="durable")})
        self.refused(others[0], [BUSY], "table_stage", {"id": 6, "schema": wire.constant_schema("b_job--t")})
        self.assertEqual(job.resume().step, 11)
        np.testing.assert_array_equal(values(table), kept)
        for peer, shard in zip(others, (0, 2)):
            peer.call("load", {"table": "b_job--t", "rows": 1, "candidates": 0, "staged": 5}, wire.keys(wire.owned(1, shard, 3)),
                      wire.floats([1.0] * 4), b"", b"")
            peer.call("table_stage", {"id": 5, "drop": True})

    def test_files_that_never_come_keep_no_other_from_its_turn(self):
        slow, other = self.cluster.admin("b"), self.cluster.job("a")[0]
        slow.call("snapshot", {"name": "b_slow", "phase": "start", "job": "b_job", "tables": ["b_job--*"], "files": True})
        over = threading.Event()

        def live():
            while not over.wait(0.5):
                slow.call("snapshot", {"name": "b_slow", "phase": "progress"})
        living = threading.Thread(target=live)
        living.start()
        try:
            other.checkpoint(7)
        finally:
            over.set()
            living.join()
        told = slow.call("snapshot", {"name": "b_slow", "phase": "progress"})[0]
        self.assertEqual((told["state"], told["error"]), ("failed", BUSY), told)
        self.assertIn("others wait", told["text"])

    def test_another_server_makes_no_trainers_snapshot_beside_that_of_shard_0(self):
        peer, beside = self.cluster.admin("a"), self.cluster.admin("b", 2)
        job = peer.call("snapshot", {"name": "a_whole", "phase": "start", "job": "a_job", "tables": ["a_job--*"], "files": True})[0]
        for fields in ({"phase": "start", "job": "b_job", "tables": ["b_job--*"]}, {"phase": "cancel"},
                       {"phase": "start", "staged": 7, "staged_tables": 1}):
            self.assertIn("shard 0", self.refused(beside, [UNSUPPORTED], "snapshot", {"name": "b_beside", **fields}))
        while peer.call("snapshot", {"name": "a_whole", "phase": "progress"})[0]["phase"] == "begin":
            pass
        peer.call("snapshot", {"name": "a_whole", "phase": "go", "job": job["job"]})
        while (told := peer.call("snapshot", {"name": "a_whole", "phase": "progress"})[0])["state"] == "running":
            pass
        self.assertEqual(told["state"], "done", told)

    def test_authorities_that_cannot_be_read_any_more_leave_those_before(self):
        self.addCleanup(shutil.copy, self.cluster.ca.path, self.cluster.peer_ca)
        with open(self.cluster.peer_ca, "w", encoding="ascii") as file:
            file.write("no certificate")
        for server in self.cluster.servers:
            server.process.send_signal(signal.SIGHUP)
            server.wait_log("keys_not_reloaded")
            self.assertIn(self.cluster.peer_ca, server.log())
        self.cluster.job("a")[0].checkpoint(21)

    def test_a_base_is_of_the_same_job(self):
        job = embd.Job(self.cluster.connect("b"), "b_second", self.cluster.data)
        job.table("t", 1, **FIELDS)
        before = self.cluster.state()
        with self.assertRaisesRegex(embd.Error, "b_job"):
            job.client.snapshot("b_second-1", base="b_job-1", job="b_second", tables=["b_second--*"])
        self.assertEqual(self.cluster.state(), before)

    def test_a_server_acts_for_the_trainer_that_it_names_and_within_its_prefixes(self):
        before = self.cluster.state()
        with open(self.cluster.tokens.file("ps"), encoding="ascii") as file:
            server = {"protocol": 1, "token": file.read().strip()}
        for hello in (server, {**server, "for": "root"}, {**server, "for": "nobody"}, {**server, "for": "ps"}):
            peer = self.cluster.admin("b")
            self.refused(peer, [DENIED], "hello", hello)
            self.assertIsNone(peer.receive())
        self.assertIn("role server", self.refused(self.cluster.admin("b"), [DENIED], "hello", {"protocol": 1, "for": "a"}))
        peer = self.cluster.admin("b")
        peer.call("hello", {**server, "for": "b"})
        own = {"name": "b_job-9", "phase": "begin", "job": "b_job", "tables": ["b_job--*"]}
        for change in ({"name": "a_job-9"}, {"job": "a_job"}, {"tables": ["a_job--*"]}, {"base": "a_job-1"}):
            for phase in {"phase": "begin"}, {"phase": "cut", "id": 1, **({"since": 1} if "base" in change else {})}:
                self.refused(peer, [DENIED], "snapshot", {**own, **phase, **change})
        for fields in ({"name": "a_job-1", "phase": "abort"}, {"name": "a_job-1", "phase": "keep", "keep": 1, "job": "b_job"},
                       {"name": "b_job-1", "phase": "keep", "keep": 1, "job": "a_job"}, {"name": "b_job-1", "phase": "keep", "keep": 1},
                       {"name": "x", "phase": "cut", "read": True, "id": 1},
                       {"name": "b_job-1", "phase": "fetch", "file": "manifest.json"}):
            self.refused(peer, [DENIED], "snapshot", fields)
        for method in ("table_drop", "table_stage", "load", "drain", "stats", "scan", "writers"):
            self.refused(peer, [DENIED], method, {})
        peer.call("hold", {"timeout_ms": 100})
        peer.call("release", {})
        self.assertEqual(self.cluster.state(), before)

    def test_a_trainer_is_told_to_wait_but_not_for_whose_snapshot(self):
        begins, admin, peer = (self.cluster.admin(name) for name in ("root", "root", "b"))
        with open(self.cluster.tokens.file("ps"), encoding="ascii") as file:
            peer.call("hello", {"protocol": 1, "token": file.read().strip(), "for": "b"})
        own = {"name": "b_job-9", "phase": "begin", "job": "b_job", "tables": ["b_job--*"]}
        for name, is_shown in ("a_secret", False), ("b_made_by_root", True):
            begins.call("snapshot", {"name": name, "phase": "begin"})
            self.assertIn(f"another snapshot '{name}' is being made", self.refused(admin, [BUSY], "snapshot", {**own, "name": "x"}))
            text = self.refused(peer, [BUSY], "snapshot", own)
            self.assertIn("is being made", text)
            self.assertEqual(name in text, is_shown, text)
            begins.call("snapshot", {"name": name, "phase": "abort"})


if __name__ == "__main__":
    clusters.main()
