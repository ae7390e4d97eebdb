"""Each step of the disk that a dump, a snapshot, a load or a journal takes fails once, in each way it can: the step
returns EIO or ENOSPC, or the process dies before it or in the middle of it. Then what has a final name is whole, what
failed is told, the server serves on, and the same works without the fault. The steps are those that a run without
faults passes.
EMBD_FAULT_PASSINGS=n: each step's first n passings; 2 without it. EMBD_FAULT_KINDS: some of the ways, by comma."""
import glob
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import failpoints
import oracle
import wire
from embd_process import Embd, NotReady

EMBD_BIN = os.environ["EMBD_BIN"]
EMBCTL = os.path.join(EMBD_BIN, "embctl")
PASSINGS = int(os.environ.get("EMBD_FAULT_PASSINGS", "2"))
KINDS = os.environ.get("EMBD_FAULT_KINDS", "abort,eio,enospc,torn").split(",")
KEYS = list(range(100))
KILLED, JOURNAL_EXIT = -signal.SIGKILL, 74
IO = 17  # the status
# Steps whose failure may be passed over: closing what is only read, looking whether there is what must not be, and
# telling the kernel of a sync that is to come.
MAY_SUCCEED = ("close", "stat", "remove", "hint")
# What of libc reaches the disk, and what may all the same not be made to fail: advice, and the stdio of configurations,
# tokens, data sets and of what embctl prints.
CALLS = set("""access close copy_file_range creat dup dup2 dup3 faccessat fadvise64 fallocate fchmod fchmodat fchown fdatasync
    fdopen fdopendir fgets flock fopen fopen64 fprintf fputc fputs fread freopen fscanf fstat fstat64 fstatat fstatat64 fstatfs
    fstatvfs fsync ftruncate ftruncate64 fwrite getdents getdents64 getline ioctl link linkat lockf lseek lseek64 lstat
    lstat64 mkdir mkdirat mkdtemp mkostemp mkstemp mmap mmap64 msync name_to_handle_at open open64 open_by_handle_at openat
    openat2 openat64 opendir pread pread64 preadv preadv2 pwrite pwrite64 pwritev pwritev2 posix_fadvise posix_fallocate read
    readdir readdir64 readlink readlinkat readv realpath remove rename renameat renameat2 rewinddir rmdir scandir sendfile
    splice stat stat64 statfs statvfs statx symlink symlinkat sync sync_file_range syncfs syscall tmpfile truncate
    truncate64 unlink unlinkat utimensat write writev""".split())
# mkdtemp, realpath, symlink: links to the checkpoints of a job on several servers, made before its resume asks a server.
# fgets and statvfs: figures of a page, which lacks them then. fstatvfs: whether little is free, where not to know changes nothing.
# link: a file that cannot have a second name is copied. dup2: where the log of a child goes.
# fstatfs: what memory a peer shares; where that cannot be told, it is refused.
HARMLESS = set("access dup2 fdopen fgets fopen fprintf fputc fputs fread fstatfs fstatvfs fwrite link lseek mkdtemp posix_fadvise readlink "
               "realpath statvfs symlink".split())
# What a server with CUDA's runtime in it calls besides, for that: a server without shows that embd itself does not.
CUDA_RUNTIME = set("fchmod fscanf realpath remove".split())


def embctl(server, *arguments, variables=None, address=None):
    return subprocess.run([EMBCTL, *arguments], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "EMBD_SERVERS": address or server.addresses[0], **(variables or {})})


def verifies(path):
    return subprocess.run([EMBCTL, "verify", path], capture_output=True, timeout=60, check=False).returncode == 0


def fill(server):
    """The table, and a push to each shard, which ends soon where nothing is held."""
    for shard in range(2):
        with wire.connect(server, shard, timeout=10) as peer:
            table = wire.create(peer, "items", 4, value=0.0, partition="modulo")
            mine = [key for key in KEYS if key % 2 == shard]
            wire.push(peer, table, mine, [1.0] * 4 * len(mine))


def dies(point):
    return point.split(":")[1] in ("abort", "torn")


def may_succeed(point):
    return point.split(":")[0].split(".")[1] in MAY_SUCCEED


def symbols(path, *which):
    said = subprocess.run(["nm", *which, path], capture_output=True, text=True, timeout=60, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in said.splitlines()}


class Calls(unittest.TestCase):
    def test_every_call_of_the_disk_is_a_step_that_can_fail(self):
        library = glob.glob(os.path.join(EMBD_BIN, "..", "**", "libembd.so.*"), recursive=True)
        self.assertTrue(library)
        can_fail = symbols(failpoints.PRELOAD, "-D", "--defined-only")
        for program in (os.path.join(EMBD_BIN, "embd"), EMBCTL, library[0]):
            used = symbols(program, "-D", "--undefined-only") & CALLS
            self.assertGreater(len(used), 5, program)
            if "cudaMalloc" in symbols(program):
                used -= CUDA_RUNTIME
            self.assertEqual(used - can_fail - HARMLESS, set(), program)


class Steps(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="embd-steps-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.n_points = 0

    def path(self, name):
        return os.path.join(self.dir, name)

    def each(self, run, check, kinds=KINDS, most=PASSINGS):
        """run(variables) once for its steps, and then with each of them failing, followed by check(point)."""
        steps = failpoints.passed(lambda log: run(failpoints.variables(self.dir, log=log)))
        self.assertGreater(len(steps), 5)
        began = time.monotonic()
        for point in failpoints.points(steps, kinds, most):
            with self.subTest(point=point):
                run(failpoints.variables(self.dir, point))
                check(point)
                self.n_points += 1
        print(f"{self.id().rsplit('.', 1)[1]}: {self.n_points} faults in {len(steps)} steps, "
              f"{time.monotonic() - began:.1f} s")

    def told(self, done, point):
        """Success, or a death that was asked for, or an exit code with a sentence."""
        if dies(point):
            self.assertEqual(done.returncode, KILLED, done.stderr)
        elif done.returncode == 0:
            self.assertTrue(may_succeed(point), "a failure that nobody told")
        else:
            self.assertIn("embctl", done.stderr)
            self.assertGreater(done.returncode, 0, done.stderr)

    def test_dump(self):
        server = Embd(shards=2)
        self.addCleanup(server.stop)
        fill(server)
        target = self.path("dump")

        def run(variables):
            self.done = embctl(server, "dump", "--all", target, variables=variables)
            self.made = os.path.isdir(target) and verifies(target)
            self.assertEqual(os.path.isdir(target), self.made, "a directory that has its name is whole")
            self.left = [name for name in os.listdir(self.dir) if ".tmp" in name]
            for name in os.listdir(self.dir):
                shutil.rmtree(self.path(name))

        def check(point):
            self.told(self.done, point)
            if self.done.returncode == 0:
                self.assertTrue(self.made)
            if self.done.returncode > 0 and not point.startswith(("directory.remove", "file.remove")):
                self.assertEqual(self.left, [], "what is not finished is removed")
            fill(server)

        self.each(run, check)

    def test_load(self):
        with Embd(shards=2) as server:
            fill(server)
            self.assertEqual(embctl(server, "dump", "--all", self.path("good")).returncode, 0)
        server = Embd(shards=2)
        self.addCleanup(server.stop)

        def run(variables):
            self.done = embctl(server, "load", self.path("good"), variables=variables)
            with wire.connect(server) as peer:
                self.tables = peer.call("tables")[0]["tables"]
            if self.tables:
                embctl(server, "table", "drop", "items")

        def check(point):
            self.told(self.done, point)
            if self.done.returncode > 0:
                self.assertEqual(self.tables, [], "a load that failed leaves no table behind")
            done = embctl(server, "load", self.path("good"))
            self.assertEqual(done.returncode, 0, done.stderr)
            embctl(server, "table", "drop", "items")

        self.each(run, check)

    def test_backup(self):
        data, place = tempfile.mkdtemp(prefix="embd-steps-"), self.path("place")
        self.addCleanup(shutil.rmtree, data)
        server, number, kinds = Embd("--data-dir", data), itertools.count(), set()
        self.addCleanup(server.stop)
        with wire.connect(server) as peer:
            wire.push(peer, wire.create(peer, "items", 4, value=0.0), [1, 2, 3], [1.0] * 12)

        def run(variables):
            shutil.rmtree(place, ignore_errors=True)
            self.done = embctl(server, "backup", "--to", place, "--name", f"b{next(number)}", variables=variables)
            seen = embctl(server, "backup", "list", "--to", place, "-o", "json")
            self.states = [b["state"] for b in json.loads(seen.stdout)["backups"]] if seen.returncode == 0 else []
            self.assertIn(self.states, ([], ["cut off"], ["whole"]))
            kinds.update(self.states)
            if self.states == ["whole"]:
                self.assertEqual(embctl(server, "verify", place).returncode, 0, "what is taken for a whole one is one")

        def check(point):
            self.told(self.done, point)
            if self.done.returncode == 0:
                self.assertEqual(self.states, ["whole"], point)

        self.each(run, check, kinds=("abort", "eio", "torn"))
        self.assertEqual(kinds, {"cut off", "whole"})

    def snapshots(self, server):
        """Two, the second of which takes the first one's place; then the server goes on if it is alive. By its own socket: a
        server of another test may get the port of one that has died."""
        try:
            fill(server)
            done = {name: embctl(server, "snapshot", name, *keep, address=server.admin_path(0))
                    for name, keep in (("first", []), ("second", ["--keep", "1"]))}
            try:
                if server.is_alive():
                    fill(server)
            except OSError:  # it was dying
                self.assertEqual(server.process.wait(timeout=10), KILLED)
            return done
        finally:
            server.kill()
            self.is_told |= "identity_not_written" in server.last_log  # it goes on with the epoch it had

    def test_snapshot(self):
        data = self.path("data")

        def run(variables):
            shutil.rmtree(data, ignore_errors=True)
            os.mkdir(data)
            self.done, self.is_told = {}, False
            try:
                with failpoints.environment(variables):
                    server = Embd("--data-dir", data, shards=2)
                self.done = self.snapshots(server)
            except NotReady as error:  # it says why, or was killed
                self.assertTrue("start_failed" in str(error) or dies(variables["EMBD_FAILPOINT"]), error)

        def check(point):
            failed = [name for name, done in self.done.items() if done.returncode]
            self.assertTrue(failed or not self.done or may_succeed(point) or self.is_told, "a failure that nobody told")
            self.assertTrue(dies(point) or len(failed) < 2, "the other snapshot works")
            for name, done in self.done.items():
                self.assertTrue(done.returncode == 0 or "embctl" in done.stderr)
                is_there = os.path.isdir(os.path.join(data, name))
                self.assertTrue(is_there or name in failed or (name == "first" and "second" in os.listdir(data)),
                                "an older one goes when the newer one is there")
                if is_there:
                    self.assertTrue(verifies(os.path.join(data, name)), "what has its name is whole")
            if self.done and not failed:
                self.assertEqual([name for name in os.listdir(data) if not name.startswith(("journal", "identity"))], ["second"])
            if dies(point):
                server = Embd("--data-dir", data, shards=2)
                self.addCleanup(server.kill)
                fill(server)
                done = embctl(server, "snapshot", "third", "--keep", "1")
                server.kill()
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(verifies(os.path.join(data, "third")))
                self.assertEqual([name for name in os.listdir(data) if not name.endswith(".tmp") and not name.startswith("identity")], ["third"])

        self.each(run, check)

    def insist(self, request):
        """request() until the server does not refuse it for its disk's sake."""
        while True:
            try:
                return request()
            except wire.RpcError as error:
                self.assertEqual(error.number, IO, error)
                self.n_refused += 1
                self.assertLess(self.n_refused, 5, "after one fault nothing more is refused")

    def push(self, server, place):
        clients = self.clients
        with wire.connect(server, place[0], timeout=10) as peer:
            table, n = oracle.create(peer, "durable"), clients.acked[place] + 1
            clients.sent[place] = n
            try:
                wire.push(peer, table, [place[1]], oracle.gradient(n, place[2]))
            except wire.RpcError:
                clients.sent[place] = n - 1  # it was not applied
                raise
            clients.acked[place] = n

    def push_dozens(self, server):
        """Six of each of the writers that meet on each shard's key, after those that are there. Ends where the server does."""
        try:
            for row in self.clients.rows():
                there = self.insist(lambda: self.clients.check(server, row))
                self.clients.acked.update(there)
                self.clients.sent.update(there)
                for place in list(there) * 6:
                    self.insist(lambda: self.push(server, place))
        except (OSError, TypeError):
            pass

    def test_start_from_a_snapshot(self):
        """It begins with one that it could read, the newest but for those that it told of, or does not start."""
        data = self.path("data")
        os.mkdir(data)
        with Embd("--data-dir", data, shards=2) as server:
            for name in ("s1", "s2"):
                with wire.connect(server) as peer:
                    table = wire.create(peer, "items", 4, value=0.0, partition="modulo", durability="snapshot",
                                        optimizer={"kind": "sgd", "lr": 1.0})
                    wire.push(peer, table, [2], [-1.0] * 4)
                with wire.connect(server, 1) as peer:
                    wire.create(peer, "items", 4, value=0.0, partition="modulo", durability="snapshot",
                                optimizer={"kind": "sgd", "lr": 1.0})
                self.assertEqual(embctl(server, "snapshot", name).returncode, 0)

        def begun_with(variables):
            with failpoints.environment(variables):
                server = Embd("--data-dir", data, "--http", "off", shards=2)
            try:
                with wire.connect(server) as peer:
                    log, tables = server.log(), peer.call("tables")[0]["tables"]
                    return log, int(wire.pull(peer, tables[0]["id"], [2])[0]) if tables else 0
            finally:
                server.kill()

        def run(variables):
            try:
                self.log, self.found = begun_with(variables)
            except (NotReady, OSError, AttributeError) as error:
                self.log, self.found = str(error), None

        def check(point):
            if self.found is None:
                self.assertTrue(" error start_failed why=" in self.log or dies(point), self.log)
            else:
                for name in ("s1", "s2")[self.found:]:
                    self.assertRegex(self.log, rf"passed_over snapshot={name} ")

        self.each(run, check, ["eio"])
        self.each(run, check, ["abort"], 1)
        self.assertEqual(begun_with({})[1], 2)

    def wait_for_bases(self, server, data):
        """Until each shard has one and none is being made, or 0.3 s after a fault."""
        end = time.monotonic() + 0.3
        while server.is_alive() and time.monotonic() < end:
            names = [name for name in os.listdir(data) if ".base" in name]
            if len(names) == 2 and not any(name.endswith(".tmp") for name in names):
                break
            time.sleep(0.01)

    def test_journal(self):
        """Two lives of a server on one data directory, in the first or second of which a step fails. A push that is
        refused is not applied, one that is acknowledged is there afterwards, and a failed sync ends the process. Each
        shard's journal begins anew while pushes go on."""
        data, limit = self.path("data"), ("--journal-limit", "1K")

        def run(variables):
            shutil.rmtree(data, ignore_errors=True)
            os.mkdir(data)
            self.clients, self.status, self.n_refused, self.n_lives = oracle.Clients(2, 2, "durable"), None, 0, 0
            for life in range(2):
                with failpoints.environment({} if life == 0 and self.second_life else variables):
                    try:
                        server = Embd("--data-dir", data, *limit, shards=2)
                    except NotReady as error:  # a base that begins behind the replay may fail before it is ready
                        self.assertTrue("start_failed" in str(error) or " error journal_sync_failed " in str(error)
                                        or dies(variables["EMBD_FAILPOINT"]), error)
                        return
                self.addCleanup(server.kill)
                self.push_dozens(server)
                self.wait_for_bases(server, data)
                self.status = server.process.poll() if server.is_alive() else server.wait()
                server.kill()
                self.n_lives += 1

        def check(point):
            if self.status is not None and not dies(point):
                self.assertEqual(self.status, JOURNAL_EXIT, "a failed sync ends the process, and nothing else does")
            server = Embd("--data-dir", data, *limit, shards=2)
            self.addCleanup(server.kill)
            self.clients.check_all(server)
            server.kill()
            self.n_based += any(name.endswith(".base") for name in os.listdir(data))

        self.n_based = 0
        for self.second_life in (False, True):
            self.each(run, check)
        self.assertGreater(self.n_based, self.n_points // 2)

    def test_a_failed_sync_ends_the_process(self):
        """Of the first segment, and of the groups of pushes; nothing is acknowledged then. No base is made meanwhile."""
        for number in range(1, 4):
            data = self.path(f"data-{number}")
            os.mkdir(data)
            self.clients, self.n_refused = oracle.Clients(2, 2, "durable"), 0
            with failpoints.environment(failpoints.variables(data, f"journal.sync:eio:{number}")):
                server = Embd("--data-dir", data, "--journal-limit", "0", shards=2)
            self.addCleanup(server.kill)
            self.push_dozens(server)
            self.assertEqual(server.wait(), JOURNAL_EXIT)
            self.assertLess(sum(self.clients.acked.values()), 4)
            server = Embd("--data-dir", data, shards=2)
            self.addCleanup(server.kill)
            self.clients.check_all(server)
            server.kill()


if __name__ == "__main__":
    unittest.main()
