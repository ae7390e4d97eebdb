"""What a server tells of its disk: that its journal cannot be written, once, and that it can again; how long syncs take; how
much room there is; what snapshots failed, and how old the newest is. On a tmpfs of its own; skipped (exit status 77) where
there is none."""
import os
import subprocess
import sys
import unittest
import unittest.mock

import wire
from embd_process import Embd
from test_full_disk import BYTES, EMBCTL, Disk, can_mount
from test_http import get, http_address, samples

TOOLS = os.environ["EMBD_FAULT_TOOLS"]
DIM, KEYS, IO = 64, range(0, 2000, 2), 17  # keys of shard 0


class DiskFigures(unittest.TestCase):
    def setUp(self):
        self.disk = Disk("tmpfs")
        self.addCleanup(self.disk.remove)

    def start(self):
        server = Embd("--data-dir", self.disk.data, "--http", "127.0.0.1:0", shards=2)
        self.addCleanup(server.kill)
        self.address = http_address(server)
        return server

    def metric(self, name, shard=0):
        got = samples(get(self.address, "/metrics")[2])
        return got.get(f'{name}{{shard="{shard}"}}', got.get(name))

    def create(self, peer):
        return peer.call("table_create", {"schema": wire.constant_schema("items", DIM, 0.0, partition="modulo",
                                                                         durability="durable")})[0]["id"]

    def snapshot(self, server, name):
        return subprocess.run([EMBCTL, "snapshot", name], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "EMBD_SERVERS": server.addresses[0]})

    def takes(self, call):
        """Whether the journal takes it; a full disk refuses with IO."""
        try:
            call()
        except wire.RpcError as error:
            self.assertEqual(error.number, IO, error)
            self.taken.append(False)
        else:
            self.taken.append(True)
        return self.taken[-1]

    def refuse(self, call):
        """Fills the disk again where compaction has made room."""
        for _ in range(100):
            if not self.takes(call):
                return
            self.disk.fill()
        self.fail("the journal takes it though the disk was filled again and again")

    def turns(self, to):
        """How often the journal began to refuse (False), or to take again."""
        return sum(now == to and before != to for before, now in zip([True, *self.taken], self.taken))

    def refused_last(self):
        """How many in a row, the last time that it refused."""
        runs = "".join("+" if taken else "-" for taken in self.taken).split("+")
        return len([run for run in runs if run][-1])

    def lines(self, server, event):
        return [line for line in server.log().splitlines() if f" {event} " in line]

    def test_a_full_disk_is_logged_once_and_so_is_its_end(self):
        server = self.start()
        self.taken = []
        with wire.connect(server) as peer, wire.connect(server, 1) as other:
            table = self.create(peer)
            self.create(other)
            keys = range(0, 20000, 2)

            def push():
                wire.push(peer, table, KEYS, [1.0] * DIM * len(KEYS))

            def erase():
                peer.call("erase", {"parts": [{"table": table, "keys": len(keys)}]}, wire.keys(keys))

            for _ in range(2):
                self.disk.fill()
                for _ in range(3):
                    self.refuse(push)
                self.takes(erase)  # it may wait for a compaction that makes room for it
                self.assertEqual(self.metric("embd_journal_errors_total"), self.taken.count(False))
                self.assertEqual(self.metric("embd_journal_errors_total", 1), 0)
                self.assertEqual(self.metric("embd_data_dir_size_bytes"), BYTES)
                told = self.lines(server, "journal_refuses")
                self.assertEqual(len(told), self.turns(False), told)
                self.assertRegex(told[-1], r' error journal_refuses shard=0 why="No space left on device( for the next base of \d+ bytes)?"$')
                self.assertEqual(len(self.lines(server, "journal_takes_again")), self.turns(True))
                self.disk.empty()
                for _ in range(2):
                    self.assertTrue(self.takes(push))
                self.assertGreater(self.metric("embd_data_dir_free_bytes"), BYTES // 2)
                told = self.lines(server, "journal_takes_again")
                self.assertEqual(len(told), self.turns(True), told)
                self.assertRegex(told[-1], rf" info journal_takes_again shard=0 refused={self.refused_last()} seconds=\d")

    def test_a_snapshot_that_fails_is_counted_and_logged_with_phase_name_and_cause(self):
        server = self.start()
        with wire.connect(server) as peer:
            wire.push(peer, self.create(peer), KEYS, [1.0] * DIM * len(KEYS))
        with wire.connect(server, 1) as peer:
            self.create(peer)
        self.assertEqual(self.snapshot(server, "good").returncode, 0)
        self.assertEqual(self.metric("embd_snapshot_errors_total"), 0)
        self.assertEqual(self.lines(server, "snapshot_failed"), [])
        self.disk.fill()
        self.assertNotEqual(self.snapshot(server, "bad").returncode, 0)
        failed = self.metric("embd_snapshot_errors_total") + self.metric("embd_snapshot_errors_total", 1)
        told = self.lines(server, "snapshot_failed")
        self.assertEqual((failed, len(told) > 0), (len(told), True), told)
        self.assertRegex(told[0], r' warn snapshot_failed shard=\d snapshot=bad phase=\w+ why=".*No space left on device.*"$')
        self.disk.empty()
        self.assertNotEqual(self.snapshot(server, "good").returncode, 0)
        self.assertRegex(self.lines(server, "snapshot_failed")[-1],
                         r"""shard=0 snapshot=good phase=begin why="snapshot 'good' exists"$""")

    def test_the_age_of_the_newest_snapshot_is_a_figure_of_the_first_shard_also_after_a_start(self):
        server = self.start()
        with wire.connect(server) as peer:
            self.create(peer)
        with wire.connect(server, 1) as peer:
            self.create(peer)
        self.assertEqual(self.metric("embd_snapshot_age_seconds"), 0)
        self.assertEqual(self.snapshot(server, "s").returncode, 0)
        self.assertTrue(1 <= self.metric("embd_snapshot_age_seconds") < 600)
        self.assertEqual(self.metric("embd_snapshot_age_seconds", 1), 0)
        server.stop()
        manifest = os.path.join(self.disk.data, "s", "manifest.json")
        made = os.stat(manifest).st_mtime
        os.utime(manifest, (made - 7200, made - 7200))
        server = self.start()
        self.assertTrue(7200 <= self.metric("embd_snapshot_age_seconds") < 7800)
        self.assertEqual(self.snapshot(server, "t").returncode, 0)
        self.assertTrue(1 <= self.metric("embd_snapshot_age_seconds") < 600)

    def test_a_disk_that_syncs_slowly_is_told(self):
        slow = {"LD_PRELOAD": os.path.join(TOOLS, "libembd-slow-sync.so"), "EMBD_SYNC_MS": "300",
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        with unittest.mock.patch.dict(os.environ, slow):
            server = self.start()
        with wire.connect(server) as peer:
            table = self.create(peer)
            before = self.metric("embd_journal_syncs_total")
            for _ in range(2):
                wire.push(peer, table, [0], [1.0] * DIM)
        self.assertGreaterEqual(self.metric("embd_journal_syncs_total"), before + 2)
        self.assertGreaterEqual(self.metric("embd_journal_sync_longest_seconds"), 0.3)
        self.assertGreaterEqual(self.metric("embd_journal_sync_seconds_total"), 0.3 * (before + 2))

    def test_a_start_without_its_journal_is_told(self):
        server = self.start()
        for shard in range(2):
            with wire.connect(server, shard) as peer:
                self.create(peer)
        self.assertEqual(self.snapshot(server, "s").returncode, 0)
        server.stop()
        for name in "journal.1.00000001", "journal.1.reached":
            os.unlink(os.path.join(self.disk.data, name))
        self.start()
        self.assertEqual(self.metric("embd_shard_restored_without_journal"), 0)
        self.assertEqual(self.metric("embd_shard_restored_without_journal", 1), 1)


if __name__ == "__main__":
    if os.getuid() != 0 or not can_mount():
        print("skipped: a disk of its own needs root and mounts")
        sys.exit(77)
    unittest.main()
