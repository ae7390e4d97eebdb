"""A job of several workers in step, with checkpoints: workers die, or servers, or both, and a worker of before may live on, which is refused; the
job goes back, and ends with the rows of an undisturbed run. The first worker makes the checkpoint between its push and its next step: its push was answered when all had pushed.
EMBD_FAULT_CYCLES=n: how many troubles there are; 4 without it. EMBD_SEED=n: which, and when."""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import clusters
import embd
from ports import free_ports

TROUBLES = int(os.environ.get("EMBD_FAULT_CYCLES", "4"))
WORKERS, STEPS, EVERY, LEASE_S, SECONDS = 3, 40, 5, 2, 120


def work(address, folder, name, rank, first):
    """From step `first` to the end."""
    with embd.connect(address, deadline=SECONDS) as client:
        job = embd.Job(client, name, folder)
        users = job.table("users", 4, optimizer=embd.Optimizer("adagrad", lr=0.1))
        items = job.table("items", 4, optimizer=embd.Optimizer("adam", lr=0.1))
        with embd.Clock(client, name, worker=rank, workers=WORKERS, lease=LEASE_S, start=first) as clock:
            for step in clock.steps(STEPS):
                rng = np.random.default_rng([step, rank])
                for table in (users, items):
                    keys = rng.integers(0, 500, 64, dtype=np.uint64)
                    table.push(keys, rng.integers(-4, 5, (64, 4)).astype(np.float32), round=clock)
                if rank == 0 and step % EVERY == EVERY - 1:
                    job.checkpoint(step + 1)
                print(step, flush=True)


class Workers(unittest.TestCase):
    def serve(self):
        self.server = clusters.Embd("--data-dir", self.folder, "--http", "off", shards=2, listen=self.listen, admin=self.admin)
        self.addCleanup(self.server.kill)

    def begin(self, name):
        """The one who starts the workers goes back, and tells them where they begin."""
        with embd.connect(self.server.addresses[0], deadline=SECONDS) as client:
            job = embd.Job(client, name, self.folder)
            at = job.resume()
            if at is None:
                job.table("users", 4, optimizer=embd.Optimizer("adagrad", lr=0.1))
                job.table("items", 4, optimizer=embd.Optimizer("adam", lr=0.1))
                job.checkpoint(0)
        first = at.step if at else 0
        return first, [subprocess.Popen([sys.executable, "-B", __file__, "work", self.server.addresses[0], self.folder, name, str(rank),
                                         str(first)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                       for rank in range(WORKERS)]

    def end(self, workers):
        for worker in workers:
            _, complaint = worker.communicate(timeout=SECONDS + 60)
            self.assertEqual(worker.returncode, 0, f"{complaint}\n{self.server.log()}")

    def rows(self, name):
        with embd.connect(self.server.addresses[0]) as client:
            steps = [shard.tables[f"{name}--users"]["steps"] for shard in client.stats()]
            return [client.table(f"{name}--{table}").pull(range(500)) for table in ("users", "items")], steps

    def test_a_worker_of_before_is_refused_behind_a_start_too(self):
        """Whether the server started before its job went back, or behind that: its push changes nothing."""
        self.folder, self.admin, self.listen = tempfile.mkdtemp(), tempfile.mkdtemp(), f"127.0.0.1:{free_ports(2)}"
        for path in (self.folder, self.admin):
            self.addCleanup(shutil.rmtree, path)
        self.serve()
        for name, starts in (("behind", ("back", "start")), ("before", ("start", "back"))):
            with embd.connect(self.server.addresses[0], deadline=SECONDS) as old, \
                    embd.connect(self.server.addresses[0], deadline=SECONDS) as new:
                job = embd.Job(old, name, self.folder)
                table = job.table("t", 1, initializer=embd.Initializer("constant", 0), optimizer=embd.Optimizer("sgd", lr=1.0))
                job.checkpoint(0)
                clock = embd.Clock(old, name, worker=0, workers=1, lease=SECONDS)
                table.push(range(64), np.ones((64, 1), np.float32), round=clock)
                for what in starts:
                    if what == "back":
                        self.assertEqual(embd.Job(new, name, self.folder).resume().step, 0)
                    else:
                        self.server.kill()
                        self.serve()
                for act in (lambda: table.push(range(64), np.ones((64, 1), np.float32), round=clock), clock.tick):
                    with self.assertRaisesRegex(embd.InvalidError, f"table '{name}--t' went back to a checkpoint"):
                        act()
                np.testing.assert_array_equal(new.table(f"{name}--t").pull(range(64)), np.zeros((64, 1)))

    def test_it_ends_as_if_nothing_had_been(self):
        self.folder, self.admin, self.listen = tempfile.mkdtemp(), tempfile.mkdtemp(), f"127.0.0.1:{free_ports(2)}"
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(shutil.rmtree, self.admin)
        dice = random.Random(int(os.environ.get("EMBD_SEED", "5")))
        self.serve()
        self.kept = []
        self.end(self.begin("calm")[1])
        for _ in range(TROUBLES):
            first, workers = self.begin("not")
            if first == STEPS:
                self.end(workers)
                break
            for _ in range(dice.randint(1, max(1, (STEPS - first) // 2))):
                workers[dice.randrange(WORKERS)].stdout.readline()
            time.sleep(dice.random() * 0.02)
            who = dice.choice(("workers", "servers", "both", "all but one", "all but one, and servers"))
            if who in ("servers", "both", "all but one, and servers"):
                self.server.kill()
            if who in ("workers", "both"):
                for worker in workers:
                    worker.kill()
            if who in ("servers", "both", "all but one, and servers"):
                self.serve()
            if who == "servers":
                self.end(workers)
            if who.startswith("all but one"):
                kept, dead = workers[-1], workers[:-1]  # the first one would make checkpoints of what is not its own
                for worker in dead:
                    worker.kill()
                    worker.communicate()
                self.kept.append(kept)
                continue
            for worker in workers:
                worker.communicate()
        self.end(self.begin("not")[1])
        for worker in self.kept:
            _, complaint = worker.communicate(timeout=SECONDS)
            self.assertNotEqual(worker.returncode, 0)
            self.assertRegex(complaint, "went back to a checkpoint|epoch [0-9]+ has begun|another process|must go on with|not known")
        (calm, calm_steps), (rows, steps) = self.rows("calm"), self.rows("not")
        for a, b in zip(calm, rows):
            np.testing.assert_array_equal(b, a)
        self.assertEqual((calm_steps, steps), ([STEPS] * 2, [STEPS] * 2))


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:5], int(sys.argv[5]), int(sys.argv[6]))
    else:
        clusters.main()
