"""client/GUIDE.md's job on two servers with failover, each of a primary and a follower: the trainer is killed before any of its lines, the
primaries die one after the other, and checkpoints lie in the directories of whoever served. It ends with the rows of an undisturbed run.
Skipped where there is no etcd. EMBD_JOB_TROUBLES=n: how often they die; 4 without it. EMBD_SEED=n: which, and when."""
import glob
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import numpy as np

import clusters
import embd
import stopped
from test_failover import KEYS, SECONDS, Failover
from test_growth_failover import Servers

TROUBLES = int(os.environ.get("EMBD_JOB_TROUBLES", "4"))
LINES = 60  # of the loop that are run, and some more
GUIDE = pathlib.Path(__file__).resolve().parents[2] / "client" / "GUIDE.md"
PROCESSES = ("a1", "a2", "b1", "b2")


class Jobs(Servers):
    def loop(self, name):
        """The block of the guide as job `name`, for these servers."""
        text = next(block for block in re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
                    if "job.checkpoint(step + 1) " in block)
        for old, new in (('"127.0.0.1:7700"', f'"{self.addresses()}", deadline={SECONDS}'), ('"ranker"', repr(name)),
                         ('"data"', repr([os.path.join(self.data, process) for process in PROCESSES])),
                         ("dim=4", 'dim=4, durability="replicated"')):
            self.assertIn(old, text)
            text = text.replace(old, new)
        return text

    def train(self, name, line=0):  # pylint: disable=arguments-differ
        """Runs it to the end; or, killed before the given line, less far. Meanwhile a primary may die."""
        return subprocess.Popen([sys.executable, __file__, "train", self.loop(name), str(line)], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end_of(self, trainer):
        said, complaint = trainer.communicate(timeout=SECONDS + 60)
        self.assertEqual(trainer.returncode, 0, f"{said}{complaint}\n{self.logs()}")

    def rows(self, name):
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            steps = [shard.tables[f"{name}--users"]["steps"] for shard in client.stats()]
            return client.table(f"{name}--users").pull(range(20)), steps

    def test_it_ends_as_if_nobody_had_died(self):
        self.begin_all()
        dice = random.Random(int(os.environ.get("EMBD_SEED", "7")))
        self.end_of(self.train("calm"))
        for _ in range(TROUBLES):
            self.until(lambda: self.even("ab"))
            server, line, who = dice.choice("ab"), dice.randint(1, LINES), dice.choice(("trainer", "server", "both"))
            trainer = self.train("calm-not", line)
            trainer.stdout.readline()  # it is there, or has ended
            if who != "trainer":
                lost = self.kill_primary(server)
                self.until(lambda: self.primary_of(server) is not None)  # pylint: disable=cell-var-from-loop
                self.start(lost)  # with one process of two nothing is acknowledged
            if who == "server":
                trainer.stdin.write("on\n")
                self.end_of(trainer)
            trainer.kill()
            trainer.communicate()
        self.end_of(self.train("calm-not"))
        calm, steps = self.rows("calm")
        rows, steps_not = self.rows("calm-not")
        np.testing.assert_array_equal(rows, calm)
        self.assertEqual((steps, steps_not), ([20, 20], [20, 20]))

    def test_a_checkpoint_is_found_wherever_it_was_made(self):
        """One before a follower took the place, one behind that, whose step has the name that another one has elsewhere."""
        self.begin_all()
        folders = [os.path.join(self.data, process) for process in PROCESSES]
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            job = embd.Job(client, "found", folders, keep=9)
            table = job.table("t", dim=2, durability="replicated", initializer=embd.Initializer("constant", 0),
                              optimizer=embd.Optimizer("sgd", lr=1.0))
            kept = []
            for step in (1, 2, 2):
                table.push(range(64), -np.ones((64, 2), np.float32))
                job.checkpoint(step)
                kept.append(table.pull(range(64)))
                server = "ab"[len(kept) % 2]
                lost = self.kill_primary(server)
                self.until(lambda: self.primary_of(server) is not None)  # pylint: disable=cell-var-from-loop
                self.start(lost)
                self.until(lambda: self.even("ab"))
        for step in (2, 2, 1):
            with embd.connect(self.addresses(), deadline=SECONDS) as client:
                self.assertEqual(embd.Job(client, "found", folders).resume().step, step)
                np.testing.assert_array_equal(client.table("found--t").pull(range(64)), kept.pop())
            for path in self.newest(folders):
                shutil.rmtree(path)

    def newest(self, folders):
        """Where the shares of the newest snapshot are."""
        found = {}
        for manifest in itertools.chain(*(glob.glob(os.path.join(folder, "*", "manifest.json")) for folder in folders)):
            with open(manifest, encoding="utf-8") as file:
                says = json.load(file)
            found.setdefault((int(says["sequence"]), says["id"]), []).append(os.path.dirname(manifest))
        return found[max(found)]


class Elder(Failover):
    def test_no_start_begins_with_a_snapshot_from_before_another_one_served(self):
        """It has a table that was left behind, and rows that have changed since."""
        self.begin("x", "y")
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            for name, durability in (("left", "snapshot"), ("kept", "replicated")):
                client.create_table(name, 2, durability=durability, initializer=embd.Initializer("constant", 0),
                                    optimizer=embd.Optimizer("sgd", lr=1.0)).push(KEYS, -np.ones((len(KEYS), 2)))
            client.snapshot("all")
            for server in "xy":  # y takes the place of x, and x that of y
                self.kill(server)
                self.until(lambda: self.primary() not in (None, server))  # pylint: disable=cell-var-from-loop
                self.start(server)
                self.until(lambda: self.insync() == 1)
                client.table("kept").push(KEYS, -np.ones((len(KEYS), 2)))
        self.assertTrue(os.path.exists(os.path.join(self.data, "x", "all", "manifest.json")))
        for server in "yx":
            self.kill(server)
        self.until(lambda: self.primary() is None)
        self.start("x").wait_log("snapshot_passed_over snapshot=all", SECONDS)
        self.until(lambda: self.primary() == "x")
        with embd.connect(self.servers["x"].addresses[0], deadline=SECONDS) as client:
            self.assertEqual(client.tables(), ["kept"])
            np.testing.assert_array_equal(client.table("kept").pull(KEYS), np.full((len(KEYS), 2), 3))
        self.kill("x")
        with open(os.path.join(self.data, "x", "snapshots.elder"), "w", encoding="ascii") as file:
            file.write("12 of them")
        refused = subprocess.run([self.program, "--config", self.file, "--server", "a", "--data-dir", os.path.join(self.data, "x"), "--listen",
                                  f"127.0.0.1:{self.ports['x']}"], capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("'snapshots.elder' has '12 of them', which is no sequence", refused.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        stopped.run(sys.argv[2], "GUIDE.md", sys.argv[3])
    else:
        clusters.main()
