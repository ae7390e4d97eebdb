"""kill -9 of a server whose tables no journal keeps, while it makes snapshots, whole and of what changed, and while it loads one
at its start: each start has the pushes of the newest complete snapshot, those acknowledged before it was begun among them,
each once and none that came later; and the same at every start until there is a newer one. EMBD_FAULT_CYCLES=n."""
import os
import random
import tempfile
import time
import unittest

import beside
import oracle
from embd_process import Embd

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "8"))
SHARDS = 2


class Restore(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="embd-fault-")
        self.addCleanup(folder.cleanup)
        self.data = folder.name
        self.clients = oracle.Clients(SHARDS, 4, "snapshot")
        zero = dict(self.clients.acked)
        self.bounds = {None: (zero, zero)}  # of a snapshot: acknowledged when it was begun, and sent at the end
        self.n_made = self.n_back = 0

    def newest(self):
        made = [int(name[1:]) for name in os.listdir(self.data) if name[0] == "s" and name[1:].isdigit()]
        return max(made, default=None)

    def go_on(self, server):
        """From what is there, which may be before what was sent last."""
        found = self.clients.check_all(server)
        for shard, key, writer in [place for place in self.clients.places if found.get(place, 0) >= oracle.MOST]:
            self.clients.places.remove((shard, key, writer))
            self.clients.places.append((shard, key + self.clients.stride, writer))
        for place in self.clients.places:
            found.setdefault(place, 0)
        self.clients.acked, self.clients.sent = dict(found), dict(found)
        self.clients.start(server)
        return found

    def push(self, server):
        """And make a snapshot, which the kill may end."""
        newest, number = self.newest(), self.n_made
        found = self.go_on(server)
        self.bounds[newest] = (found, found)  # and so it stays
        time.sleep(random.uniform(0.02, 0.1))
        self.clients.note()
        begun = dict(self.clients.acked)
        upon = ["--incremental", f"s{newest}"] if newest is not None and number % 3 else []
        act = beside.Act()
        act.begin(server, "snapshot", f"s{number}", *upon)
        time.sleep(random.uniform(0.0, 0.15))
        server.kill()
        self.clients.join()
        act.end()
        self.bounds[number] = (begun, dict(self.clients.sent))
        self.n_made += 1

    def expect(self):
        """What the next start is to have."""
        newest = self.newest()
        self.n_back += newest is None or newest < self.n_made - 1
        self.clients.acked, self.clients.sent = (dict(bound) for bound in self.bounds[newest])

    def test_each_start_has_the_newest_snapshot(self):
        for cycle in range(CYCLES):
            if cycle % 2:  # one that is killed while it loads, or just has
                server = Embd("--data-dir", self.data, shards=SHARDS, waits=False)
                time.sleep(random.uniform(0.0, 0.05))
                server.kill()
            server = Embd("--data-dir", self.data, shards=SHARDS)
            try:
                self.push(server)
            finally:
                server.kill()
            self.expect()
        with Embd("--data-dir", self.data, shards=SHARDS) as server:
            self.clients.check_all(server)
        print(f"{CYCLES} kills, {self.n_made} snapshots begun, {self.n_back} times an earlier one was the newest")

    def test_a_start_that_does_not_load_is_seen(self):
        server = Embd("--data-dir", self.data, shards=SHARDS)
        self.clients.start(server)
        time.sleep(0.05)
        self.clients.note()
        begun = dict(self.clients.acked)
        beside.must(server, "snapshot", "s0")
        server.kill()
        self.clients.join()
        self.n_made, self.bounds[0] = 1, (begun, dict(self.clients.sent))
        self.expect()
        with Embd("--data-dir", self.data, "--restore", "none", shards=SHARDS) as server:
            self.assertRaises(oracle.LostPush, self.clients.check_all, server)
        with Embd("--data-dir", self.data, shards=SHARDS) as server:
            self.clients.check_all(server)


if __name__ == "__main__":
    unittest.main()
