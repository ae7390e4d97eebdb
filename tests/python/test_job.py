"""embd.Job: tables and dense state go back together. A trainer, its server, or both are killed at random steps, and within
checkpoints; in the end rows and weights are, bit for bit, those of a run that nobody disturbed. Beside it another job pushes,
whose rows nothing changes."""
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import clusters
from ports import free_ports

import embd
import numpy as np

try:
    import torch
except ImportError:
    torch = None

STEPS, EVERY, DIM, KEYS, SHARDS = 40, 4, 4, 64, 2
KILLS = int(os.environ.get("EMBD_FAULT_CYCLES", "8"))
FIELDS = {"optimizer": embd.Optimizer("adagrad", lr=0.1), "initializer": embd.Initializer("constant", 0.5)}


def train(address, directory, durability):
    """Tells each step."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Linear(DIM, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with embd.connect(address, deadline=10) as client:
        job = embd.Job(client, "ranker", directory)
        at = job.resume(model, optimizer)
        items = job.table("items", DIM, durability=durability, **FIELDS)
        if at is None:
            job.checkpoint(0, model, optimizer, {"note": b"begun"})
        print("step", at.step if at else 0, flush=True)
        for step in range(at.step if at else 0, STEPS):
            keys = np.random.default_rng(step).choice(KEYS, 16, replace=False).astype(np.uint64)
            rows = torch.from_numpy(items.pull(keys)).requires_grad_()
            loss = (model(rows) - step % 3).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            items.push(keys, rows.grad.numpy())
            print("step", step + 1, flush=True)
            if (step + 1) % EVERY == 0:
                job.checkpoint(step + 1, model, optimizer)
        rows = items.pull(np.arange(KEYS, dtype=np.uint64))
        np.savez(os.path.join(directory, "end.npz"), rows=rows, **{k: v.numpy() for k, v in model.state_dict().items()})


class World:
    """A server, and trainers one after the other."""

    def __init__(self, test, durability):
        folder = tempfile.TemporaryDirectory(prefix="embd-job-")
        test.addCleanup(folder.cleanup)
        self.directory, self.durability = folder.name, durability
        self.listen = f"127.0.0.1:{free_ports(SHARDS)}"
        self.server = None
        test.addCleanup(lambda: self.server and self.server.kill())
        self.serve()

    def serve(self):
        self.server = clusters.Embd("--data-dir", self.directory, shards=SHARDS, listen=self.listen)

    def trainer(self):
        return subprocess.Popen([sys.executable, __file__, "train", self.server.addresses[0], self.directory, self.durability],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_until(self, step):
        """A trainer that has told that step, and goes on."""
        trainer = self.trainer()
        for line in trainer.stdout:
            if int(line.split()[1]) >= step:
                return trainer
        return trainer

    def finish(self):
        trainer = self.trainer()
        _, said = trainer.communicate(timeout=120)
        assert trainer.returncode == 0, said + self.server.log()
        with np.load(os.path.join(self.directory, "end.npz")) as end:
            return {name: end[name].tobytes() for name in end}


def end(process):
    if process.poll() is None:
        process.kill()
    process.communicate()


@unittest.skipIf(torch is None, "PyTorch is not there")
class Jobs(unittest.TestCase):
    def disturbed(self, durability):
        dice, world = random.Random(7), World(self, durability)
        others = 0
        for kill in range(KILLS):
            trainer = world.run_until(dice.randint(1, STEPS - 1))
            if kill % 3 == 0:
                end(trainer)
            elif kill % 3 == 1:
                world.server.kill()
                end(trainer)
                world.serve()
            else:
                world.server.kill()
                world.serve()
                end(trainer)
            with embd.connect(world.server.addresses[0], deadline=10) as client:
                other = client.create_table("other--t", 1, optimizer=embd.Optimizer("sgd", lr=1.0), durability="durable",
                                            initializer=embd.Initializer("constant", 0))
                other.push([1], -np.ones((1, 1), np.float32))
                others += 1
        found = world.finish()
        with embd.connect(world.server.addresses[0]) as client:
            self.assertEqual(client.table("other--t").pull([1]).item(), others)
        names = [name for name in os.listdir(world.directory) if name.startswith("ranker-")]
        self.assertLessEqual(len([name for name in names if "." not in name]), 2)
        return found

    def test_killed_anywhere_it_ends_with_the_bits_of_an_undisturbed_run(self):
        wanted = World(self, "durable").finish()
        for durability in ("durable", "snapshot"):
            with self.subTest(durability=durability):
                self.assertEqual(self.disturbed(durability), wanted)


class Going(clusters.ClusterTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="embd-job-")
        cls.flags = ("--data-dir", cls.folder.name)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def values(self, table):
        return table.pull([1]).tolist()

    def test_tables_blobs_and_step_go_back_and_others_stay(self):
        ones = np.ones((1, 1), np.float32)
        job, other = embd.Job(self.client, "a", self.folder.name), embd.Job(self.client, "a-b", self.folder.name)
        self.assertIsNone(job.resume())
        mine, theirs = job.table("t", 1, **FIELDS), other.table("t", 1, **FIELDS)
        mine.push([1], ones), theirs.push([1], ones)
        kept = self.values(mine)
        job.checkpoint(5, blobs={"place": b"line 7"})
        other.checkpoint(9)
        late = job.table("late", 1, **FIELDS)
        for table in (mine, theirs, late):
            table.push([1], 3 * ones)
        moved = self.values(theirs)
        at = job.resume()
        self.assertEqual((at.name, at.step, at.blobs), ("a-5", 5, {"place": b"line 7"}))
        self.assertEqual(job.tables(), ["a--t"])
        self.assertEqual(self.values(mine), kept)
        self.assertEqual(self.values(theirs), moved)

    def test_a_step_may_be_made_again_and_the_newest_counts(self):
        job = embd.Job(self.client, "again", self.folder.name, keep=3)
        table = job.table("t", 1, **FIELDS)
        seen = []
        for _ in range(2):
            table.push([1], np.ones((1, 1), np.float32))
            job.checkpoint(1)
            seen.append(self.values(table))
        self.assertEqual(job.resume().name, "again-1-r1")
        self.assertEqual(self.values(table), seen[1])

    def test_a_trainer_of_a_job_that_was_rolled_back_is_told(self):
        with embd.connect(self.server.addresses[0], deadline=10) as running:
            old = embd.Job(running, "told", self.folder.name)
            table = old.table("t", 1, **FIELDS)
            table.push([1], np.ones((1, 1), np.float32))
            job = embd.Job(self.client, "told", self.folder.name)
            job.checkpoint(1)
            kept = self.values(table)
            table.push([1], np.ones((1, 1), np.float32))
            job.resume()
            with self.assertRaises(embd.Error) as caught:
                table.push([1], np.ones((1, 1), np.float32))
            self.assertIn(caught.exception.status, (embd.Status.GAP, embd.Status.FORGOTTEN))
            self.assertEqual(self.values(job.table("t", 1, **FIELDS)), kept)

    def processes(self, n):
        """(what starts the i-th, their data directories): one cluster."""
        folder = tempfile.mkdtemp(dir=self.folder.name)
        config, port = os.path.join(folder, "embd.yaml"), free_ports(n)
        with open(config, "w", encoding="ascii") as file:
            file.write(f"http: off\nadmin_dir: {folder}/admin\ncluster:\n  servers:\n" + "".join(
                f'    - {{name: s{i}, listen: "127.0.0.1:{port + i}"}}\n' for i in range(n)))
        data = [os.path.join(folder, f"data{i}") for i in range(n)]
        for path in data:
            os.mkdir(path)

        def start(i):
            server = clusters.Embd("--config", config, "--server", f"s{i}", "--admin-dir", f"{folder}/admin", "--data-dir",
                                   data[i], listen=None)
            self.addCleanup(server.kill)
            return server

        return start, data

    def test_checkpoints_go_on_when_the_coordinating_server_dies(self):
        start, data = self.processes(2)
        servers, dice = [start(0), start(1)], random.Random(4)

        def die():
            servers[0].process.send_signal(dice.choice((signal.SIGKILL, signal.SIGTERM)))
            servers[0].wait()
            servers[0].kill()
            servers[0] = start(0)

        with embd.connect(servers[1].addresses[0]) as client:
            embd.Job(client, "tough", data).table("t", 1, **FIELDS).push(range(30), np.ones((30, 1), np.float32))
        with embd.connect(servers[1].addresses[0], deadline=60) as client:  # one that has not pushed: no shard misses a push
            job = embd.Job(client, "tough", data)
            for step in range(12):
                killer = threading.Timer(dice.random() * 0.1, die)
                killer.start()
                job.checkpoint(step)
                killer.join()
            with embd.connect(servers[1].addresses[0], deadline=20) as later:
                self.assertEqual(embd.Job(later, "tough", data).resume().step, 11)

    def test_a_checkpoint_that_somebody_cancels_is_not_begun_again(self):
        slow = os.path.join(os.environ["EMBD_BIN"], "..", "tests", "fault", "libembd-slow-sync.so")
        made = {"LD_PRELOAD": os.path.abspath(slow), "EMBD_FSYNC_MS": "300",
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        with unittest.mock.patch.dict(os.environ, made):
            start, data = self.processes(1)
            server = start(0)
        raised = []

        def checkpoint(job, step):
            try:
                job.checkpoint(step)
            except embd.Error as error:
                raised.append(error)

        with embd.connect(server.addresses[0], deadline=60) as client, embd.connect(server.addresses[0]) as other:
            job = embd.Job(client, "calm", data)
            job.table("t", 1, **FIELDS).push([1], np.ones((1, 1), np.float32))
            step = 0
            while not raised:  # on a slow machine it may be cancelled too late
                step += 1
                self.assertLess(step, 20)
                asking = threading.Thread(target=checkpoint, args=(job, step))
                asking.start()
                while not self.is_running(other, f"calm-{step}"):
                    self.assertTrue(asking.is_alive())
                other.snapshot_cancel(f"calm-{step}")
                asking.join()
            self.assertIsInstance(raised[0], embd.ClosedError)
            self.assertFalse(os.path.exists(os.path.join(data[0], f"calm-{step}")))

    def is_running(self, client, name):
        with contextlib.suppress(embd.InvalidError):  # not begun yet
            return client.snapshot_status(name).is_running
        return False

    def test_a_job_on_several_server_processes_goes_back_on_all(self):
        start, data = self.processes(3)
        servers = [start(i) for i in range(3)]
        keys, rows = range(30), []
        links = tempfile.mkdtemp(dir=self.folder.name)
        for dirs in (data, data, [*data[1:], data[0]]):  # in any order
            with unittest.mock.patch.dict(os.environ, {"TMPDIR": links}), embd.connect(servers[1].addresses[0]) as client:
                job = embd.Job(client, "wide", dirs)
                at = job.resume()
                table = job.table("t", 1, **FIELDS)
                rows.append(table.pull(keys))
                if at is None:
                    job.checkpoint(5, blobs={"note": b"begun"})
                else:
                    self.assertEqual((at.step, at.blobs), (5, {"note": b"begun"}))
                table.push(keys, np.ones((30, 1), np.float32))
                self.assertFalse(np.array_equal(table.pull(keys), rows[0]))
        np.testing.assert_array_equal(rows[0], rows[1])
        np.testing.assert_array_equal(rows[0], rows[2])
        self.assertEqual(os.listdir(links), [])
        fifth, sixth = (os.path.join(data[1], f"wide-{step}") for step in (5, 6))
        with embd.connect(servers[1].addresses[0]) as client:
            embd.Job(client, "wide", data).checkpoint(6)
            shutil.rmtree(sixth)
            shutil.copytree(fifth, sixth)  # one share is another checkpoint's: it is none
            self.assertEqual(embd.Job(client, "wide", data).resume().step, 5)
        shutil.rmtree(os.path.join(data[2], "wide-5"))  # on two of three: it is no checkpoint, and the job was behind it
        with embd.connect(servers[1].addresses[0]) as client:
            kept = client.table("wide--t").pull(keys)
            with self.assertRaisesRegex(embd.InvalidError, "no complete checkpoint in the directories given: of 'wide-6', with shares in .* shard 1 of 3 of table"):
                embd.Job(client, "wide", data).resume()
            with self.assertRaisesRegex(embd.StorageError, "data9: No such file"):
                embd.Job(client, "wide", [*data, os.path.join(links, "data9")]).resume()
            np.testing.assert_array_equal(client.table("wide--t").pull(keys), kept)

    def test_directories_that_are_given_twice_and_checkpoints_that_cannot_be_read(self):
        start, data = self.processes(2)
        servers = [start(i) for i in range(2)]
        link = os.path.join(self.folder.name, "link-of-0")
        os.symlink(data[0], link)
        with embd.connect(servers[0].addresses[0]) as client:
            job = embd.Job(client, "twice", [link, *data, data[1]], keep=9)
            table = job.table("t", 1, **FIELDS)
            for step in (7, 0):
                table.push(range(30), np.ones((30, 1), np.float32))
                job.checkpoint(step)
            rows = table.pull(range(30))
            table.push(range(30), np.ones((30, 1), np.float32))
            self.assertEqual(job.resume().step, 0)
            np.testing.assert_array_equal(table.pull(range(30)), rows)
            with self.assertRaisesRegex(embd.InvalidError, f"'twice-7', with shares in {data[0]}, shard 1 of 2 of table"):
                embd.Job(client, "twice", data[:1]).resume()
            with open(os.path.join(data[1], "twice-0", "manifest.json"), "r+", encoding="utf-8") as file:
                file.truncate(40)
            with self.assertRaisesRegex(embd.CorruptError, "the checkpoint 'twice-0' cannot be read, and may be the newest"):
                job.resume()
            np.testing.assert_array_equal(table.pull(range(30)), rows)
            for path in data:
                shutil.rmtree(os.path.join(path, "twice-0"))
            os.makedirs(os.path.join(data[0], "aside-2-1", "twice-9"))
            self.assertEqual(job.resume().step, 7)

    def test_a_first_checkpoint_that_is_not_whole_is_none(self):
        """Servers and trainer died while it was made: nothing was pushed, and the job begins."""
        start, data = self.processes(2)
        servers = [start(i) for i in range(2)]
        with embd.connect(servers[0].addresses[0]) as client:
            job = embd.Job(client, "early", data)
            job.table("t", 1, **FIELDS)
            job.checkpoint(0)
            shutil.rmtree(os.path.join(data[1], "early-0"))
            self.assertIsNone(job.resume())
            job.checkpoint(0)
            self.assertEqual(job.resume().step, 0)

    def test_a_server_that_came_later_has_no_share_of_an_earlier_checkpoint(self):
        start, data = self.processes(2)
        servers = [start(i) for i in range(2)]
        later = tempfile.mkdtemp(dir=self.folder.name)
        with embd.connect(servers[0].addresses[0]) as client:
            job = embd.Job(client, "grown", [later, *data])
            table = job.table("t", 1, **FIELDS)
            table.push(range(30), np.ones((30, 1), np.float32))
            job.checkpoint(7)
            rows = table.pull(range(30))
            table.push(range(30), np.ones((30, 1), np.float32))
            self.assertEqual(job.resume().step, 7)
            np.testing.assert_array_equal(table.pull(range(30)), rows)

    def test_names_that_meet_those_of_another_job_are_refused(self):
        for name in ("a--b", "a-"):
            with self.assertRaisesRegex(ValueError, "'--' separates"):
                embd.Job(self.client, name, self.folder.name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(*sys.argv[2:])
    else:
        clusters.main()
