"""kill -9 under load, again and again on one data directory: 4 clients on each of 2 shards."""
import os
import random
import tempfile
import time
import unittest

import oracle
from embd_process import Embd

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "25"))
SHARDS = 2


class Kill(unittest.TestCase):
    def run_cycles(self, durability, cycles, *flags):
        clients = oracle.Clients(SHARDS, 4, durability)
        with tempfile.TemporaryDirectory(prefix="embd-fault-") as data:
            for _ in range(cycles):
                server = Embd("--data-dir", data, *flags, shards=SHARDS)
                try:
                    clients.start(server)
                    time.sleep(random.uniform(0.02, 0.15))
                finally:
                    server.kill()
                clients.note()
                clients.join()
            with Embd("--data-dir", data, *flags, shards=SHARDS) as server:
                for place in clients.keys:
                    clients.check(server, place)
            self.names = os.listdir(data)
            self.bytes = sum(os.path.getsize(os.path.join(data, name)) for name in self.names)
        self.assertGreater(clients.total(), cycles)
        print(f"{durability}: {cycles} kills, {clients.total()} pushes acknowledged, none lost, none twice")

    def test_durable(self):
        self.run_cycles("durable", CYCLES)

    def test_buffered(self):
        self.run_cycles("buffered", CYCLES)

    def test_a_journal_that_begins_anew_all_the_time(self):
        for durability in ("durable", "buffered"):
            self.run_cycles(durability, CYCLES // 2, "--journal-limit", "4K")
            self.assertEqual(sum(name.endswith(".base") for name in self.names), SHARDS, self.names)
            self.assertLess(self.bytes, SHARDS * (1 << 20), "it has what the tables have, and what was pushed since")

    def test_a_snapshot_table_does_lose_pushes_so_the_oracle_sees_losses(self):
        with self.assertRaises(oracle.LostPush):
            self.run_cycles("snapshot", 2)


if __name__ == "__main__":
    unittest.main()
