"""A data directory whose file system fills up, on ext4 and on tmpfs: pushes are refused before any effect and say why, and
pulls go on meanwhile, also while a snapshot meets the full disk; a journal begins anew in the room that it has reserved. A server
that starts then does, or says why. When there is space again all goes on, and after a kill what was acknowledged is
there. Needs root and mounts; skipped (exit status 77) where they are not. EMBD_FAULT_CYCLES=n: how often it fills up;
1 without it."""
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import wire
from embd_process import Embd, NotReady

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
SHARDS, KEYS, DIM, IO, BYTES = 2, 2000, 64, 17, 16 << 20
STREAM_BYTES = 40  # in a base
ROUNDS = int(os.environ.get("EMBD_FAULT_CYCLES", "1"))


class Disk:
    def __init__(self, kind, n_bytes=BYTES):
        self.dir = tempfile.mkdtemp(prefix="embd-full-")
        self.root, image = os.path.join(self.dir, "root"), os.path.join(self.dir, "image")
        os.mkdir(self.root)
        if kind == "ext4":
            with open(image, "wb") as file:
                file.truncate(n_bytes)
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True, capture_output=True)
        what = ["-o", "loop", image] if kind == "ext4" else ["-t", "tmpfs", "-o", f"size={n_bytes}", "none"]
        try:
            subprocess.run(["mount", *what, self.root], check=True, capture_output=True)
        except subprocess.CalledProcessError:
            subprocess.run(["rm", "-r", self.dir], check=True)
            raise
        self.filler = os.path.join(self.root, "filler")
        self.data = os.path.join(self.root, "data")
        os.mkdir(self.data)

    def fill(self):
        """To the last byte, but for what files that are there have in their last block."""
        with open(self.filler, "ab", buffering=0) as file:
            for size in (1 << 20, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)
            with contextlib.suppress(OSError):
                os.fsync(file.fileno())

    def leave(self, n_bytes):
        """So much is free again."""
        os.truncate(self.filler, os.path.getsize(self.filler) - n_bytes)

    def empty(self):
        os.unlink(self.filler)

    def remove(self):
        subprocess.run(["umount", self.root], check=True, capture_output=True)
        subprocess.run(["rm", "-r", self.dir], check=True)


class Pulls(threading.Thread):
    """Of all keys of a shard, again and again: whole rows, never less than before."""

    def __init__(self, server, shard, table, keys):
        super().__init__(daemon=True)
        self.wire, self.table, self.keys = wire.connect(server, shard, timeout=10), table, keys
        self.n, self.least, self.longest, self.stops, self.wrong = 0, 0.0, 0.0, False, None

    def run(self):
        try:
            while not self.stops:
                begin = time.monotonic()
                rows = wire.pull(self.wire, self.table, self.keys)
                self.longest = max(self.longest, time.monotonic() - begin)
                if len(set(rows)) != 1 or rows[0] < self.least:
                    raise AssertionError(f"rows of {set(rows)} after {self.least}")
                self.least, self.n = rows[0], self.n + 1
        except Exception as error:  # pylint: disable=broad-except
            self.wrong = error

    def end(self):
        self.stops = True
        self.join(20)
        self.wire.close()
        if self.wrong:
            raise self.wrong


class FullDisk(unittest.TestCase):
    def open_disk(self, kind):
        self.disk = Disk(kind)
        self.addCleanup(self.disk.remove)
        self.acked = [0] * SHARDS

    def start(self, limit="1M"):
        server = Embd("--store", "host", "--data-dir", self.disk.data, "--journal-limit", limit, "--http", "off", shards=SHARDS)
        self.addCleanup(server.kill)
        return server

    def keys(self, shard):
        return list(range(shard, KEYS, SHARDS))

    def create(self, server):
        for shard in range(SHARDS):
            with wire.connect(server, shard) as peer:
                schema = wire.constant_schema("items", DIM, 0.0, partition="modulo", durability="durable",
                                              optimizer={"kind": "sgd", "lr": 1.0})
                self.table = peer.call("table_create", {"schema": schema})[0]["id"]

    def push(self, server, shard):
        """Whether it was made; where not, for want of space, and with no effect."""
        keys = self.keys(shard)
        with wire.connect(server, shard, timeout=10) as peer:
            try:
                wire.push(peer, self.table, keys, [-1.0] * DIM * len(keys))
                self.acked[shard] += 1
                return True
            except wire.RpcError as error:
                self.assertEqual(error.number, IO, error)
                self.assertIn("No space left", error.text)
                self.assertEqual(set(wire.pull(peer, self.table, keys)), {float(self.acked[shard])})
                return False

    def check(self, server):
        for shard in range(SHARDS):
            with wire.connect(server, shard, timeout=10) as peer:
                self.assertEqual(set(wire.pull(peer, self.table, self.keys(shard))), {float(self.acked[shard])})

    def figure(self, server, name):
        total = 0
        for shard in range(SHARDS):
            with wire.connect(server, shard, timeout=10) as peer:
                total += peer.call("stats")[0]["stats"][name]
        return total

    def snapshot(self, server, name):
        return subprocess.run([EMBCTL, "snapshot", name], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "EMBD_SERVERS": server.addresses[0]})

    def begin_anew_while_full(self, server):
        """There is room for one push after the other until a journal begins anew: what it begins with has its room."""
        bases, end = self.figure(server, "journal_bases"), time.monotonic() + 10
        while self.figure(server, "journal_bases") == bases and time.monotonic() < end:
            self.disk.leave(300 << 10)
            self.push(server, 0)
            self.disk.fill()
            time.sleep(0.02)
        self.assertGreater(self.figure(server, "journal_bases"), bases)
        self.assertEqual(self.figure(server, "journal_base_errors"), 0)

    def while_full(self, server):
        """Pushes are refused, or made in what blocks still have; a snapshot is refused, and leaves nothing."""
        n_refused = 0
        end = time.monotonic() + 10
        while n_refused < 12 and time.monotonic() < end:
            n_refused += not self.push(server, random.randrange(SHARDS))
            self.disk.fill()
        self.assertGreater(n_refused, 2)
        self.begin_anew_while_full(server)
        for free in (0, 200 << 10):  # the second one meets the end in the middle of its rows
            if free:
                self.disk.leave(free)
            done = self.snapshot(server, "full")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("No space left", done.stderr)
            self.assertEqual([name for name in os.listdir(self.disk.data) if name.startswith("full")], [])
            self.disk.fill()
        self.assertTrue(server.is_alive())
        return n_refused

    def start_while_full(self):
        """It starts, with what was acknowledged; or says why."""
        try:
            server = self.start()
        except NotReady as error:
            self.assertIn("No space left", str(error))
            return "does not start"
        self.check(server)
        server.kill()
        return "starts"

    def run_on(self, kind):
        self.open_disk(kind)
        server = self.start()
        self.create(server)
        for shard in list(range(SHARDS)) * 4:
            self.assertTrue(self.push(server, shard))
        pulls = [Pulls(server, shard, self.table, self.keys(shard)) for shard in range(SHARDS)]
        for thread in pulls:
            thread.start()
        # Pushes that make the journals long, so that they begin anew, meet a disk that fills up and empties.
        n_refused = 0
        for _ in range(ROUNDS):
            self.disk.fill()
            n_refused += self.while_full(server)
            self.disk.empty()
            for shard in list(range(SHARDS)) * 6:
                self.assertTrue(self.push(server, shard), "there is space again")
        for thread in pulls:
            thread.end()
        self.assertGreater(self.figure(server, "journal_bases"), 0)
        self.assertEqual(self.snapshot(server, "made").returncode, 0)
        n_pulls, longest = sum(thread.n for thread in pulls), max(thread.longest for thread in pulls)
        self.assertGreater(n_pulls, 20)
        self.disk.fill()
        server.kill()
        starts = self.start_while_full()
        self.disk.empty()
        server = self.start()
        self.check(server)
        self.assertTrue(self.push(server, 0) and self.push(server, 1))
        self.check(server)
        server.kill()
        print(f"{kind}: {n_refused} pushes refused, {sum(self.acked)} made, {n_pulls} pulls meanwhile, the longest "
              f"{longest * 1e3:.0f} ms; a server {starts} on a full disk")

    @unittest.skipUnless(ROUNDS > 1, "as ext4: EMBD_FAULT_CYCLES=2")
    def test_tmpfs(self):
        self.run_on("tmpfs")

    def test_ext4(self):
        self.run_on("ext4")

    def wait_reserved(self, peer, n_bytes):
        """A journal that rests reserves what its next base needs, which is estimated now and then."""
        end = time.monotonic() + 30
        while peer.call("stats")[0]["stats"]["journal_reserved_bytes"] < n_bytes:
            self.assertLess(time.monotonic(), end, "nothing is reserved")
            time.sleep(0.01)

    def leave_in_doubt(self, limit, n_free, n_pushes):
        """Shard 1 has prepared tables and shard 0 has them, when the disk is full and the coordinator leaves. Shard 1's record has
        many streams, and needs more than `n_free`, and than is left in a block. Its next base has its room before."""
        self.open_disk("tmpfs")
        server, streams = self.start(limit), 4000
        self.create(server)
        for _ in range(n_pushes):
            self.assertTrue(self.push(server, 1))
        peers = [wire.Wire(server.admin_path(shard), timeout=20) for _ in range(2) for shard in range(SHARDS)]
        for loader in peers[:SHARDS]:
            loader.call("table_stage", {"id": 7, "schema": wire.constant_schema("others", durability="durable")})
            loader.call("table_stage", {"id": 7, "writers": streams}, wire.keys([n for i in range(streams) for n in (i + 1, 2, 1, 0, 0)]))
        first, second = peers[SHARDS:]
        for peer in (first, second):
            peer.call("hold", {})
        for peer, phase, more in ((first, "check", {"tables": 1}), (second, "check", {"tables": 1}), (second, "prepare", {}),
                                  (first, "apply", {})):
            peer.call("table_replace", {"id": 7, "phase": phase, "decision": 5, **more})
        self.wait_reserved(second, (len(self.keys(1)) * DIM * 4 if n_pushes else 0) + streams * STREAM_BYTES)
        self.disk.fill()
        if n_free:
            self.disk.leave(n_free)
        for peer in peers:
            peer.close()
        server.wait_log("journal_refuses shard=1")
        return server

    def test_a_shard_in_doubt_asks_the_disk_ten_times_a_second(self):
        server = self.leave_in_doubt("1M", 0, 0)
        time.sleep(0.5)
        self.disk.empty()
        server.wait_log("replacement_settled shard=1")
        n, seconds = re.search(r"journal_takes_again shard=1 refused=(\d+) seconds=(\S+)", server.log()).groups()
        self.assertLess(int(n), 10 * float(seconds) + 3)

    def test_the_journal_of_a_shard_in_doubt_begins_anew_for_room(self):
        server = self.leave_in_doubt("1G", 30 << 10, 20)
        server.wait_log("replacement_settled shard=1")
        self.assertEqual(self.figure(server, "journal_bases"), 1)
        self.check(server)


def can_mount():
    try:
        for kind in ("tmpfs", "ext4"):
            Disk(kind).remove()
        return True
    except (OSError, subprocess.CalledProcessError):
        return False


if __name__ == "__main__":
    if os.getuid() != 0 or not can_mount():
        print("skipped: a disk that fills up needs root and mounts")
        sys.exit(77)
    unittest.main()
