"""Power cuts: the data directory lies on an ext4 of its own, which stops without flushing its log; mounted again,
it has what was synced. Needs root and loop devices; skipped (exit status 77) where they are not."""
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
from embd_process import Embd

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "12"))
TOOLS = os.environ["EMBD_FAULT_TOOLS"]
SHARDS = 2


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
        subprocess.run(["umount", self.root], check=True, capture_output=True)

    def cut(self):
        subprocess.run([os.path.join(TOOLS, "embd-power-cut"), self.root], check=True, capture_output=True)

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
            for place in clients.keys:
                clients.check(server, place)
        self.assertGreater(clients.total(), cycles)
        print(f"{durability}: {cycles} power cuts, {clients.total()} pushes acknowledged, none lost, none twice")

    def test_durable(self):
        self.run_cycles("durable", CYCLES)

    def test_durable_with_a_journal_that_begins_anew_all_the_time(self):
        self.run_cycles("durable", CYCLES, "--journal-limit", "4K")

    def test_durable_with_large_pushes_that_go_past_the_cache(self):
        self.run_cycles("durable", CYCLES, "--journal-limit", "8M", more=12000)

    def test_a_server_whose_syncs_do_nothing_is_caught(self):
        wrong = {"LD_PRELOAD": os.path.join(TOOLS, "libembd-unsynced.so"),
                 "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        with unittest.mock.patch.dict(os.environ, wrong), self.assertRaises(oracle.LostPush):
            self.run_cycles("durable", 10)


if __name__ == "__main__":
    if os.getuid() != 0 or not can_cut():
        print("skipped: a power cut needs root, a loop device and ext4's shutdown")
        sys.exit(77)
    unittest.main()
