"""Jobs on a cluster that changes: between and during their steps servers come, get keys and leave, servers and trainers die, and jobs go back to
checkpoints of another number of shards. They end with the rows of an undisturbed run, bit for bit, and so with as many steps.
EMBD_JOB_CHANGES=n: how many changes there are; 14 without it. EMBD_SEED=n: which, and when."""
import contextlib
import json
import os
import random
import time

import numpy as np

import clusters
import embd
from test_growth import Growth
from test_rebalance import embctl, is_busy

CHANGES = int(os.environ.get("EMBD_JOB_CHANGES", "14"))
STEPS, EVERY, KEYS, DIM = 60, 5, 3000, 4
TABLES = {"plain": {"optimizer": embd.Optimizer("adagrad", lr=0.1)},
          "modulo": {"partition": "modulo", "optimizer": embd.Optimizer("adam", lr=0.1)},
          "half": {"dtype": "f16", "optimizer": embd.Optimizer("rmsprop", lr=0.1)}}


class Dies(Exception):
    """The trainer does, before a step."""


class Changes(Growth):
    def setUp(self):
        self.left = []

    def open(self, cluster, name):
        client = embd.connect(cluster.address("a"), deadline=90)
        self.addCleanup(client.close)
        folders = [cluster.path(server) for server in cluster.all] + self.left
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        job = embd.Job(client, name, folders, keep=3)
        return client, job, [job.table(table, DIM, **fields) for table, fields in TABLES.items()]

    @staticmethod
    def push(tables, step):
        rng = np.random.default_rng(step)
        for table in tables:
            keys = rng.integers(0, KEYS, 400, dtype=np.uint64)
            table.push(keys, rng.standard_normal((400, DIM)).astype(np.float32))

    def train(self, cluster, name, before=lambda step: None):
        """From the last checkpoint to the end. `before` each step may change the cluster, or raise Dies."""
        client, job, tables = self.open(cluster, name)
        at = job.resume()
        if at is None:
            job.checkpoint(0)
        elif at.step:
            self.assertEqual(at.blobs["of"], str(at.step).encode())
        for step in range(at.step if at else 0, STEPS):
            before(step)
            self.push(tables, step)
            if step % EVERY == EVERY - 1:
                job.checkpoint(step + 1, blobs={"of": str(step + 1).encode()})
        client.close()

    def rows(self, cluster, name):  # pylint: disable=arguments-differ
        _, _, tables = self.open(cluster, name)
        return [table.pull(np.arange(KEYS)) for table in tables]

    def members(self, cluster):
        return len(json.loads(embctl(cluster.address("a"), "cluster", "-o", "json").stdout)["shards"])

    def done(self, cluster, *words):
        """Again while it is busy: for a minute a trainer that died may come back and end its push."""
        end = time.monotonic() + 120
        while is_busy(ran := embctl(cluster.address("a"), *words)) and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def change(self, cluster, dice):
        """One of what an operator does, or suffers."""
        n = self.members(cluster)
        what = dice.choice(("grow", "grow", "shrink", "move", "kill", "die", "both"))
        if what == "grow" and n < len(cluster.all):
            name = cluster.all[n]
            if name not in cluster.running:
                cluster.join(name)
            self.done(cluster, "shard", "add", cluster.address(name))
            self.done(cluster, "rebalance")
        elif what == "shrink" and n > 2:
            self.done(cluster, "rebalance", "--drain", str(n - 1))
            self.done(cluster, "shard", "retire", str(n - 1))
            path = cluster.path(cluster.all[n - 1])
            cluster.end(cluster.all[n - 1])
            cluster.list(n - 1)
            self.left.append(f"{path}-left-{len(self.left)}")  # it has its shares of checkpoints
            os.rename(path, self.left[-1])
        elif what == "move":
            self.done(cluster, "rebalance", "--weights", ",".join(str(dice.randint(1, 5)) for _ in range(n)))
        elif what in ("kill", "both"):
            name = dice.choice(cluster.all[:n])
            cluster.kill(name)
            cluster.list(n)
            cluster.start(name, waits=False)
            self.assertEqual(embctl(cluster.address("a"), "wait").returncode, 0)
        return what in ("die", "both")

    def test_they_end_as_if_nothing_had_been(self):
        cluster = self.begin()
        dice = random.Random(int(os.environ.get("EMBD_SEED", "12")))
        self.train(cluster, "calm")
        due = [dice.randint(1, 2 * STEPS // CHANGES) for _ in range(CHANGES)]  # steps before each change

        def before(_):
            if due and due[0] > 0:
                due[0] -= 1
            elif due:
                due.pop(0)
                if self.change(cluster, dice):
                    raise Dies()

        ended = False
        while not ended:
            with contextlib.suppress(Dies):
                self.train(cluster, "not", before)
                ended = True
        for calm, row in zip(self.rows(cluster, "calm"), self.rows(cluster, "not")):
            np.testing.assert_array_equal(row, calm)


if __name__ == "__main__":
    clusters.main()
