"""As test_steps.py, of what stands upon something else: a snapshot of what changed since another one, with a trainer's files
in it; loads and checks of such a chain; and the start on a damaged journal whose damage is accepted. The faults begin
when what is before is there, in a directory that each run gets a copy of.
EMBD_FAULT_PASSINGS=n, above 1: each step's first n passings; a few of the first ones without it."""
import glob
import os
import shutil
import unittest

import failpoints
import oracle
import test_steps
from embd_process import Embd, NotReady
from test_steps import EMBCTL, dies, embctl, verifies

TOOLS = os.environ["EMBD_FAULT_TOOLS"]
PASSINGS = int(os.environ.get("EMBD_FAULT_PASSINGS", "1"))
FEW = int(os.environ.get("EMBD_FAULT_FEW", "4"))
TABLE = ("--dim=4", "--partition=modulo", "--combiner=concat", "--lr=1", "--optimizer=sgd", "--initializer=constant",
         "--durability=durable")


def push(server, count):
    """So many pushes of the keys 4 and 5, those that were made before among them."""
    done = test_steps.subprocess.run([os.path.join(TOOLS, "fault-numbered"), server.addresses[0], "4", str(count), "once"],
                                     capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0


def rows(server):
    """How many pushes the keys have: one number, and those are the first so many, or none where there is no table."""
    counts = []
    for key in ("4", "5"):
        done = embctl(server, "get", "fault", key)
        if done.returncode == 4:
            return None
        row = done.stdout.split("\n")[1].split()
        counts.append(int(float(row[3])))
        if float(row[4]) != oracle.expected(counts[-1]):
            raise oracle.LostPush(f"key {key}: {row}")
    return counts


class Chain(unittest.TestCase):
    setUp, path, told = test_steps.Steps.setUp, test_steps.Steps.path, test_steps.Steps.told

    def each(self, run, check):
        """run(variables) once for its steps, and then with each of them failing, followed by check(point)."""
        steps = failpoints.passed(lambda log: run(failpoints.variables(self.dir, log=log)))
        self.assertGreater(len(steps), 5)
        found = list(failpoints.points(steps, test_steps.KINDS, PASSINGS))
        chosen = found if PASSINGS > 1 else found[::len(found) // FEW + 1]
        for point in chosen:
            with self.subTest(point=point):
                run(failpoints.variables(self.dir, point))
                check(point)
                self.n_points += 1
        print(f"{self.id().rsplit('.', 1)[1]}: {self.n_points} of {len(found)} faults in {len(steps)} steps")

    def must(self, server, *words):
        done = embctl(server, *words)
        self.assertEqual(done.returncode, 0, done.stderr)

    def make_base(self, data):
        os.mkdir(data)
        with open(self.path("dense"), "wb") as file:
            file.write(b"weights" * 100)
        with Embd("--store", "host", "--data-dir", data, shards=2) as server:
            self.must(server, "table", "create", "fault", *TABLE)
            self.assertTrue(push(server, 6))
            self.must(server, "snapshot", "base", "--blob", "dense=" + self.path("dense"))

    def test_a_snapshot_upon_another(self):
        before, data = self.path("before"), self.path("data")
        self.make_base(before)

        def run(variables):
            shutil.rmtree(data, ignore_errors=True)
            shutil.copytree(before, data)
            self.done, self.is_alive = None, True
            try:
                with failpoints.environment(variables):
                    server = Embd("--store", "host", "--data-dir", data, shards=2)
            except NotReady as error:
                self.assertTrue("start_failed" in str(error) or dies(variables["EMBD_FAILPOINT"]), error)
                return
            try:
                push(server, 12)
                self.done = embctl(server, "snapshot", "upon", "--incremental", "base", "--blob",
                                   "dense=" + self.path("dense"), address=server.admin_path(0))  # see test_steps
                self.is_alive = server.is_alive()
            finally:
                server.kill()

        def check(point):
            upon = os.path.join(data, "upon")
            self.assertTrue(verifies(os.path.join(data, "base")))
            self.assertEqual(os.path.isdir(upon), verifies(upon), "what has its name is whole")
            if self.done and self.done.returncode == 0:
                self.assertTrue(os.path.isdir(upon))
            elif self.done:
                self.assertIn("embctl", self.done.stderr)
            with Embd("--store", "host", "--data-dir", data, shards=2) as server:
                self.assertTrue(push(server, 12))
                self.assertEqual(rows(server), [12, 12])
                done = embctl(server, "snapshot", "last", "--incremental", "base", "--blob", "dense=" + self.path("dense"))
            if done.returncode:  # where the fault was in what says what changed
                self.assertIn("make a snapshot of all rows", done.stderr)
                return
            with Embd("--store", "host", shards=2) as server:
                self.must(server, "load", os.path.join(data, "last"))
                self.assertEqual(rows(server), [12, 12])

        self.each(run, check)

    def test_a_load_of_a_chain(self):
        data = self.path("data")
        self.make_base(data)
        with Embd("--store", "host", "--data-dir", data, shards=2) as server:
            self.assertTrue(push(server, 9))
            self.must(server, "snapshot", "upon", "--incremental", "base", "--blob", "dense=" + self.path("dense"))
            self.assertTrue(push(server, 12))
            self.must(server, "snapshot", "last", "--incremental", "upon")
        server = Embd("--store", "host", shards=2)
        self.addCleanup(server.kill)

        def run(variables):
            self.done = embctl(server, "load", os.path.join(data, "last"), variables=variables)
            self.found = rows(server)
            if self.found is not None:
                self.must(server, "table", "drop", "fault")

        def check(point):
            self.told(self.done, point)
            if self.done.returncode == 0:
                self.assertEqual(self.found, [12, 12])
            elif not dies(point):
                self.assertIsNone(self.found, "a load that failed leaves no table behind")

        self.each(run, check)

    def test_a_check_of_a_chain(self):
        data = self.path("data")
        self.make_base(data)
        with Embd("--store", "host", "--data-dir", data, shards=2) as server:
            self.assertTrue(push(server, 9))
            self.must(server, "snapshot", "upon", "--incremental", "base", "--blob", "dense=" + self.path("dense"))

        def run(variables):
            self.done = test_steps.subprocess.run([EMBCTL, "verify", os.path.join(data, "upon")], capture_output=True, text=True,
                                                  timeout=60, check=False, env={**os.environ, **variables})

        self.each(run, lambda point: self.told(self.done, point))

    def damage(self, data):
        """A byte of a record that others follow, of each shard."""
        for name in glob.glob(os.path.join(data, "journal.*.00000001")):
            with open(name, "r+b") as file:
                file.seek(os.path.getsize(name) // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))

    def test_damage_that_is_accepted(self):
        before, data = self.path("before"), self.path("data")
        os.mkdir(before)
        with Embd("--store", "host", "--data-dir", before, shards=2) as server:
            self.must(server, "table", "create", "fault", *TABLE)
            self.assertTrue(push(server, 40))
        self.damage(before)
        self.assertRaises(NotReady, Embd, "--store", "host", "--data-dir", before, shards=2)

        def notes():
            return [name for name in os.listdir(data) if name.endswith(".damage") and os.path.getsize(os.path.join(data, name))]

        def run(variables):
            shutil.rmtree(data, ignore_errors=True)
            shutil.copytree(before, data)
            self.found = None
            try:
                with failpoints.environment(variables):
                    server = Embd("--store", "host", "--data-dir", data, "--accept-journal-damage", shards=2)
            except NotReady as error:
                self.assertTrue("start_failed" in str(error) or dies(variables["EMBD_FAILPOINT"]), error)
                return
            try:
                self.found = rows(server)
            finally:
                server.kill()

        def check(point):
            """Nothing goes without a note, and what was kept is kept."""
            try:
                with Embd("--store", "host", "--data-dir", data, shards=2) as server:
                    again = rows(server)
                self.assertEqual(len(notes()), 2)
            except NotReady as error:
                self.assertIn("is damaged", str(error))
                self.assertIsNone(self.found)
                with Embd("--store", "host", "--data-dir", data, "--accept-journal-damage", shards=2) as server:
                    again = rows(server)
                self.assertEqual(len(notes()), 2)
            self.assertTrue(all(5 < n < 40 for n in again), again)
            self.assertIn(self.found, (None, again))

        self.each(run, check)


if __name__ == "__main__":
    unittest.main()
