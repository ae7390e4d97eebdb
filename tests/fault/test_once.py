"""Trainers whose pushes are numbered, while the servers are killed with -9 and started again, trainers are too, and the
network between them cuts connections, loses answers and sends requests once more: in the end every push was applied
once on each shard, and no call failed. EMBD_FAULT_CYCLES=n: how many kills; 4 without it."""
import os
import random
import subprocess
import tempfile
import time
import unittest

import oracle
import wire
from embd_process import Embd
from ports import free_ports
from proxy import Proxy

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "4"))
NUMBERED = os.path.join(os.environ["EMBD_FAULT_TOOLS"], "fault-numbered")
FAULTS = {"delay": 0.002, "cut": 0.002, "drop_answers": 0.002, "replay": 0.004}
TRAINERS, SHARDS, COUNT = 3, 2, 250 * CYCLES
MET, EACH = 10**6, 4096  # where they meet: see numbered.c


class Doubled(Exception):
    pass


class Once(unittest.TestCase):
    def setUp(self):
        self.port = free_ports(SHARDS, ("127.0.0.1", "127.0.0.2"))
        self.data = tempfile.TemporaryDirectory(prefix="embd-once-")
        self.addCleanup(self.data.cleanup)
        self.proxies = [Proxy(("127.0.0.2", port), ("127.0.0.1", port), FAULTS, seed=port)
                        for port in range(self.port, self.port + SHARDS)]
        for proxy in self.proxies:
            self.addCleanup(proxy.close)

    def start(self):
        return Embd("--data-dir", self.data.name, "--advertise", "127.0.0.2", "--local-socket", "off", shards=SHARDS,
                    listen=f"127.0.0.1:{self.port}")

    def trainer(self, i, mode):
        return subprocess.Popen([NUMBERED, f"127.0.0.2:{self.port}", str(2 * i), str(COUNT), mode], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def check(self, server):
        for shard in range(SHARDS):
            with wire.connect(server, shard) as peer:
                table = oracle.create(peer, "durable")
                for i in range(TRAINERS):
                    lanes = wire.pull(peer, table, [2 * i + shard])
                    if lanes != [COUNT, oracle.expected(COUNT), (i + 1) * COUNT, 0]:
                        raise Doubled(f"trainer {i}, shard {shard}: {COUNT} pushes, found {lanes}")
                for first in range(0, COUNT + 1, EACH):
                    numbers = range(max(first, 1), min(first + EACH, COUNT + 1))
                    n, steps = len(numbers), sum(n % oracle.MODULUS for n in numbers)
                    lanes = wire.pull(peer, table, [MET + 2 * first // EACH + shard])
                    if lanes != [TRAINERS * n, TRAINERS * steps, sum(range(1, TRAINERS + 1)) * n, 0]:
                        raise Doubled(f"where trainers meet, shard {shard}: {n} pushes of each, found {lanes}")

    def run_cycles(self, mode, cycles):
        server = self.start()
        for shard in range(SHARDS):
            with wire.connect(server, shard) as peer:
                oracle.create(peer, "durable")
        running = [self.trainer(i, mode) for i in range(TRAINERS)]
        try:
            for cycle in range(cycles):
                time.sleep(random.uniform(0.05, 0.3))
                server.kill()
                if mode == "once":  # and one of the trainers, which another run of it follows
                    i = cycle % TRAINERS
                    running[i].kill()
                    running[i].communicate()
                    running[i] = self.trainer(i, mode)
                server = self.start()
            longest = []
            for trainer in running:
                out, error = trainer.communicate(timeout=120 + COUNT / 100)
                self.assertEqual(trainer.returncode, 0, error)
                longest.append(float(out))
            self.check(server)
        finally:
            for trainer in running:
                trainer.kill()
                trainer.communicate()
            server.kill()
        return max(longest)

    def test_numbered_pushes_are_applied_once(self):
        longest = self.run_cycles("once", CYCLES)
        faults = {fault: sum(proxy.counts[fault] for proxy in self.proxies) for fault in FAULTS}
        print(f"{TRAINERS} trainers, {COUNT} pushes each, {CYCLES} kills, {faults}: each applied once; the longest push took "
              f"{longest:.0f} ms")

    def test_pushes_that_are_guessed_about_are_doubled_so_the_oracle_sees_it(self):
        with self.assertRaises(Doubled):
            self.run_cycles("guess", 2)


if __name__ == "__main__":
    unittest.main()
