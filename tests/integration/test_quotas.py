"""What the tables of a token may take: tables=N and row_bytes=N in the list of tokens. At a limit new tables and new rows are
refused before the journal; rows that exist, other tokens and starts go on."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import time
import unittest
import urllib.request

import embd_process
import wire
from certificates import Tokens
from test_http import http_address
from test_tls import EMBCTL, OK, USAGE, embctl

MB = 1 << 20
DIM, KEYS = 16, 4096
GRADS = wire.floats([0.5] * (DIM * KEYS))
DEFAULT_TABLES = 64


class QuotaCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="embd-quotas-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.tokens, self.secret, self.server = Tokens(self.folder), {}, None
        self.add("operator", "admin")
        self.add("few", "trainer", "few_", "tables=2 row_bytes=6M")
        self.add("small", "trainer", "few_small_", "row_bytes=4M")
        self.add("other", "trainer", "other_")
        self.add("whole", "trainer", "*")
        self.addCleanup(lambda: self.server and self.server.kill())
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        self.start()

    def add(self, name, role, tables="*", limits=""):
        self.secret[name] = self.tokens.add(name, role, tables, limits)

    def limit(self, name, limits):
        """Another limit for a token of the list."""
        line = self.tokens.lines[name]
        self.tokens.lines[name] = line[:line.index("sha256:") + 7 + 64] + f" {limits}\n"
        self.tokens.write()

    def start(self):
        self.server = embd_process.Embd("--http", "127.0.0.1:0", "--tokens", self.tokens.path, "--data-dir", self.data)

    def end(self, number=signal.SIGTERM):
        self.server.process.send_signal(number)
        self.server.wait()
        self.server.kill()

    def connect(self, name):
        peer = wire.connect(self.server, timeout=60)
        self.addCleanup(peer.close)
        peer.call("hello", {"protocol": 1, "token": self.secret[name]})
        return peer

    def create(self, peer, name, durability="durable", **options):
        return wire.create(peer, name, DIM, value=0.0, durability=durability, **options)

    def until_taken(self, peer, name):
        """A shard has the new list a moment after the log says that it was read."""
        end = time.monotonic() + 60
        while True:
            try:
                return self.create(peer, name)
            except wire.RpcError as refused:
                self.assertTrue(refused.number == wire.FULL and time.monotonic() < end, refused.text)

    def push(self, peer, table, first, n=KEYS, **more):
        return peer.call("push", {"parts": [{"table": table, "keys": n}], **more}, wire.keys(range(first, first + n)),
                         GRADS[:4 * DIM * n])

    def full(self, words, call, *arguments, **more):
        with self.assertRaises(wire.RpcError) as caught:
            call(*arguments, **more)
        self.assertEqual(caught.exception.number, wire.FULL, caught.exception.text)
        for word in words:
            self.assertIn(word, caught.exception.text)

    def fill(self, peer, table):
        """Pushes new keys until the server refuses; the keys that have rows."""
        for first in range(0, 1 << 20, KEYS):
            try:
                self.push(peer, table, first)
            except wire.RpcError as refused:
                self.assertEqual(refused.number, wire.FULL, refused.text)
                return first, refused.text
        self.fail("nothing was refused")

    def use(self, peer, token):
        """The figures of a token, as the peer sees them; None: it does not."""
        uses = {t["token"]: t["stats"] for t in peer.call("stats", {})[0].get("tokens", [])}
        return uses.get(token)


class Tables(QuotaCase):
    def test_one_table_too_many_is_refused_whoever_made_the_others(self):
        few, operator = self.connect("few"), self.connect("operator")
        self.create(operator, "few_of_others")
        self.create(few, "few_a")
        for _ in range(2):
            self.full(["'few_b'", "token 'few'", "2 tables", "limit is 2", "tables"], self.create, few, "few_b")
        self.create(few, "few_a")  # exists
        self.create(operator, "few_c")  # an admin has no limit
        for number in (signal.SIGTERM, signal.SIGKILL):
            self.end(number)
            self.start()
            self.full(["3 tables", "limit is 2"], self.create, self.connect("few"), "few_b")
        operator = self.connect("operator")
        for name in ("few_c", "few_of_others"):
            operator.call("table_drop", {"name": name})
        self.create(self.connect("few"), "few_b")

    def test_a_table_counts_once_whatever_prefixes_cover_it(self):
        self.add("twice", "trainer", "a_b_,a_,c_,a_,a_b_c", "tables=4")
        self.end()
        self.start()
        twice = self.connect("twice")
        for name in ("a_b_c", "a_b_d", "a_c", "c_a"):
            self.create(twice, name)
        self.create(self.connect("operator"), "b_a", "snapshot")
        self.full(["4 tables", "limit is 4"], self.create, twice, "a_b_e")
        self.assertEqual(self.use(twice, "twice")["tables"], 4)

    def test_without_a_limit_of_its_own_a_token_with_prefixes_has_64(self):
        other, whole = self.connect("other"), self.connect("whole")
        for i in range(DEFAULT_TABLES):
            self.create(other, f"other_{i}", "snapshot")
        self.full([f"limit is {DEFAULT_TABLES}", "token 'other'"], self.create, other, "other_64", "snapshot")
        for i in range(DEFAULT_TABLES + 1):
            self.create(whole, f"all_{i}", "snapshot")

    def test_a_limit_that_is_raised_counts_at_once_and_ends_no_connection(self):
        few = self.connect("few")
        for name in ("few_a", "few_b"):
            self.create(few, name)
        self.full(["limit is 2"], self.create, few, "few_c")
        self.limit("few", "tables=3")
        self.server.process.send_signal(signal.SIGHUP)
        self.server.wait_log("keys_reloaded")
        self.until_taken(few, "few_c")
        self.full(["limit is 3"], self.create, few, "few_d")


class RowBytes(QuotaCase):
    def check_goes_on(self, peer, table, rows):
        self.push(peer, table, 0)  # keys that have rows
        self.push(peer, table, rows - KEYS)
        self.assertEqual(len(wire.pull(peer, table, [1, rows - 1])), 2 * DIM)

    def refusal(self, durability):
        few, other = self.connect("few"), self.connect("other")
        table = self.create(few, "few_a", durability)
        rows, text = self.fill(few, table)
        self.assertGreaterEqual(rows, KEYS)
        for word in ("table few_a", "token 'few'", "bytes on this shard", f"limit is {6 * MB}", "row_bytes"):
            self.assertIn(word, text)
        before = self.use(few, "few")
        self.full(["row_bytes"], self.push, few, table, rows)
        self.assertEqual(self.use(few, "few"), before)
        self.assertLessEqual(before["row_bytes"], 6 * MB)
        self.assertGreaterEqual(before["row_bytes"], rows * DIM * 4)
        self.check_goes_on(few, table, rows)
        theirs = self.create(other, "other_a", durability)
        for first in range(0, 4 * rows, KEYS):  # without a limit
            self.push(other, theirs, first)
        return few, table, rows

    def test_pushes_to_tables_in_memory(self):
        self.refusal("snapshot")

    def test_pushes_to_journaled_tables_and_starts_under_a_smaller_limit(self):
        _, table, rows = self.refusal("durable")
        for number in (signal.SIGKILL, signal.SIGTERM):
            self.end(number)
            self.limit("few", "row_bytes=1M")
            self.start()
            few = self.connect("few")
            self.check_goes_on(few, table, rows)
            self.full([f"limit is {MB}"], self.push, few, table, rows)
        self.connect("operator").call("table_drop", {"name": "few_a"})
        self.push(self.connect("few"), self.create(self.connect("few"), "few_b"), 0, 64)

    def test_pulls_that_create_rows(self):
        few = self.connect("few")
        table = self.create(few, "few_made", "snapshot", create_on="pull")
        with self.assertRaises(wire.RpcError) as caught:
            for first in range(0, 1 << 20, KEYS):
                wire.pull(few, table, range(first, first + KEYS))
        self.assertEqual(caught.exception.number, wire.FULL)
        self.assertIn("row_bytes", caught.exception.text)
        wire.pull(few, table, range(KEYS))
        wire.pull(self.connect("operator"), table, range(first, first + KEYS))

    def test_steps_of_rounds(self):
        few, small = self.connect("few"), self.connect("small")
        table = self.create(self.connect("operator"), "few_small_a", "snapshot")
        job = {"job": "few_small_job", "workers": 2}
        refused, clock = [], 0
        while not refused:
            self.assertLess(clock, 256, "nothing was refused")
            rounds = [{**job, "worker": worker, "clock": clock} for worker in (0, 1)]
            ids = [peer.begin("push", {"parts": [{"table": table, "keys": KEYS}], "round": worker_round},
                              wire.keys(range(clock * KEYS, (clock + 1) * KEYS)), GRADS)
                   for peer, worker_round in zip((few, small), rounds)]
            answers = [peer.receive() for peer in (few, small)]
            self.assertEqual([a[1] for a in answers], ids)
            refused = [a[2] for a in answers if a[2]]
            clock += 1
        self.assertEqual([number for number, _ in refused], [wire.FULL] * 2)
        for _, text in refused:  # of both tokens the one with less room
            self.assertIn("token 'small'", text)
            self.assertIn(f"limit is {4 * MB}", text)

    def test_tokens_of_overlapping_prefixes_share(self):
        few, small = self.connect("few"), self.connect("small")
        rows, _ = self.fill(few, self.create(few, "few_a", "snapshot"))
        self.assertGreater(rows, 0)
        table = self.create(small, "few_small_a", "snapshot")
        self.push(small, table, 0)
        self.assertGreater(self.use(self.connect("operator"), "few")["row_bytes"], self.use(small, "small")["row_bytes"])


class Connections(QuotaCase):
    def test_trainers_keep_nobody_out_of_an_admin_listener(self):
        def enter(name):
            peer = wire.Wire(self.server.admin_path())
            self.addCleanup(peer.close)
            peer.call("hello", {"protocol": 1, "token": self.secret[name]})
            return peer

        def refused(name, *words):
            with self.assertRaises(wire.RpcError) as caught:
                enter(name)
            self.assertEqual(caught.exception.number, wire.BUSY, caught.exception.text)
            for word in words:
                self.assertIn(word, caught.exception.text)

        for name in "few", "other":
            peers = [enter(name) for _ in range(24)]
            refused(name, f"token '{name}' has 24 other connections", "the limit is 24")
        refused("small", "trainers and readers have 48, the limit is 48")
        enter("operator").call("tables", {})
        peers.pop().close()
        while len(peers) < 24:  # when the server has seen the end
            try:
                peers.append(enter("other"))
            except wire.RpcError as full:
                self.assertEqual(full.number, wire.BUSY, full.text)
        peers[0].call("tables", {})


class Loads(QuotaCase):
    def test_a_table_that_two_loads_replace_goes_once(self):
        few = self.connect("few")
        rows, _ = self.fill(few, self.create(few, "few_a", "snapshot"))
        loaders = {name: wire.Wire(self.server.admin_path()) for name in ("operator", "few")}
        for number, (name, peer) in enumerate(loaders.items(), 1):
            self.addCleanup(peer.close)
            peer.call("hello", {"protocol": 1, "token": self.secret[name]})
            peer.call("table_stage", {"id": number, "schema": {**wire.constant_schema("few_a"), "dim": DIM}})

        def load(name, number, first):
            loaders[name].call("load", {"table": "few_a", "rows": KEYS, "candidates": 0, "staged": number},
                               wire.keys(range(first, first + KEYS)), GRADS, b"", b"")

        for first in range(0, rows, KEYS):
            load("few", 2, first)
        self.full(["token 'few'", f"limit is {6 * MB}"], lambda: [load("few", 2, first) for first in range(rows, 4 * rows, KEYS)])
        for peer in loaders.values():
            peer.call("table_stage", {"id": 1 if peer is loaders["operator"] else 2, "drop": True})


    def test_trainers_leave_room_for_an_admins_load(self):
        def stage(name, number):
            peer = wire.Wire(self.server.admin_path())
            self.addCleanup(peer.close)
            peer.call("hello", {"protocol": 1, "token": self.secret[name]})
            peer.call("table_stage", {"id": number, "schema": wire.constant_schema(f"{name}_t")})
            return peer

        def busy(words, *arguments):
            with self.assertRaises(wire.RpcError) as caught:
                stage(*arguments)
            self.assertEqual(caught.exception.number, wire.BUSY, caught.exception.text)
            self.assertIn(words, caught.exception.text)

        for i in range(15):
            self.add(f"t{i}", "trainer", f"t{i}_")
        self.end()
        self.start()
        peers = [stage(f"t{i}", 1 + i) for i in range(14)]
        busy("tables of another load", "t0", 20)
        busy("14 loads of trainers have staged tables", "t14", 20)
        stage("operator", 30).call("table_stage", {"id": 30, "schema": wire.constant_schema("u")})
        peers.pop().close()
        while True:  # when the server has dropped its tables
            try:
                stage("t14", 20)
                break
            except wire.RpcError as full:
                self.assertEqual(full.number, wire.BUSY, full.text)


class Holds(QuotaCase):
    SHARDS = 2
    FIELDS = {"phase": "start", "job": "few_job", "tables": ["few_a"]}

    def start(self):
        self.server = embd_process.Embd("--http", "127.0.0.1:0", "--tokens", self.tokens.path, "--data-dir", self.data,
                                        shards=self.SHARDS)

    def half_push(self):
        """A push that shard 0 has; a function has shard 1 get it. Until then a cut waits."""
        peers = [wire.connect(self.server, shard, timeout=60) for shard in range(self.SHARDS)]
        parts = []
        for shard, peer in enumerate(peers):
            self.addCleanup(peer.close)
            peer.call("hello", {"protocol": 1, "client_id": 77, "token": self.secret["few"]})
            table = self.create(peer, "few_a", "snapshot")
            parts.append(wire.request(9, "push", {"parts": [{"table": table, "keys": 1}]},
                                      wire.keys(wire.owned(1, shard, self.SHARDS)), wire.floats([1.0] * DIM)))

        def send(shard):
            peers[shard].send(parts[shard])
            peers[shard].receive()
        send(0)
        return lambda: send(1)

    def begin_hold(self):
        """A trainer's snapshot, in its hold for half a second: its connection, when that began and ended, and its state."""
        peer = wire.Wire(self.server.admin_path())
        self.addCleanup(peer.close)
        peer.call("hello", {"protocol": 1, "token": self.secret["few"]})

        def look():
            return peer.call("snapshot", {"name": "few_1", "phase": "progress"})[0]
        peer.call("snapshot", {"name": "few_1", **self.FIELDS})
        while look()["phase"] != "hold":
            pass
        began = time.monotonic()
        time.sleep(0.5)
        return peer, began, time.monotonic(), look

    def check_rest(self, peer, began, ended):
        while True:
            try:
                peer.call("snapshot", {"name": "few_2", **self.FIELDS})
                break
            except wire.RpcError as error:
                self.assertEqual(error.number, wire.BUSY)
                self.assertIn("token 'few' held changes", error.text)
        self.assertGreaterEqual(time.monotonic() - ended, ended - began)

    def test_a_trainer_whose_snapshot_held_pushes_rests_as_long_before_its_next(self):
        complete = self.half_push()
        peer, began, ended, look = self.begin_hold()
        complete()
        while look()["state"] == "running":
            pass
        self.assertEqual(look()["state"], "done")
        operator = embctl(self.server, "snapshot", "at_once", "--wait", "0", EMBD_TOKEN=self.secret["operator"])
        self.assertEqual(operator.returncode, OK, operator.stderr)
        self.check_rest(peer, began, ended)

    def test_a_trainer_whose_snapshot_was_cancelled_in_its_hold_rests_too(self):
        complete = self.half_push()
        peer, began, ended, look = self.begin_hold()
        peer.call("snapshot", {"name": "few_1", "phase": "cancel"})
        while look()["state"] == "running":
            pass
        self.assertEqual(look()["state"], "failed")
        complete()
        self.check_rest(peer, began, ended)


class Figures(QuotaCase):
    @staticmethod
    def snapshots(n, size, **limits):
        return {"snapshots": n, "snapshots_limit": 32, "snapshot_bytes": size, **limits}

    def size_of(self, name):
        path = os.path.join(self.data, name)
        return sum(os.path.getsize(os.path.join(path, file)) for file in os.listdir(path) if file != "manifest.json")

    def test_snapshots_of_a_tokens_jobs_are_shown_beside_their_limits(self):
        self.limit("few", "snapshot_bytes=64M")
        self.server.process.send_signal(signal.SIGHUP)
        self.server.wait_log("keys_reloaded")
        few = self.connect("few")
        self.push(few, self.create(few, "few_a", "snapshot"), 0)
        for name, job, n in (("one", "few_job", 1), ("of_others", "other_job", 1), ("two", "few_job", 2), ("three", "few_job", 1)):
            made = embctl(self.server, "snapshot", name, "--job", job, "--tables", "few_a", *(["--keep", "1"] if name == "three" else []),
                          EMBD_TOKEN=self.secret["operator"])
            self.assertEqual(made.returncode, OK, made.stderr)
            self.assertEqual(self.use(few, "few")["snapshots"], n, name)
        wanted = self.snapshots(1, self.size_of("three"), snapshot_bytes_limit=64 * MB)
        self.assertGreater(wanted["snapshot_bytes"], KEYS * DIM * 4)
        self.end()
        self.start()
        for name, value in wanted.items():
            self.assertEqual(self.use(self.connect("few"), "few")[name], value, name)
        with urllib.request.urlopen(f"http://{http_address(self.server)}/metrics", timeout=10) as page:
            metrics = page.read().decode()
        for name, value in wanted.items():
            self.assertIn(f'embd_token_{name}{{shard="0",token="few"}} {value}\n', metrics)
        self.assertNotIn('embd_token_snapshot_bytes_limit{shard="0",token="other"}', metrics)

    def test_use_and_limit_are_shown_to_whom_they_concern(self):
        few, whole, operator = (self.connect(name) for name in ("few", "whole", "operator"))
        self.push(few, self.create(few, "few_a", "snapshot"), 0)
        use = self.use(few, "few")
        self.assertEqual((use["tables"], use["tables_limit"], use["row_bytes_limit"]), (1, 2, 6 * MB))
        self.assertGreaterEqual(use["row_bytes"], KEYS * DIM * 4)
        self.assertEqual(self.use(operator, "few"), use)
        self.assertEqual(self.use(operator, "other"), {"tables": 0, "tables_limit": 64, "row_bytes": 0, **self.snapshots(0, 0)})
        self.assertEqual([self.use(few, "other"), self.use(whole, "few"), self.use(operator, "whole")], [None] * 3)
        with urllib.request.urlopen(f"http://{http_address(self.server)}/metrics", timeout=10) as page:
            metrics = page.read().decode()
        for line in ('embd_token_tables{shard="0",token="few"} 1', 'embd_token_tables_limit{shard="0",token="few"} 2',
                     f'embd_token_row_bytes{{shard="0",token="few"}} {use["row_bytes"]}',
                     f'embd_token_row_bytes_limit{{shard="0",token="few"}} {6 * MB}'):
            self.assertIn(line + "\n", metrics)
        self.assertNotIn('embd_token_row_bytes_limit{shard="0",token="other"}', metrics)

    def test_embctl_shows_them(self):
        few = self.connect("few")
        self.push(few, self.create(few, "few_a", "snapshot"), 0)
        own = embctl(self.server, "stats", "--tokens", "-o", "json", EMBD_TOKEN=self.secret["few"])
        self.assertEqual(own.returncode, OK, own.stderr)
        row, = json.loads(own.stdout)["tokens"]
        self.assertEqual(row, {"token": "few", "shard": 0, "tables": 1, "tables_limit": 2,
                               "row_bytes": self.use(few, "few")["row_bytes"], "row_bytes_limit": 6 * MB,
                               **self.snapshots(0, 0, snapshot_bytes_limit=None)})
        shown = embctl(self.server, "stats", "--tokens", "-o", "json", EMBD_TOKEN=self.secret["operator"])
        self.assertEqual([t["token"] for t in json.loads(shown.stdout)["tokens"]], ["few", "small", "other"])
        self.assertEqual(embctl(self.server, "stats", "--tokens", "--all").returncode, USAGE)


class Lists(QuotaCase):
    def test_mistakes_are_named(self):
        digest = "a" * 64
        for role, limits, words in (
                ("trainer *", "tables=4097", ["tables=4097", "0 to 4096"]), ("trainer *", "tables=", ["tables=0 to 4096"]),
                ("trainer *", "tables=-1", ["tables=-1"]), ("trainer *", "tables=1M", ["tables=1M"]),
                ("trainer *", "row_bytes=many", ["row_bytes=many"]), ("trainer *", "row_bytes=1P", ["row_bytes=1P"]),
                ("trainer *", "row_bytes=1Kx", ["row_bytes=1Kx"]),
                ("trainer *", "row_bytes=99999999999T", ["row_bytes=99999999999T"]),
                ("trainer *", "row_bytes=99999999999999999999999", ["row_bytes=9"]),
                ("trainer *", "row_bytes=1G row_bytes=2G", ["row_bytes=2G", "repeats"]),
                ("trainer *", "jobs=1", ["after the hash", "tables=N", "row_bytes=N"]),
                ("reader x", "tables=1", ["tables=1", "trainer", "reader"]),
                ("admin *", "row_bytes=1", ["row_bytes=1", "trainer", "admin"])):
            path = os.path.join(self.folder, "bad")
            with open(path, "w", encoding="ascii") as file:
                file.write(f"x {role} sha256:{digest} {limits}\n")
            os.chmod(path, 0o600)
            answer = embd_process.run("--tokens", path)
            self.assertEqual(answer.returncode, USAGE, limits)
            for word in [f"{path}:1:", *words]:
                self.assertIn(word, answer.stderr)

    def test_embctl_token_makes_the_line(self):
        def token(*arguments):
            return subprocess.run([EMBCTL, "token", *arguments], capture_output=True, text=True, timeout=30, check=False,
                                  cwd=self.folder)
        made = token("made", "trainer", "--tables", "made_", "--max-tables", "1", "--row-bytes", "2M")
        self.assertEqual(made.returncode, OK, made.stderr)
        self.assertTrue(made.stdout.endswith(" tables=1 row_bytes=2M\n"), made.stdout)
        self.tokens.lines["made"] = made.stdout
        self.tokens.write()
        with open(os.path.join(self.folder, "made.token"), encoding="ascii") as file:
            self.secret["made"] = file.read().strip()
        self.server.process.send_signal(signal.SIGHUP)
        self.server.wait_log("keys_reloaded")
        self.create(self.connect("made"), "made_a")
        self.full(["limit is 1"], self.create, self.connect("made"), "made_b")
        shown = json.loads(token("more", "trainer", "--row-bytes", "1G", "-o", "json").stdout)["tokens"][0]
        self.assertEqual(shown["limits"], "row_bytes=1G")
        for arguments, word in ((["x", "reader", "--max-tables", "1"], "trainer"), (["x", "trainer", "--max-tables", "4097"], "4096"),
                                (["x", "trainer", "--max-tables", "many"], "many"), (["x", "trainer", "--row-bytes", "1P"], "1P")):
            answer = token(*arguments)
            self.assertEqual((answer.returncode, answer.stdout), (USAGE, ""), arguments)
            self.assertIn(word, answer.stderr)


if __name__ == "__main__":
    unittest.main()
