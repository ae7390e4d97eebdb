"""Power cuts: the data directory lies on an ext4 of its own, which stops without flushing its log; mounted again,
it has what was synced. Needs root and loop devices; skipped (exit status 77) where they are not."""
import contextlib
import glob
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import oracle
from embd_process import BIN, Embd, NotReady

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "12"))
TOOLS = os.environ["EMBD_FAULT_TOOLS"]
SHARDS = 2
PROMISED_S = 0.050  # what a buffered table may lose
BUSY_S = 0.050  # nobody was late on purpose, but others ran: the server, or the client that notes when the answer came


def backing_files():
    """Of all loop devices."""
    for path in glob.glob("/sys/block/loop*/loop/backing_file"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            yield file.read().strip()


class Disk:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="embd-disk-")
        self.image, self.root = os.path.join(self.dir, "image"), os.path.join(self.dir, "root")
        os.mkdir(self.root)
        with open(self.image, "wb") as image:
            image.truncate(256 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True, capture_output=True)
        try:
            self.mount()
        except subprocess.CalledProcessError:
            shutil.rmtree(self.dir)
            raise

    def mount(self):
        subprocess.run(["mount", "-o", "loop", self.image, self.root], check=True, capture_output=True)

    def unmount(self):
        """A process with mounts of its own that began meanwhile may keep it for a moment."""
        subprocess.run(["umount", self.root], check=True, capture_output=True)
        end = time.monotonic() + 20
        while self.image in backing_files() and time.monotonic() < end:
            time.sleep(0.01)

    def cut(self):
        """Returns when it was, on time.monotonic()'s clock."""
        done = subprocess.run([os.path.join(TOOLS, "embd-power-cut"), self.root], check=True, capture_output=True)
        return float(done.stdout)

    def remove(self):
        self.unmount()
        os.unlink(self.image)
        os.rmdir(self.root)
        os.rmdir(self.dir)


def can_cut():
    try:
        disk = Disk()
    except (OSError, subprocess.CalledProcessError):
        return False
    try:
        disk.cut()
        return True
    except subprocess.CalledProcessError:
        return False
    finally:
        disk.remove()


def preloaded(name, **variables):
    """The environment of programs with that library."""
    return {"LD_PRELOAD": os.path.join(TOOLS, f"libembd-{name}.so"),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0", **variables}


class Power(unittest.TestCase):
    def setUp(self):
        self.disk = Disk()

    def tearDown(self):
        self.disk.remove()

    def run_cycles(self, durability, cycles, *flags, more=0):
        clients = oracle.Clients(SHARDS, 4, durability, more)
        for _ in range(cycles):
            server = Embd("--data-dir", self.disk.root, *flags, shards=SHARDS)
            try:
                clients.start(server)
                time.sleep(random.uniform(0.05, 0.2))
                clients.note()
                self.disk.cut()
            finally:
                server.kill()
                self.disk.unmount()
                self.disk.mount()
            clients.join(may_be_refused=True)
        with Embd("--data-dir", self.disk.root, shards=SHARDS) as server:
            clients.check_all(server)
        self.assertGreater(clients.total(), cycles)
        print(f"{durability}: {cycles} power cuts, {clients.total()} pushes acknowledged, none lost, none twice")

    def run_buffered(self, cycles, program=None, longest=0.3):
        """Whole prefixes are there, and of what was acknowledged longer ago than is promised all. In turn the journal begins
        anew all the time, has short segments, and has pushes that go past the kernel's cache."""
        turns = [(BIN, "--journal-limit", "4K"), (BIN,), (os.path.join(TOOLS, "embd-short-segments"),)]
        clients = oracle.Clients(SHARDS, 4, "buffered")
        for number in range(cycles):
            with_program, *flags = (program,) if program else turns[number % len(turns)]
            clients.more = 12000 if number % 4 == 3 else 0
            server = Embd("--data-dir", self.disk.root, *flags, shards=SHARDS, program=with_program)
            try:
                clients.start(server)
                time.sleep(random.uniform(longest - 0.2, longest))
                cut = self.disk.cut()
            finally:
                server.kill()
                self.disk.unmount()
                self.disk.mount()
            clients.join(may_be_refused=True)
            clients.note_before(cut, PROMISED_S + BUSY_S)
        with Embd("--data-dir", self.disk.root, shards=SHARDS) as server:
            clients.check_all(server)
        self.assertGreater(clients.total(), cycles)
        print(f"buffered: {cycles} power cuts, {clients.total()} pushes acknowledged {PROMISED_S + BUSY_S:.3f} s before or "
              f"longer, none lost, none twice; {clients.n_lost} younger ones lost, the oldest {clients.oldest_lost:.3f} s")

    def test_buffered(self):
        self.run_buffered(CYCLES)

    def test_buffered_on_a_disk_whose_syncs_take_longer_than_may_be_lost(self):
        with unittest.mock.patch.dict(os.environ, preloaded("slow-sync", EMBD_SYNC_MS="120")):
            self.run_buffered(CYCLES // 6, longest=0.7)

    def test_a_server_that_does_not_foresee_slow_syncs_is_caught(self):
        with unittest.mock.patch.dict(os.environ, preloaded("slow-sync", EMBD_SYNC_MS="500")), \
                self.assertRaises(oracle.LostPush):
            self.run_buffered(10, os.path.join(TOOLS, "embd-without-sync_deadline_holds"))

    def test_a_server_of_buffered_tables_whose_syncs_do_nothing_is_caught(self):
        with unittest.mock.patch.dict(os.environ, preloaded("unsynced")), \
                self.assertRaises((oracle.LostPush, NotReady)):
            self.run_buffered(10)

    def test_durable(self):
        self.run_cycles("durable", CYCLES)

    def test_durable_with_a_journal_that_begins_anew_all_the_time(self):
        self.run_cycles("durable", CYCLES, "--journal-limit", "4K")

    def test_durable_with_large_pushes_that_go_past_the_cache(self):
        self.run_cycles("durable", CYCLES, "--journal-limit", "8M", more=12000)

    def test_a_server_whose_syncs_do_nothing_is_caught(self):
        with unittest.mock.patch.dict(os.environ, preloaded("unsynced")), self.assertRaises(oracle.LostPush):
            self.run_cycles("durable", 10)


if __name__ == "__main__":
    if os.getuid() != 0 or not can_cut():
        print("skipped: a power cut needs root, a loop device and ext4's shutdown")
        sys.exit(77)
    unittest.main()
