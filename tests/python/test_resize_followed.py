"""A cluster that a server follows gets more shards and fewer while trainers push. The follower keeps its tables, and has the rows of the
cluster, by digest. Where the servers are killed with -9, it is promoted: each acknowledged push is there once, on one map of all shards.
EMBD_RESIZE_KILLS=n: how often; 4 without it."""
import os
import random
import subprocess
import threading
import time
import unittest

import numpy as np

import clusters
import embd
from test_growth import Growth
from test_rebalance import DIM, EMBCTL, KEYS, TABLES, digests, embctl, rebalance
from test_rebalance_followed import Pushing
from test_retire import Retiring

KILLS = int(os.environ.get("EMBD_RESIZE_KILLS", "4"))


class History(Retiring):
    def push(self, client, seed):
        rng = np.random.default_rng(seed)
        for name in TABLES:
            keys = rng.integers(0, 700, 300, dtype=np.uint64)
            client.table(name).push(keys, rng.standard_normal((300, DIM)).astype(np.float32))
            if seed % 5 == 4:
                client.table(name).erase(keys[:14])

    def train(self, client, over):
        seed = 0
        while not over.is_set():
            self.push(client, seed)
            seed += 1

    def test_a_follower_has_the_tables_of_a_cluster_that_grows_shrinks_and_grows(self):
        rng = random.Random(int(os.environ.get("EMBD_GROWTH_SEED", "11")))
        cluster = self.begin("abc", more="journal_limit: 200000\n")  # bases are made meanwhile
        client = self.connect(cluster)
        for name, fields in TABLES.items():
            client.create_table(name, DIM, seed=5, **fields)
        follower, over = self.follow(cluster, 2, room=3), threading.Event()
        history = threading.Thread(target=self.train, args=(client, over))
        history.start()
        cluster.join("c")
        self.add(cluster, "c")
        for _ in range(2):
            self.move(cluster, "--weights", rng.choice(("1,1,1", "1,0,2", "2,1,1")))
            time.sleep(rng.uniform(0, 0.2))
            self.leave(cluster, 2, "c")
            self.again(cluster, "c")
        self.move(cluster)
        over.set()
        history.join(100)
        self.assertFalse(history.is_alive())
        self.until_like(follower.admin_path(0), digests(cluster.address("a")))
        for name in "abc":
            cluster.kill(name)
        before = digests(follower.admin_path(0))
        self.assertEqual(embctl(follower.admin_path(0), "promote").returncode, 0)
        self.assertEqual(digests(follower.addresses[0]), before)
        anew = [line for line in follower.log().splitlines() if "follow_begins_anew shard=2" not in line and "begins_anew" in line]
        self.assertFalse([line for line in anew if "no longer in the journal" not in line])  # a slow machine lags


class Kills(Growth):
    def begun(self, durability, grows):
        """Two servers and one that is to become a member; or three, of which the last has no keys."""
        cluster = self.begin("abc", 2 if grows else 3)
        follower = self.follow(cluster, 2 if grows else 3, room=3)
        with embd.connect(cluster.address("a"), deadline=60) as client:
            client.create_table("t", DIM, initializer=embd.Initializer("constant", 0.0), optimizer=embd.Optimizer("sgd", lr=1.0),
                                durability=durability)
        if grows:
            cluster.join("c")
        else:
            self.move(cluster, "--drain", "2")
        return cluster, follower

    def trainers(self, cluster):
        trainers = [Pushing(cluster.address("a"), i * KEYS) for i in range(2)]
        for trainer in trainers:
            trainer.client.close()
            trainer.client = embd.connect(cluster.address("a"), deadline=4)
            trainer.table = trainer.client.table("t")
            trainer.start()
            trainer.until(10)
        return trainers

    def die(self, cluster, words, rng):
        with subprocess.Popen([EMBCTL, "--servers", cluster.address("a"), "shard", *words], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as job:
            if rng.random() < 0.5:
                job.wait(60)
            time.sleep(rng.uniform(0, 0.3))
            for name in rng.sample("abc", 3):
                cluster.kill(name)
                time.sleep(rng.choice((0, 0.02)))
            job.kill()

    def test_no_acknowledged_push_is_lost_with_the_servers_that_count_anew(self):
        rng = random.Random(int(os.environ.get("EMBD_GROWTH_SEED", "11")))
        found = []
        for kill in range(KILLS):
            grows = kill % 2 == 0
            cluster, follower = self.begun(("replicated", "replicated_durable")[kill // 2 % 2], grows)
            trainers = self.trainers(cluster)
            self.die(cluster, ("add", cluster.address("c")) if grows else ("retire", "2"), rng)
            for trainer in trainers:
                trainer.join(60)
                self.assertIsInstance(trainer.wrong, embd.Error)
                trainer.client.close()
            found.append((grows, self.take_over(follower, trainers, (kill, follower.log()))))
            follower.kill()
        print(f"promoted, of those that grew and shrank, with so many shards: {found}")

    def take_over(self, follower, trainers, text):
        ran = embctl(follower.admin_path(0), "promote", "--force")
        self.assertEqual(ran.returncode, 0, (ran.stderr, text))
        with embd.connect(follower.addresses[0], deadline=60) as client:
            shards = len(client.shards)
            for trainer in trainers:
                trainer.check(client)
            self.assertEqual(embctl(follower.addresses[0], "table", "set", "t", "durability=durable").returncode, 0)
            rebalance(follower.addresses[0], "--weights", ",".join(str(1 + shard) for shard in range(shards)))
            for trainer in trainers:
                trainer.may_be[:] = 0
                trainer.check(client)
            self.assertEqual(sum(shard.tables["t"]["rows"] for shard in client.stats()),
                             sum(int((trainer.counts > 0).sum()) for trainer in trainers), text)
        for address in follower.addresses[:shards]:
            with embd.connect(address, deadline=60) as client:
                self.assertEqual(len(client.vshards()), shards)
        return shards


if __name__ == "__main__":
    clusters.main()
