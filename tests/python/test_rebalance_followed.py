"""Keys of replicated tables move while trainers push and a server follows; the servers are killed with -9, and the follower is
promoted: each acknowledged push is there once, the shards have one map, and keys move on. EMBD_MOVE_KILLS=n: how often; 4 without it."""
import json
import os
import random
import subprocess
import time
import unittest

import numpy as np

import clusters
import embd
from clusters import Embd
from listed import Listed
from test_rebalance import DIM, EMBCTL, KEYS, Trainer, embctl, rebalance

KILLS = int(os.environ.get("EMBD_MOVE_KILLS", "4"))


class Pushing(Trainer):
    """Stops where a push fails, which may be there or not."""

    def __init__(self, address, first):
        super().__init__(address, "t", first)
        self.may_be = np.zeros(KEYS)

    def step(self, rng):
        at = rng.choice(KEYS, 200, replace=False)
        self.may_be[at] = 1
        self.table.push(self.keys[at], -np.ones((200, DIM), np.float32))
        self.may_be[at] = 0
        self.counts[at] += 1
        self.n += 1

    def check(self, client):
        found = client.table("t").pull(self.keys)[:, 0]
        wrong = (found != self.counts) & (found != self.counts + self.may_be)
        assert not wrong.any(), (self.keys[wrong], found[wrong], self.counts[wrong])
        self.counts = found


class Followed(unittest.TestCase):
    def begin(self, durability):
        cluster = Listed("ab")
        self.addCleanup(cluster.__exit__, None, None, None)
        for name in cluster.names:
            cluster.start(name, waits=False)
        self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        own = cluster.path("f")
        os.mkdir(own)
        follower = Embd("--http", "off", "--data-dir", own, "--follow", cluster.path(f"admin/{cluster.port}.sock"), shards=2, waits=False)
        self.addCleanup(follower.kill)
        for shard in range(2):
            follower.wait_log(f"follow_has_base shard={shard}", 60)
        with embd.connect(cluster.address("a"), deadline=60) as client:
            client.create_table("t", DIM, initializer=embd.Initializer("constant", 0.0), optimizer=embd.Optimizer("sgd", lr=1.0),
                                durability=durability)
        return cluster, follower

    def vshards(self, client):
        with client:
            return tuple(client.vshards())

    def test_no_acknowledged_push_is_lost_with_the_servers_that_move_keys(self):
        rng = random.Random(int(os.environ.get("EMBD_MOVE_SEED", "13")))
        moved = 0
        for kill in range(KILLS):
            cluster, follower = self.begin(("replicated", "replicated_durable")[kill % 2])
            trainers = [Pushing(cluster.address(name), i * KEYS) for i, name in enumerate("ab")]
            for trainer in trainers:
                trainer.client.close()
                trainer.client = embd.connect(cluster.address("a"), deadline=4)
                trainer.table = trainer.client.table("t")
                trainer.start()
            rebalance(cluster.address("a"), "--weights", "1,3")
            for trainer in trainers:
                trainer.until(10)
            with subprocess.Popen([EMBCTL, "--servers", cluster.address("a"), "rebalance", "--weights", "3,1"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as mover:
                time.sleep(rng.uniform(0, 0.4))
                for name in rng.sample("ab", 2):
                    cluster.kill(name)
                    time.sleep(rng.choice((0, 0.02)))
                mover.kill()
            for trainer in trainers:
                trainer.join(60)
                self.assertIsInstance(trainer.wrong, embd.Error)
                trainer.client.close()
            moved += self.take_over(follower, trainers, (kill, follower.log())) == (768, 256)
            follower.kill()
        print(f"of {KILLS} moves {moved} were made")

    def take_over(self, follower, trainers, text):
        ran = embctl(follower.admin_path(0), "promote", "--force")
        self.assertEqual(ran.returncode, 0, (ran.stderr, text))
        maps = {self.vshards(embd.connect(address, deadline=60)) for address in follower.addresses}
        self.assertTrue(maps <= {(256, 768), (768, 256)} and len(maps) == 1, (maps, text))
        with embd.connect(follower.addresses[0], deadline=60) as client:
            for trainer in trainers:
                trainer.check(client)
            self.assertEqual(embctl(follower.addresses[0], "table", "set", "t", "durability=durable").returncode, 0)
            self.wait_digest(follower)
            for weights in ("0,1", "1,1"):
                rebalance(follower.addresses[0], "--weights", weights)
                client.table("t").push(trainers[0].keys, -np.ones((KEYS, DIM), np.float32))
                trainers[0].counts += 1
            trainers[0].may_be[:] = trainers[1].may_be[:] = 0
            for trainer in trainers:
                trainer.check(client)
            present = sum(int((trainer.counts > 0).sum()) for trainer in trainers)
            self.assertEqual(sum(shard.tables["t"]["rows"] for shard in client.stats()), present, text)
        return maps.pop()

    def wait_digest(self, server):
        """Rows of others are gone."""
        end = time.monotonic() + 60
        while (ran := embctl(server.addresses[0], "digest", "-o", "json")).returncode != 0:
            self.assertLess(time.monotonic(), end, ran.stderr)
            time.sleep(0.1)
        return json.loads(ran.stdout)


if __name__ == "__main__":
    clusters.main()
