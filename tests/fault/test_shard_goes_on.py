"""A shard's thread does not wait for its disk: whatever is synced, renamed or removed (for an erase, a table that comes or
goes, a load, streams, each phase of a snapshot, an abort, a journal that begins anew), pulls of another table are answered
meanwhile, and the request is answered when the disk has it. The disk goes on step by step (gated_disk.c), so nothing
depends on how fast anything is."""
import contextlib
import os
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock

import wire
from embd_process import Embd
from gate import Gate

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
DIM = 4


class ShardGoesOn(unittest.TestCase):
    def setUp(self):
        self.gate = Gate()
        self.addCleanup(self.gate.scratch.cleanup)
        self.data = tempfile.TemporaryDirectory(prefix="embd-data-")
        self.addCleanup(self.data.cleanup)
        self.server = self.start()
        self.asks, self.pulls = wire.connect(self.server), wire.connect(self.server, timeout=10)
        self.admin = wire.Wire(self.server.admin_path())
        for peer in (self.asks, self.pulls, self.admin):
            self.addCleanup(peer.close)
        self.other = wire.create(self.asks, "other", DIM, 7.0)
        self.items = self.create("items")
        wire.push(self.asks, self.items, [1, 2, 3], [1.0] * DIM * 3)

    def start(self, *flags):
        with unittest.mock.patch.dict(os.environ, self.gate.environment()):
            server = Embd("--store", "host", "--data-dir", self.data.name, "--http", "off", *flags)
        self.addCleanup(server.kill)
        self.addCleanup(self.gate.open)
        return server

    def create(self, name, peer=None):
        schema = wire.constant_schema(name, DIM, 0.0, durability="durable", optimizer={"kind": "sgd", "lr": 1.0})
        return (peer or self.asks).call("table_create", {"schema": schema})[0]["id"]

    def goes_on(self, ask, calls):
        """`ask` meets the disk at least once at each of `calls`; at each step pulls are answered, and it is not."""
        answers, failures = [], []

        def run():
            try:
                answers.append(ask())
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)

        self.gate.close()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        end = time.monotonic() + 120  # of a test that hangs
        while thread.is_alive() and time.monotonic() < end:
            for name in self.gate.waiting():
                for _ in range(3):
                    self.assertEqual(wire.pull(self.pulls, self.other, [5]), [7.0] * DIM)
                self.gate.let(name)
            time.sleep(0.001)
        self.gate.open()
        thread.join(20)
        self.assertEqual(failures, [])
        self.assertEqual(len(answers), 1)
        for call in calls:
            self.assertIn(call, self.gate.passed)
        return answers[0]

    def waits(self, ask):
        """`ask` is not answered while the disk has not gone on."""
        answered = threading.Event()

        def run():
            ask()
            answered.set()

        self.gate.close()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while not self.gate.waiting():
            time.sleep(0.001)
        for _ in range(20):
            wire.pull(self.pulls, self.other, [5])
        self.assertFalse(answered.is_set())
        self.gate.open()
        thread.join(20)
        self.assertTrue(answered.is_set())

    def erase(self, key):
        return self.asks.call("erase", {"parts": [{"table": self.items, "keys": 1}]}, wire.keys([key]))[0]["parts"][0]

    def load(self, key, value):
        row = struct.pack(f"<{DIM}f", *[value] * DIM)
        return self.admin.call("load", {"table": "items", "rows": 1, "candidates": 0}, wire.keys([key]), row, b"", b"")

    def embctl(self, *arguments):
        return subprocess.run([EMBCTL, *arguments], capture_output=True, text=True, timeout=100, check=False,
                              env={**os.environ, "EMBD_SERVERS": self.server.addresses[0]})

    def snapshot(self, name, *options):
        done = self.embctl("snapshot", name, *options)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_second_cancel_does_not_cut_short_the_clean_up_after_the_first(self):
        def say(phase):
            return self.admin.call("snapshot", {"name": "twice", "phase": phase})[0]
        self.gate.close()
        say("start")
        while not self.gate.waiting():
            time.sleep(0.001)
        say("cancel")
        while say("progress")["phase"] != "abort":
            time.sleep(0.001)
        for _ in range(20):  # the disk does not go on
            told = say("cancel")
            self.assertEqual(told["state"], "running", told)
            time.sleep(0.005)
        self.gate.open()
        while say("progress")["state"] == "running":
            time.sleep(0.001)
        self.assertIn("'twice' was cancelled", say("progress")["text"])
        self.assertEqual([name for name in os.listdir(self.data.name) if name.startswith("twice")], [])
        self.snapshot("twice")

    def test_an_erase(self):
        self.assertEqual(self.goes_on(lambda: self.erase(1), ["fdatasync"])["erased"], 1)
        self.assertEqual(wire.pull(self.asks, self.items, [1, 2]), [0.0] * DIM + [-1.0] * DIM)
        self.waits(lambda: self.erase(2))

    def test_tables_that_come_and_go(self):
        self.goes_on(lambda: self.create("new"), ["fdatasync"])
        self.assertEqual(len(self.asks.call("tables")[0]["tables"]), 3)
        self.waits(lambda: self.create("newer"))
        self.goes_on(lambda: self.asks.call("table_drop", {"name": "new"}), ["fdatasync"])
        self.waits(lambda: self.asks.call("table_drop", {"name": "newer"}))
        self.assertEqual([t["name"] for t in self.asks.call("tables")[0]["tables"]], ["items", "other"])

    def test_a_table_is_not_seen_before_it_is_on_disk(self):
        self.gate.close()
        msgid = self.asks.begin("table_create", {"schema": wire.constant_schema("late", DIM, 0.0, durability="durable")})
        while not self.gate.waiting():
            time.sleep(0.001)
        self.assertEqual([t["name"] for t in self.pulls.call("tables")[0]["tables"]], ["items", "other"])
        self.gate.open()
        self.assertEqual(self.asks.receive()[1:3], [msgid, None])
        self.assertEqual([t["name"] for t in self.pulls.call("tables")[0]["tables"]], ["items", "late", "other"])

    def test_a_load_and_streams(self):
        self.goes_on(lambda: self.load(9, 5.0), ["fdatasync"])
        self.assertEqual(wire.pull(self.asks, self.items, [9]), [5.0] * DIM)
        self.waits(lambda: self.load(9, 6.0))
        self.goes_on(lambda: self.admin.call("writers", {"writers": 1}, wire.keys([1, 2, 3, 0])), ["fdatasync"])

    def test_what_a_connection_sends_behind_an_erase_sees_it_and_so_does_every_later_change(self):
        self.gate.close()
        keys = wire.keys([1])
        erase = self.asks.begin("erase", {"parts": [{"table": self.items, "keys": 1}]}, keys)
        while not self.gate.waiting():
            time.sleep(0.001)
        pull = self.asks.begin("pull", {"parts": [{"table": self.items, "keys": 1}]}, keys)
        push = self.admin.begin("stats")  # which waits for nobody
        self.assertEqual(self.admin.receive()[1:3], [push, None])
        with wire.connect(self.server) as third:
            push = third.begin("push", {"parts": [{"table": self.items, "keys": 1}]}, keys, wire.floats([1.0] * DIM))
            before = wire.pull(self.pulls, self.items, [1])  # of another connection: not yet
            self.assertEqual(before, [-1.0] * DIM)
            self.gate.open()
            self.assertEqual(self.asks.receive()[1:3], [erase, None])
            message = self.asks.receive()
            self.assertEqual(message[1:3], [pull, None])
            self.assertIn(wire.unfloats(message[3][1])[0], (0.0, -1.0))  # erased; or pushed anew
            self.assertEqual(third.receive()[1:3], [push, None])
        self.assertEqual(wire.pull(self.asks, self.items, [1]), [-1.0] * DIM)  # one push, behind the erase

    def test_a_change_whose_connection_is_gone_is_applied_as_its_record_says(self):
        for name, ask in (("erase", lambda peer: peer.begin("erase", {"parts": [{"table": self.items, "keys": 1}]}, wire.keys([1]))),
                          ("create", lambda peer: peer.begin("table_create", {"schema": wire.constant_schema(
                              "left", DIM, 3.0, durability="durable")}))):
            with self.subTest(name), wire.connect(self.server) as peer:
                self.gate.close()
                ask(peer)
                while not self.gate.waiting():
                    time.sleep(0.001)
            self.pulls.call("ping")
            self.gate.open()
            wire.push(self.asks, self.items, [2], [0.0] * DIM)  # behind it
        self.assertEqual(wire.pull(self.asks, self.items, [1]), [0.0] * DIM)
        self.assertEqual([t["name"] for t in self.asks.call("tables")[0]["tables"]], ["items", "left", "other"])
        self.server.kill()
        self.server = self.start()
        with wire.connect(self.server) as peer:
            self.assertEqual(wire.pull(peer, self.items, [1]), [0.0] * DIM)
            self.assertEqual([t["name"] for t in peer.call("tables")[0]["tables"]], ["items", "left"])

    def test_a_snapshot_and_one_that_removes_the_one_before(self):
        self.goes_on(lambda: self.snapshot("first"), ["fsync", "renameat"])
        self.goes_on(lambda: self.snapshot("second", "--keep", "1"), ["fsync", "renameat", "unlinkat"])
        self.assertEqual(sorted(n for n in os.listdir(self.data.name) if os.path.isdir(os.path.join(self.data.name, n))), ["second"])

    def test_blobs_of_a_snapshot(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "model")
            with open(path, "wb") as file:
                file.write(bytes(100000))
            self.goes_on(lambda: self.snapshot("blobs", "--blob", f"model={path}"), ["fsync", "renameat"])

    def test_a_snapshot_that_is_aborted_while_it_is_written(self):
        self.admin.call("snapshot", {"name": "given-up", "phase": "begin"})
        self.admin.call("hold")
        self.gate.close()
        self.admin.call("snapshot", {"name": "given-up", "phase": "cut"})
        self.admin.call("release")
        while not self.gate.waiting():
            time.sleep(0.001)
        self.goes_on(lambda: self.admin.call("snapshot", {"name": "given-up", "phase": "abort"}), ["fsync", "unlinkat"])
        self.assertEqual([n for n in os.listdir(self.data.name) if n.startswith("given-up")], [])

    def test_one_that_its_connection_left(self):
        self.admin.call("snapshot", {"name": "left", "phase": "begin"})
        self.gate.close()
        self.admin.close()

        def is_gone():
            while os.path.exists(os.path.join(self.data.name, "left.tmp")):
                time.sleep(0.001)
            return True

        self.assertTrue(self.goes_on(is_gone, ["unlinkat"]))

    def test_a_journal_that_begins_anew(self):
        self.server.stop()
        self.server = self.start("--journal-limit", "1M")
        with wire.connect(self.server) as peer, wire.connect(self.server, timeout=10) as self.pulls:
            self.other = wire.create(peer, "other", DIM, 7.0)

            def push_until_there_is_a_base():
                while peer.call("stats")[0]["stats"]["journal_bases"] < 2:
                    wire.push(peer, self.items, range(5000), [0.5] * DIM * 5000)
                return True

            self.goes_on(push_until_there_is_a_base, ["fdatasync", "fsync", "renameat", "unlinkat", "close"])


if __name__ == "__main__":
    unittest.main()
