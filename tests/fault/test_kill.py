"""kill -9 under load, again and again on one data directory: 4 clients on each of 2 shards. Beside the pushes embctl makes
snapshots, whole and of what changed, and loads a table; after some kills the next comes while the journal is still read."""
import os
import random
import tempfile
import time
import unittest

import beside
import oracle
import wire
from embd_process import Embd

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "25"))
SHARDS, LARGE = 2, 12000


class Kill(unittest.TestCase):
    def run_cycles(self, durability, cycles, *flags, make_beside=beside.Nothing, meanwhile=None, more=0):
        clients = oracle.Clients(SHARDS, 4, durability, more)
        with tempfile.TemporaryDirectory(prefix="embd-fault-") as data:
            others = make_beside(data, clients)
            for _ in range(cycles):
                server = Embd("--data-dir", data, *flags, shards=SHARDS)
                try:
                    others.check(server)
                    clients.start(server)
                    time.sleep(random.uniform(0.02, 0.15) + (0.2 if more else 0))
                    others.go(server)
                    if meanwhile:
                        meanwhile(server)
                finally:
                    server.kill()
                clients.note()
                clients.join()
                others.killed()
            with Embd("--data-dir", data, *flags, shards=SHARDS) as server:
                others.check(server)
                clients.check_all(server)
            self.names = os.listdir(data)
            self.bytes = sum(os.path.getsize(os.path.join(data, name)) for name in self.names)
        self.assertGreater(clients.total(), cycles)
        print(f"{durability}: {cycles} kills, {clients.total()} pushes acknowledged, none lost, none twice{others}")

    def run_beside(self, durability):
        with tempfile.TemporaryDirectory(prefix="embd-fault-") as folder:
            dump = os.path.join(folder, "dump")
            beside.make_dump(dump, durability)
            self.run_cycles(durability, CYCLES, make_beside=lambda *data: beside.InTurn(*data, dump, SHARDS))

    def test_durable(self):
        self.run_beside("durable")

    def test_buffered(self):
        self.run_beside("buffered")

    def test_what_is_not_whole_is_seen(self):
        """What beside.py asks of snapshots and loads, of ones that are wrong."""
        with tempfile.TemporaryDirectory(prefix="embd-fault-") as folder:
            dump = os.path.join(folder, "dump")
            beside.make_dump(dump, "buffered")
            clients = oracle.Clients(SHARDS, 1, "buffered")
            snapshot, load = beside.Snapshot(folder, clients, False), beside.Load(dump, SHARDS)
            with Embd("--data-dir", folder, shards=SHARDS) as server:
                clients.check_all(server)

                def make(act):
                    act.go(server)
                    act.child.wait()
                    return act

                make(snapshot).check(server)
                make(load).check(server)
                make(snapshot).acked["s1"][clients.places[0]] = 1
                self.assertRaises(beside.NotWhole, snapshot.check, server)
                os.remove(os.path.join(folder, make(snapshot).number, f"{oracle.TABLE}.0.part"))
                self.assertRaises(beside.NotWhole, snapshot.check, server)
                os.rename(os.path.join(folder, make(snapshot).number), os.path.join(folder, "s9.tmp"))
                self.assertRaises(beside.NotWhole, snapshot.check, server)
                make(load)
                beside.must(server, "delete", beside.OTHER, "7")
                self.assertRaises(beside.NotWhole, load.check, server)

    def test_a_journal_that_begins_anew_all_the_time(self):
        for durability in ("durable", "buffered"):
            self.run_cycles(durability, CYCLES // 2, "--journal-limit", "4K")
            self.assertEqual(sum(name.endswith(".base") for name in self.names), SHARDS, self.names)
            self.assertLess(self.bytes, SHARDS * (1 << 20), "it has what the tables have, and what was pushed since")

    def disturb(self, server):
        """What a new beginning of the journal gives way to: the drop of a table that is in it, and snapshots."""
        self.n_snapshots += 1
        beside.must(server, "table", "create", "other", "--dim", "2", "--set", "durability=buffered")
        with wire.connect(server) as peer:
            table = peer.call("table_describe", {"name": "other"})[0]["id"]
            keys = wire.owned(20000, 0, SHARDS)
            for first in range(0, 20000, 2000):
                wire.push(peer, table, keys[first:first + 2000], [1.0] * 4000)
        beside.must(server, "table", "drop", "other")
        beside.must(server, "snapshot", f"s{self.n_snapshots}", "--keep", "1")

    def test_a_journal_that_begins_anew_while_tables_go_and_snapshots_are_made(self):
        self.n_snapshots = 0
        self.run_cycles("buffered", CYCLES // 5, "--journal-limit", "4K", meanwhile=self.disturb)
        self.assertIn(f"s{self.n_snapshots}", self.names)

    def test_large_pushes_that_go_past_the_cache(self):
        for durability in ("durable", "buffered"):
            self.run_cycles(durability, CYCLES // 5, "--journal-limit", "16M", more=LARGE)

    def test_a_snapshot_table_does_lose_pushes_so_the_oracle_sees_losses(self):
        with self.assertRaises(oracle.LostPush):
            self.run_cycles("snapshot", 2)


if __name__ == "__main__":
    unittest.main()
