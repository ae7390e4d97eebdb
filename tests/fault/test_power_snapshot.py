"""Power cuts after and while a snapshot is made: one that is there under its name is whole, and one that was said to be
made is there. Needs root and loop devices; skipped (exit status 77) where they are not. EMBD_FAULT_CYCLES=n: 6 without
it."""
import os
import random
import shutil
import subprocess
import sys
import time
import unittest

import failpoints
import wire
from embd_process import Embd
from test_power import Disk, can_cut

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "6"))
EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
KEYS = 5000


def begin_snapshot(server, name):
    return subprocess.Popen([EMBCTL, "snapshot", name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "EMBD_SERVERS": server.addresses[0]})


def verifies(path):
    return subprocess.run([EMBCTL, "verify", path], capture_output=True, check=False).returncode == 0


class PowerSnapshot(unittest.TestCase):
    def setUp(self):
        self.disk = Disk()
        self.addCleanup(self.disk.remove)

    def cut_once(self, number, variables):
        """The power goes when a snapshot is made, in odd cycles before. Returns the names of what must be there."""
        with failpoints.environment(variables):
            server = Embd("--data-dir", self.disk.root)
        try:
            with wire.connect(server) as peer:
                table = wire.create(peer, "items", 16)
                wire.push(peer, table, range(KEYS), [1.0] * 16 * KEYS)
            snapshot = begin_snapshot(server, f"s{number}")
            if number % 2:
                time.sleep(random.uniform(0, 0.02))
            else:
                self.assertEqual(snapshot.wait(30), 0, snapshot.stderr.read())
            self.disk.cut()
        finally:
            server.kill()
            snapshot.communicate(timeout=30)
            self.disk.unmount()
            self.disk.mount()
        return [] if number % 2 else [f"s{number}"]

    def run_cycles(self, cycles, variables):
        """How many snapshots are missing or not whole."""
        bad = 0
        for number in range(cycles):
            made = self.cut_once(number, variables)
            there = [name for name in os.listdir(self.disk.root) if name.startswith("s")]
            whole = [name for name in there if "." not in name]
            bad += sum(name not in whole for name in made)
            bad += sum(not verifies(os.path.join(self.disk.root, name)) for name in whole)
            for name in there:
                shutil.rmtree(os.path.join(self.disk.root, name))
        return bad

    def test_what_has_its_name_is_whole(self):
        self.assertEqual(self.run_cycles(CYCLES, {}), 0)
        print(f"{CYCLES} power cuts around snapshots, none is missing or in part")

    def test_a_manifest_before_its_parts_is_caught(self):
        """The manifest is synced and the parts are not."""
        first = failpoints.variables(self.disk.root, "part.sync:skip:0")
        self.assertGreater(self.run_cycles(4, first), 0)


if __name__ == "__main__":
    if os.getuid() != 0 or not can_cut():
        print("skipped: a power cut needs root, a loop device and ext4's shutdown")
        sys.exit(77)
    unittest.main()
