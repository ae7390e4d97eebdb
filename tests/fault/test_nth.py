"""The N-th call of each kind fails, N = 1, 2, ... until none is left: memory that embd's code or a library takes, sockets
that are made, connected, read and written, loops, threads, random numbers, files; in embctl and in a trainer with numbered
pushes, and in a server that speaks TLS, asks for tokens, answers HTTP, makes snapshots and increments, begins its
journals anew and starts on them and on snapshots. A program then ends with a sentence, or did without: it does not die, does not hang, and
says nothing wrong; a server goes on, and what was acknowledged is there after a kill.

A few of them are tried; of each kind the first n and then ever fewer with EMBD_FAULT_NTH=n, all with EMBD_FAULT_NTH=all; of
some kinds alone with EMBD_FAULT_STEPS=regular expression."""
import collections
import http.client
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request

import failpoints
import oracle
import test_tls
import wire
from certificates import Authority, Tokens
from embd_process import Embd, NotReady

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
TOOLS = os.environ["EMBD_FAULT_TOOLS"]
NTH, FEW = os.environ.get("EMBD_FAULT_NTH"), int(os.environ.get("EMBD_FAULT_FEW", "8"))
STEPS = os.environ.get("EMBD_FAULT_STEPS", "")
SHARDS = 2
# How each kind of call fails in the world. What is left out is poll.change: libuv calls abort then, and also where it has no
# memory itself, which may be.
KINDS = {"memory.take": ["enomem"], "memory.lend": ["enomem"], "memory.loop": ["enomem"], "socket.make": ["emfile"], "socket.connect": ["refused", "eintr"],
         "socket.read": ["eio", "eintr"], "socket.write": ["eio", "eintr"], "socket.accept": ["emfile", "eintr"],
         "socket.option": ["enomem"], "socket.ask": ["eio"], "socket.bind": ["eio"], "socket.listen": ["eio"],
         "socket.close": ["eio"], "poll.make": ["emfile"], "poll.wait": ["eintr"], "event.make": ["emfile"],
         "thread.make": ["eagain"], "name.look": ["eagain"], "random.take": ["eio", "eintr"]}
FILES = ["eio", "eintr"]
TABLE = ("--dim=4", "--partition=modulo", "--combiner=concat", "--lr=1", "--optimizer=sgd", "--initializer=constant",
         "--durability=durable")
TRIES, JOURNAL_EXIT = 12, 74


def numbers(n_passed):
    """Which passings are tried."""
    if NTH == "all":
        return list(range(1, n_passed + 1))
    first, more = int(NTH or 1), []
    at = float(first)
    while n_passed > first and at < n_passed:
        at = at * (1.1 if first > 1 else 4) + 1
        more.append(min(math.ceil(at), n_passed))
    return list(range(1, min(first, n_passed) + 1)) + more


def all_points(steps):
    for name, n_passed in sorted(steps.items()):
        for kind in KINDS.get(name, [] if name.startswith(failpoints.NO_FILES) else FILES):
            for number in numbers(n_passed) if re.match(STEPS, name) else []:
                yield f"{name}:{kind}:{number}"


def points(steps):
    found = list(all_points(steps))
    return found if NTH else found[::len(found) // FEW + 1]


class World(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="embd-nth-")
        cls.ca, cls.tokens = Authority(cls.folder, "ca"), Tokens(cls.folder)
        cls.cert = cls.ca.issue("server")
        cls.token = cls.tokens.add("operator", "admin")
        cls.peer = {"EMBD_TLS_CA": cls.ca.path, "EMBD_TOKEN_FILE": cls.tokens.file("operator")}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def server(self, data, *flags, **options):
        return Embd("--store", "host", "--tls-cert", self.cert[0], "--tls-key", self.cert[1], "--tokens", self.tokens.path,
                    "--data-dir", data, "--journal-limit", "4K", *flags, shards=SHARDS, **options)

    def run_program(self, server, *words, variables=None):
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, **self.peer, "EMBD_SERVERS": server.addresses[0], **(variables or {})})


class Client(World):
    """embctl and a trainer, at a server without faults."""

    def setUp(self):
        self.data = tempfile.mkdtemp(dir=self.folder)
        self.running = self.server(self.data, "--http", "off")
        self.addCleanup(self.running.stop)
        self.must("table", "create", "fault", *TABLE)
        self.assertEqual(self.push(6, {}).returncode, 0)
        self.ends = collections.Counter()

    def must(self, *words):
        done = self.run_program(self.running, EMBCTL, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def push(self, count, variables):
        """As many pushes of the keys 4 and 5, with those that were made before."""
        program = os.path.join(TOOLS, "fault-numbered")
        return self.run_program(self.running, program, self.running.addresses[0], "4", str(count), "once", variables=variables)

    def check_rows(self, count):
        for key in ("4", "5"):
            row = self.must("get", "fault", key).split("\n")[1].split()
            self.assertEqual([float(x) for x in row[3:5]], [count, oracle.expected(count)])

    def each(self, words, check, again=lambda: None):
        """check(how it ended) after each run; again() makes the next one possible."""
        def run(variables):
            return self.run_program(self.running, *words, variables=variables)
        steps = failpoints.passed(lambda log: check(run(failpoints.variables(self.folder, log=log))))
        again()
        for point in points(steps):
            with self.subTest(command=" ".join(words[1:]), point=point):
                try:
                    self.see(run(failpoints.variables(self.folder, point)), check, point)
                finally:
                    again()

    def see(self, done, check, point):
        if point.startswith("memory.loop:") and done.returncode == -signal.SIGABRT:
            self.ends["abort"] += 1
            return
        self.assertGreaterEqual(done.returncode, 0, f"it died: {done.stderr}")
        if done.returncode:
            self.assertRegex(done.stderr, "^[a-z][^\n]{10,}")
        self.ends[bool(done.returncode)] += 1
        check(done)

    def same(self, *words):
        """What it says where it succeeds."""
        def shown(said):
            return [line for line in said.split("\n") if not line.startswith("elapsed")]
        expected = shown(self.must(*words))

        def check(done):
            if not done.returncode:
                self.assertEqual(shown(done.stdout), expected)
        self.each((EMBCTL, *words), check)

    def test_questions(self):
        self.same("table", "describe", "fault")
        self.same("get", "fault", "4", "5", "6")

    def test_copies(self):
        dump = self.path("dump")

        def made(done):
            is_there = os.path.isdir(dump)
            self.assertTrue(is_there or done.returncode, "it said that it was made")
            if is_there:
                self.must("verify", dump)

        def remove():
            for name in os.listdir(self.folder):
                if name.startswith("dump"):
                    shutil.rmtree(self.path(name))
        self.each((EMBCTL, "dump", "--all", dump), made, remove)
        self.must("dump", "--all", dump)
        self.same("verify", dump)
        self.must("table", "drop", "fault")

        def loaded(done):
            """What is there is whole, though embctl may have had no memory to say so."""
            is_there = "fault" in self.must("table", "list")
            self.assertTrue(is_there or done.returncode, "it said that it was loaded")
            if is_there:
                self.check_rows(6)

        def drop():
            if "fault" in self.must("table", "list"):
                self.must("table", "drop", "fault")
        self.each((EMBCTL, "load", dump), loaded, drop)
        remove()

    def test_snapshots(self):
        self.n = 0
        self.must("snapshot", "base")

        def made(done):
            for name in ("whole", "upon"):
                if os.path.isdir(os.path.join(self.data, name)):
                    self.must("verify", os.path.join(self.data, name))
                elif name in done.args:
                    self.assertNotEqual(done.returncode, 0)

        def remove():
            for name in ("whole", "upon", "whole.tmp", "upon.tmp"):
                shutil.rmtree(os.path.join(self.data, name), ignore_errors=True)
        self.each((EMBCTL, "snapshot", "whole"), made, remove)
        self.each((EMBCTL, "snapshot", "upon", "--incremental", "base"), made, remove)

    def test_numbered_pushes(self):
        """Each run makes six more of them; what one lacks the next makes."""
        count = 12
        steps = failpoints.passed(
            lambda log: self.assertEqual(self.push(12, failpoints.variables(self.folder, log=log)).returncode, 0))
        for point in points(steps):
            count += 6
            with self.subTest(point=point):
                done = self.push(count, failpoints.variables(self.folder, point))
                self.see(done, lambda done: self.assertIn(done.returncode, (0, 1, 3), done.stderr), point)
                self.assertEqual(self.push(count, {}).returncode, 0)
                self.check_rows(count)

    def tearDown(self):
        print(f"{self.id().rsplit('.', 1)[1]}: {self.ends[True]} calls failed and were told, {self.ends[False]} did without")


def data_dir(path):
    os.mkdir(path)
    return path


class Died(Exception):
    pass


def may_end(point):
    """With which statuses a server may end then: after a sync of its journal that failed, and where libuv aborts."""
    if point.startswith(("journal.sync:", "directory.sync:")):
        return [JOURNAL_EXIT]
    return [-signal.SIGABRT] if point.startswith("memory.loop:") else []


class Server(World):
    """A server with faults, and clients without, who ask again what was not done. Then it is killed, and one without faults
    starts on what it has left."""

    def setUp(self):
        self.dump = self.path("dump")
        self.ends = collections.Counter()
        nobody = {"EMBD_TLS_CA": "", "EMBD_TOKEN_FILE": ""}
        with Embd("--store", "host", "--http", "off", shards=SHARDS) as server:
            for words in (("table", "create", "other", "--dim", "2"), ("dump", "--all", self.dump)):
                self.assertEqual(self.run_program(server, EMBCTL, *words, variables=nobody).returncode, 0)

    def tearDown(self):
        shutil.rmtree(self.dump)
        print(f"{self.id().rsplit('.', 1)[1]}: {dict(self.ends)}")

    def insist(self, request):
        """Until request(how often it was asked before) says nothing. Returns how often that was."""
        for number in range(TRIES):
            said = request(number)
            if said is None:
                return number
            self.n_failed += 1
            if not self.running.is_alive():
                raise Died(self.running.wait(), self.running.log())
        return self.fail(f"{TRIES} requests failed, the last one: {said}")

    def ask(self, *words, program=EMBCTL):
        """# is the number of the request."""
        def request(number):
            done = self.run_program(self.running, program, *(word.replace("#", str(number)) for word in words))
            self.assertGreaterEqual(done.returncode, 0)
            return done.stderr if done.returncode else None
        return self.insist(request)

    def look_at_metrics(self, _number):
        try:
            with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
                return None if b"embd_table_rows" in answer.read() else "no rows"
        except (OSError, http.client.HTTPException) as error:
            return str(error)

    def load(self, number):
        if number:
            self.run_program(self.running, EMBCTL, "table", "drop", "other")
        done = self.run_program(self.running, EMBCTL, "load", self.dump)
        return done.stderr if done.returncode else None

    def push(self):
        self.count += 6
        self.ask(self.running.addresses[0], "4", str(self.count), "once", program=os.path.join(TOOLS, "fault-numbered"))

    def tell(self):
        self.ask("table", "create", "fault", *TABLE)
        self.push()
        self.insist(self.look_at_metrics)
        base = self.ask("snapshot", "whole#")
        self.push()
        self.ask("snapshot", "upon#", "--incremental", f"whole{base}")
        self.running.process.send_signal(signal.SIGHUP)
        self.insist(self.load)
        self.push()

    def check_left(self, data):
        for name in os.listdir(data):
            if not name.startswith(("journal", "identity")) and not name.endswith(".tmp"):
                done = self.run_program(self.running, EMBCTL, "verify", os.path.join(data, name))
                self.assertEqual(done.returncode, 0, done.stderr)
        with self.server(data, "--http", "off") as self.running:
            for key in ("4", "5"):
                row = self.run_program(self.running, EMBCTL, "get", "fault", key).stdout.split("\n")[1].split()
                self.assertEqual([float(x) for x in row[3:5]], [self.count, oracle.expected(self.count)])

    def run_once(self, variables, may_end=()):
        data = tempfile.mkdtemp(dir=self.folder)
        self.count = self.n_failed = 0
        try:
            with failpoints.environment({**variables, "EMBD_FAILPOINT_DIR": data}):
                self.running = self.server(data, "--http", "127.0.0.1:0")
        except NotReady as error:
            self.assertTrue("start_failed" in str(error) or -signal.SIGABRT in may_end, error)
            self.ends["did not start"] += 1
            return
        try:
            self.http = self.running.process.stdout.readline().split()[-1]
            self.tell()
        except Died as death:
            if death.args[0] not in may_end:
                raise
            self.ends["ended, as it may"] += 1
            return
        finally:
            self.running.kill()
        self.check_left(data)
        self.ends["failed and went on" if self.n_failed else "did without"] += 1
        shutil.rmtree(data)

    def each(self, chosen):
        for point in chosen:
            with self.subTest(point=point):
                self.run_once(failpoints.variables(self.folder, point), may_end(point))

    def make_before(self):
        """A data directory with two snapshots, of tables in the journal and not, and a journal behind them."""
        data = self.path("before")
        with self.server(data_dir(data), "--http", "off") as self.running:
            self.count = self.n_failed = 0
            for name, durability in (("fault", "durable"), ("lost", "snapshot")):
                self.ask("table", "create", name, *TABLE[:-1], "--durability=" + durability)
            for name in ("one", "two"):
                self.push()
                with test_tls.TlsWire(self.running, self.ca) as peer:
                    peer.call("hello", {"protocol": 1, "token": self.token})
                    table = peer.call("table_describe", {"name": "lost"})[0]["id"]
                    wire.push(peer, table, [4], [-1.0, -float(self.count), 0.0, 0.0])
                self.ask("snapshot", name)
            self.push()
        return data

    def row(self, table, key):
        said = []

        def request(_number):
            done = self.run_program(self.running, EMBCTL, "get", table, key)
            said[:] = [done.stdout]
            return done.stderr if done.returncode else None
        self.insist(request)
        return [float(x) for x in said[0].split("\n")[1].split()[3:5]]

    def start_once(self, before, variables):
        """All of it is there, or the server does not start; then one without faults does."""
        data = self.path("again")
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(before, data)
        self.n_failed = 0
        for faults in (variables, {}):
            try:
                with failpoints.environment({**faults, "EMBD_FAILPOINT_DIR": data}):
                    self.running = self.server(data, "--http", "off")
            except NotReady as error:
                self.assertTrue(faults and ("start_failed" in str(error) or -signal.SIGABRT in self.may_end), error)
                self.ends["did not start"] += 1
                continue
            try:
                found = [self.row("fault", "4"), self.row("fault", "5"), self.row("lost", "4")]
            except Died as death:
                self.assertIn(death.args[0], self.may_end)
                self.ends["ended, as it may"] += 1
                continue
            finally:
                self.running.kill()
            self.assertEqual(found, [[18, oracle.expected(18)]] * 2 + [[2, 18]])
            self.ends["started"] += 1

    def test_starts_on_what_is_there(self):
        before = self.make_before()
        self.may_end = []
        steps = failpoints.passed(lambda log: self.start_once(before, failpoints.variables(self.folder, log=log)))
        found = points({name: n for name, n in steps.items() if name.startswith(failpoints.NO_FILES)})
        for point in found if NTH else found[::3]:
            self.may_end = may_end(point)
            with self.subTest(point=point):
                self.start_once(before, failpoints.variables(self.folder, point))
        shutil.rmtree(before)

    @unittest.skipUnless(NTH, "a minute and more: EMBD_FAULT_NTH=1")
    def test_one_call_fails(self):
        steps = failpoints.passed(lambda log: self.run_once(failpoints.variables(self.folder, log=log)))
        self.each(points(steps))

    def test_calls_fail_again_and_again(self):
        """Once it has started: so many calls of these kinds come before."""
        self.each(["socket.write:eio:3+151", "memory.take:enomem:60+307", "memory.lend:enomem:16000+9973"][:FEW // 2])
        if NTH:
            self.each(["socket.read:eio:3+61", "socket.accept:emfile:1+23", "poll.wait:eintr:1+2", "thread.make:eagain:5+7",
                       "file.write:eintr:1+2", "part.write:eintr:1+2", "journal.read:eintr:1+2", "journal.write:eintr:1+2"])


if __name__ == "__main__":
    unittest.main()
