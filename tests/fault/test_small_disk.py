"""A journal knows its disk. Room for its next base is reserved: on a disk that is as small as the tables allow it is compacted
early, whatever `journal_limit` says, and pushes go on for ever; also where another file takes all the rest. Its peak is the
one of deploy/OPERATING.md. Where there is no room a push is refused, before the last room is taken, and goes on by itself when
there is some. Needs root and mounts; skipped (exit status 77) where they are not."""
import contextlib
import os
import sys
import threading
import time
import unittest
import unittest.mock

import wire
from embd_process import Embd
from test_full_disk import Disk, can_mount

DIM, IO, MIB, ROW = 64, 17, 1 << 20, 64 * 4 + 8
SMALL = 64 << 10  # what the rule adds: heads of files and records


class SmallDisk(unittest.TestCase):
    def open(self, kind, n_bytes, table_bytes, *flags):
        self.disk = Disk(kind, n_bytes)
        self.addCleanup(self.disk.remove)
        self.keys, self.n_pushes, self.peak, self.flags = list(range(table_bytes // (DIM * 4))), 0, 0, flags
        self.start()
        schema = wire.constant_schema("items", DIM, 0.0, durability="durable", optimizer={"kind": "sgd", "lr": 1.0})
        self.table = self.peer.call("table_create", {"schema": schema})[0]["id"]

    def start(self):
        self.server = Embd("--store", "host", "--data-dir", self.disk.data, "--http", "off", *self.flags)
        self.addCleanup(self.server.kill)
        self.peer = wire.connect(self.server)
        self.addCleanup(self.peer.close)

    def used(self):
        room = os.statvfs(self.disk.root)
        return (room.f_blocks - room.f_bfree) * room.f_frsize

    def figure(self, name):
        return self.peer.call("stats")[0]["stats"][name]

    def push(self, n=None):
        """To the first n keys."""
        keys = self.keys[:n]
        wire.push(self.peer, self.table, keys, [-1.0] * DIM * len(keys))
        self.n_pushes += n is None
        self.peak = max(self.peak, self.used())

    def fill_up(self, n=256):
        """Every row, in parts, so that no push is large for the disk."""
        for at in range(0, len(self.keys), n):
            keys = self.keys[at:at + n]
            wire.push(self.peer, self.table, keys, [0.0] * DIM * len(keys))

    def check(self):
        for at in range(0, len(self.keys), 4096):
            rows = wire.pull(self.peer, self.table, self.keys[at:at + 4096])
            self.assertEqual(set(rows), {float(self.n_pushes)})

    def check_after_kill(self):
        self.check()
        self.server.kill()
        self.start()
        self.check()

    def for_ever(self, kind):
        self.open(kind, 64 * MIB, 64 << 10)
        for _ in range(3 * 64 * MIB // (64 << 10)):
            self.push()
        self.assertGreaterEqual(self.figure("journal_bases"), 2)
        self.assertEqual(self.figure("journal_errors"), 0)
        self.assertLess(self.figure("journal_bytes") + self.figure("journal_reserved_bytes"), 64 * MIB)
        self.check_after_kill()

    def test_a_table_of_64_kib_on_a_disk_of_64_mib_runs_for_ever(self):
        self.for_ever("tmpfs")

    def test_and_on_ext4(self):
        self.for_ever("ext4")

    def push_in_turn_with_bases(self, n, limit):
        """A sixteenth of 2 MiB each, in turn with waiting for a base that is due."""
        for _ in range(n):
            bases, base = self.figure("journal_bases"), self.figure("journal_base_bytes")
            is_due = self.figure("journal_bytes") - base >= (limit if "--journal-strict" in self.flags else max(limit, base + 1))
            while is_due and self.figure("journal_bases") == bases:
                self.peak = max(self.peak, self.used())
            self.push(256)

    def test_the_peak_is_two_bases_and_the_limit(self):
        limit, table = 4 * MIB, 2 * MIB
        self.open("tmpfs", 64 * MIB, table, "--journal-limit", "4M")
        self.fill_up()
        self.push_in_turn_with_bases(4 * limit // (64 << 10), limit)
        self.assertGreaterEqual(self.figure("journal_bases"), 3)
        self.assertLessEqual(self.peak, 2.2 * table + limit + (64 << 10) + SMALL)
        self.assertGreater(self.peak, table + limit)
        self.server.kill()

    def test_with_space_the_peak_of_tables_larger_than_the_limit_is_3_3_times_them(self):
        limit, table = MIB, 8 * MIB
        self.open("tmpfs", 256 * MIB, table, "--journal-limit", "1M")
        self.fill_up()
        self.push_in_turn_with_bases(4 * table // (64 << 10), limit)
        self.assertGreaterEqual(self.figure("journal_bases"), 2)
        self.assertLessEqual(self.peak, 3.3 * table + (64 << 10) + SMALL)
        self.assertGreater(self.peak, 2.2 * table + limit)
        self.server.kill()

    def test_with_space_the_peak_of_a_strict_limit_is_2_2_times_the_tables_and_that(self):
        limit, table = MIB, 8 * MIB
        self.open("tmpfs", 256 * MIB, table, "--journal-limit", "1M", "--journal-strict", "yes")
        self.fill_up()
        self.push_in_turn_with_bases(4 * limit // (64 << 10), limit)
        self.assertGreaterEqual(self.figure("journal_bases"), 3)
        self.assertLessEqual(self.peak, 2.2 * table + limit + (64 << 10) + SMALL)
        self.assertGreater(self.peak, table + limit)
        self.server.kill()

    def test_tables_larger_than_the_limit_run_on_a_disk_of_2_2_times_them_and_the_limit(self):
        table = 8 * MIB
        self.open("tmpfs", int(2.2 * table) + MIB + SMALL, table, "--journal-limit", "1M")
        self.fill_up()
        for _ in range(16 * MIB // (64 << 10)):
            self.push(256)
        self.assertGreaterEqual(self.figure("journal_bases"), 4)
        self.assertEqual(self.figure("journal_errors"), 0)

    def test_a_disk_whose_syncs_are_slow_is_compacted_before_it_is_full(self):
        """Pushes of several clients are under way at any moment, each for longer than a base waits for them at once."""
        table, slow = 8 * MIB, os.path.join(os.environ["EMBD_FAULT_TOOLS"], "libembd-slow-sync.so")
        made = {"LD_PRELOAD": os.path.abspath(slow), "EMBD_SYNC_MS": "150",
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        with unittest.mock.patch.dict(os.environ, made):
            self.open("tmpfs", int(2.2 * table) + MIB + SMALL, table, "--journal-limit", "1M")
        self.fill_up(2048)
        peers = [wire.connect(self.server) for _ in range(4)]
        bases, refused = self.figure("journal_bases"), []

        def push(peer):
            try:
                for _ in range(24):
                    wire.push(peer, self.table, self.keys[:256], [-1.0] * DIM * 256)
            except wire.RpcError as error:
                refused.append(error)

        threads = [threading.Thread(target=push, args=(peer,)) for peer in peers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for peer in peers:
            peer.close()
        self.assertEqual(refused, [])
        self.assertGreater(self.figure("journal_bases"), bases)

    def test_another_file_that_fills_the_disk_does_not_keep_it_from_compacting(self):
        self.open("tmpfs", 64 * MIB, MIB)
        for _ in range(8):
            self.push()
        bases = self.figure("journal_bases")
        self.assertEqual(bases, 0)
        self.disk.fill()
        for _ in range(50):  # the first may be refused, by which it sees that the disk is full
            try:
                self.push()
                break
            except wire.RpcError as error:
                self.assertEqual(error.number, IO)
        self.assertGreater(self.figure("journal_bases"), bases)
        self.check_after_kill()

    def test_the_room_is_reserved_once_a_journal_rests(self):
        self.open("tmpfs", 64 * MIB, MIB)
        self.push()
        end = time.monotonic() + 20
        while self.figure("journal_reserved_bytes") < MIB and time.monotonic() < end:
            time.sleep(0.05)
        reserve = os.path.join(self.disk.data, "journal.0.reserve")
        self.assertGreaterEqual(os.stat(reserve).st_blocks * 512, MIB)
        self.assertEqual(self.figure("journal_reserved_bytes"), os.path.getsize(reserve))

    def test_what_would_take_the_last_room_is_refused_and_goes_on_by_itself(self):
        self.open("tmpfs", 64 * MIB, MIB)
        self.push()
        refused, more = None, len(self.keys)
        for _ in range(1000):  # new rows
            with contextlib.suppress(OSError):  # there is nothing to leave of
                self.disk.fill()
                self.disk.leave(200 << 10)
            time.sleep(0.02)  # until it is known how large the others are
            keys = range(more, more + 256)
            try:
                wire.push(self.peer, self.table, keys, [0.0] * DIM * len(keys))
                more += 256
            except wire.RpcError as error:
                refused = error
                if "for the next base of" in error.text:
                    break
        self.assertEqual(refused.number, IO)
        self.assertRegex(refused.text, r"journal: No space left on device for the next base of \d+ bytes; the push was not applied")
        self.check()
        self.assertTrue(self.server.is_alive())
        self.disk.empty()
        self.push()
        self.assertGreater(self.figure("journal_reserved_bytes"), MIB)
        self.check_after_kill()


if __name__ == "__main__":
    if os.getuid() != 0 or not can_mount():
        print("skipped: a disk of its own needs root and mounts")
        sys.exit(77)
    unittest.main()
