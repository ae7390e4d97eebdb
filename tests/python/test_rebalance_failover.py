"""Keys move in a cluster with failover while trainers push to replicated tables, and primaries are killed with -9: a follower takes
the place with one map of all shards, no acknowledged push is lost or doubled, and keys move on there. Skipped where there is no
etcd. EMBD_MOVE_KILLS=n: how many kills; 3 without it."""
import os
import random
import subprocess
import time

import clusters
import embd
from test_failover import EMBCTL, SECONDS, Failover

KILLS = int(os.environ.get("EMBD_MOVE_KILLS", "3"))


class Moves(Failover):
    def tend(self):
        """It does not matter who serves."""
        for name in self.lapsed():
            self.start(name)

    def vshards(self, server):
        """Of all shards, as each of them has it."""
        found = set()
        for address in server.addresses:
            with embd.connect(address, deadline=SECONDS) as client:
                found.add(tuple(client.vshards()))
        return found

    def mover(self, name, weights):
        return subprocess.Popen([EMBCTL, "--servers", self.servers[name].addresses[0], "rebalance", "--weights", weights],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def settled(self):
        self.until(lambda: self.primary() is not None and self.insync() == 2)
        return self.primary()

    def moved(self, weights):
        """Where a lease lapses it is another primary's."""
        end = time.monotonic() + SECONDS
        while True:
            with self.mover(self.settled(), weights) as mover:
                _, why = mover.communicate(timeout=SECONDS)
            if mover.returncode == 0:
                return
            self.assertLess(time.monotonic(), end, (why, self.logs()))
            time.sleep(1)

    def test_a_primary_that_is_killed_while_keys_move_loses_nothing(self):
        rng = random.Random(int(os.environ.get("EMBD_MOVE_SEED", "17")))
        self.begin("x", "y", "z")
        trainers = self.train(2)
        self.moved("1,3")
        self.go_on_pushing(*trainers)
        for kill in range(KILLS):
            name = self.settled()
            with self.mover(name, ("3,1", "1,3")[kill % 2]) as mover:
                time.sleep(rng.uniform(0, 0.15))
                self.kill(name)
                mover.kill()
            self.until(lambda name=name: self.primary() not in (None, name))
            self.go_on_pushing(*trainers)
            maps = self.vshards(self.servers[self.primary()])
            self.assertTrue(len(maps) == 1 and maps <= {(256, 768), (768, 256)}, (maps, self.logs()))
            self.start(name)
        for weights in ("0,1", "1,1"):
            self.moved(weights)
            self.go_on_pushing(*trainers)
        self.settled()
        self.finish(*trainers)


if __name__ == "__main__":
    clusters.main()
