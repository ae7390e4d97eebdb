"""A trainer outlives its servers: three of them, a shard each, are stopped and killed and started again, one after the
other, at any point of a loop that knows nothing of it. Nothing is raised, and the rows are those of a cluster that
nobody touched, bit for bit. A shard that comes back without what it had acknowledged is told of."""
import contextlib
import io
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest
import warnings

import numpy as np

try:
    import torch
except ImportError:
    torch = None

import clusters
from embd_process import BIN
import embd
from game_day import report
import wire
from ports import free_ports

SHARDS, KEYS, DIM = 3, 500, 4
RESTARTS = int(os.environ.get("EMBD_RESTARTS", "12"))
FORGETFUL = os.path.join(os.path.dirname(os.path.dirname(BIN)), "tests", "fault", "embd-without-sources_have")
README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


class Servers:
    """A process a shard, from one configuration file, each with a data directory."""

    def __init__(self, folder):
        port = free_ports(SHARDS)
        self.folder, self.config = folder, os.path.join(folder, "embd.yaml")
        self.data = [os.path.join(folder, f"data{i}") for i in range(SHARDS)]
        with open(self.config, "w", encoding="ascii") as file:
            file.write(f"http: off\nadmin_dir: {folder}/admin\ncluster:\n  servers:\n" + "".join(
                f'    - {{name: s{i}, listen: "127.0.0.1:{port + i}"}}\n' for i in range(SHARDS)))
        for data in self.data:
            os.makedirs(data, exist_ok=True)
        self.list = [self.start(i) for i in range(SHARDS)]

    def start(self, i, *flags):
        return clusters.Embd("--config", self.config, "--server", f"s{i}", "--admin-dir", f"{self.folder}/admin",
                             "--data-dir", self.data[i], *flags, listen=None)

    def end(self, i, how):
        self.list[i].process.send_signal(how)
        self.list[i].wait()
        self.list[i].kill()

    def restart(self, i, how, meanwhile=lambda: None, flags=()):
        self.end(i, how)
        meanwhile()
        self.list[i] = self.start(i, *flags)

    def close(self):
        for server in self.list:
            server.kill()

    @property
    def addresses(self):
        return ",".join(server.addresses[0] for server in self.list)


class Ending(threading.Thread):
    """Before a server. While it is armed, the next request of one of these methods does not reach it, as where it ends at this moment:
    the request is refused, or not answered behind the notification that a server ends with, or lost."""

    def __init__(self, port, methods):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.2", port))
        self.address, self.to = f"127.0.0.2:{port}", ("127.0.0.1", port)
        self.methods, self.how, self.met = methods, None, []
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                peer = self.listener.accept()[0]
                threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        server = socket.create_connection(self.to)
        back = threading.Thread(target=self.carry, args=(server, peer), daemon=True)
        back.start()
        unpacker, n, last = wire.msgpack.Unpacker(raw=False, max_bin_len=1 << 26), 0, 0
        with contextlib.suppress(OSError):
            while data := peer.recv(1 << 16):
                unpacker.feed(data)
                for message in unpacker:
                    if self.how and message[2] in self.methods:
                        server.sendall(data[:max(0, last - n)])
                        self.end(peer, message)
                        data = None
                        break
                    last = unpacker.tell()
                if data is None:
                    break
                server.sendall(data)
                n += len(data)
        for end in (peer, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def carry(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)

    def end(self, peer, message):
        how, self.how = self.how, None
        self.met.append((message[2], how))
        why = [-int(embd.Status.DRAINING), "the server shuts down"]
        if how == "refused":
            peer.sendall(wire.msgpack.packb([1, message[1], why, None]))
            peer.recv(1)  # the client leaves
        elif how == "not taken":
            peer.sendall(wire.msgpack.packb([2, "error", why]))

    def close(self):
        self.listener.close()


class Losing:
    """Before a server. While it is armed no answer to a push comes through, nor what comes behind it. Those connections end when it
    is disarmed. It may hide that the server knows pushes of rounds again, as one of an earlier version."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.2", port))
        self.address, self.to = f"127.0.0.2:{port}", ("127.0.0.1", port)
        self.armed, self.hides, self.lost, self.sockets = False, False, [], []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                peer = self.listener.accept()[0]
                try:
                    server = socket.create_connection(self.to)
                except OSError:
                    peer.close()
                    continue
                self.sockets += [peer, server]
                for a, b, is_answer in ((peer, server, False), (server, peer, True)):
                    threading.Thread(target=self.carry, args=(a, b, is_answer), daemon=True).start()

    def carry(self, a, b, is_answer):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                if is_answer and self.armed and b"parts" in data:
                    self.lost.append((a, b))
                    return
                b.sendall(data.replace(b"rounds_again", b"rounds_other") if self.hides else data)
        for end in (a, b):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def disarm(self):
        self.armed = False
        while self.lost:
            for end in self.lost.pop():
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        self.disarm()
        for end in self.sockets:
            end.close()


class InStep(threading.Thread):
    """One of the workers of a job. Each step is a push of two tables at once and one of the second alone, by keys and gradients that
    the step and the worker say."""

    WORKERS = 3

    class Meeting:
        """All workers are before the same step when `then` is called, once it is wanted."""

        def __init__(self, then):
            self.step, self.is_wanted, self.lock = None, False, threading.Lock()
            self.barrier = threading.Barrier(InStep.WORKERS, action=then, timeout=60)

        def come(self, step):
            with self.lock:
                if self.is_wanted and self.step is None:
                    self.step = step + 2  # nobody is further than the next one
            if step == self.step:
                self.barrier.wait()
                self.is_wanted = False

    def __init__(self, addresses, rank, durability):
        super().__init__(daemon=True)
        self.client = embd.connect(addresses, deadline=60)
        options = {"optimizer": embd.Optimizer("adam", lr=0.05), "durability": durability}
        self.tables = [self.client.create_table(name, DIM, **options) for name in "tu"]
        self.clock = embd.Clock(self.client, "job", worker=rank, workers=self.WORKERS, lease=60)
        self.rank, self.end, self.at, self.wrong, self.meeting = rank, 1 << 30, -1, None, None

    def run(self):
        try:
            with self.clock, warnings.catch_warnings():
                warnings.simplefilter("error", embd.WorkerWarning)
                for step in self.clock.steps(1 << 30):
                    if step >= self.end:
                        break
                    if self.meeting:
                        self.meeting.come(step)
                    self.step(step)
                    self.at = step
        except Exception as error:  # pylint: disable=broad-except
            self.wrong = error

    def step(self, n):
        chance = np.random.default_rng((n, self.rank))
        parts = [embd.Part(table, chance.integers(0, KEYS, 32), values=chance.random((32, DIM), np.float32)) for table in self.tables]
        self.client.push(parts, round=self.clock)
        self.tables[1].push(chance.integers(0, KEYS, 8), chance.random((8, DIM), np.float32), round=self.clock)

    def rows(self):
        return [table.pull(np.arange(KEYS)) for table in self.tables]

    @classmethod
    def begin(cls, addresses, durability="durable"):
        workers = [cls(addresses, rank, durability) for rank in range(cls.WORKERS)]
        for worker in workers:
            worker.start()
        return workers

    @staticmethod
    def finish(workers, n):
        """They make n steps and end, or have raised."""
        for worker in workers:
            worker.end = n
        for worker in workers:
            worker.join(120)
        return [worker.wrong if not worker.is_alive() else "hangs" for worker in workers]


def check_steps(test, workers, n):
    """The rows are those of n steps that nobody disturbed."""
    server = clusters.Embd(shards=SHARDS)
    test.addCleanup(server.kill)
    twins = InStep.begin(server.addresses[0], "snapshot")
    test.assertEqual(InStep.finish(twins, n), [None] * len(twins))
    both = [worker.rows() for worker in (workers[0], twins[0])]
    for worker in (*workers, *twins):
        worker.client.close()
    for rows, twin in zip(*both):
        np.testing.assert_array_equal(rows, twin)


class Restarts(threading.Thread):
    """One server after the other, by SIGTERM and by SIGKILL, at random moments."""

    def __init__(self, servers, hows=(signal.SIGTERM, signal.SIGKILL)):
        super().__init__()
        self.servers, self.hows, self.left = servers, hows, RESTARTS
        self.start()

    def run(self):
        chance = random.Random(os.urandom(8))
        for i, how in itertools.islice(itertools.cycle(itertools.product(range(SHARDS), self.hows)), RESTARTS):
            threading.Event().wait(chance.uniform(0, 0.1))
            self.servers.restart(i, how)
            self.left -= 1


class EndingTest(unittest.TestCase):
    """What has no number, of a server that ends in order."""

    def setUp(self):
        port = free_ports(1)
        self.ending = Ending(port, ("erase", "table_create", "table_drop"))
        self.addCleanup(self.ending.close)
        self.server = clusters.Embd("--advertise", "127.0.0.2", listen=f"127.0.0.1:{port}")
        self.addCleanup(self.server.kill)
        before = os.environ.get("EMBD_TRANSPORT")
        self.addCleanup(lambda: os.environ.pop("EMBD_TRANSPORT") if before is None else os.environ.update(EMBD_TRANSPORT=before))
        os.environ["EMBD_TRANSPORT"] = "tcp"
        self.client = embd.connect(self.ending.address, deadline=60)
        self.addCleanup(self.client.close)

    def create(self, name):
        return self.client.create_table(name, DIM, initializer=embd.Initializer("constant", 0.0), optimizer=embd.Optimizer("sgd", lr=1.0))

    def rows(self, table):
        return np.count_nonzero(table.pull(np.arange(KEYS))[:, 0])

    def each(self, how):
        """Of the three, the exceptions."""
        keys, raised = np.arange(KEYS), []
        table = self.create("t")
        table.push(keys, -np.ones((KEYS, DIM)))
        for what in (lambda: table.erase(keys[:100]), lambda: self.create("u"), lambda: self.client.drop_table("u")):
            self.ending.how = how
            try:
                what()
            except embd.Error as error:
                raised.append(error.status)
        self.assertEqual(self.ending.met, [(method, how) for method in self.ending.methods])
        return table, raised

    def test_what_it_refuses_goes_to_the_next(self):
        for how in ("refused", "not taken"):
            with self.subTest(how):
                self.ending.met = []
                table, raised = self.each(how)
                self.assertEqual(raised, [])
                self.assertEqual((self.rows(table), sorted(self.client.tables())), (KEYS - 100, ["t"]))

    def test_what_may_have_been_done_is_told(self):
        """But for a creation, which does nothing where it was done."""
        table, raised = self.each("lost")
        self.assertEqual(raised, [embd.Status.CLOSED, embd.Status.CLOSED])
        self.assertEqual((self.rows(table), sorted(self.client.tables())), (KEYS, ["t", "u"]))

    def test_a_push_in_flight_is_answered_beside_one_that_is_refused(self):
        """Its connection stays as long as something that has no number is due."""
        table = self.create("t")
        keys = np.arange(KEYS)
        with embd.connect(self.ending.address, deadline=60, unnumbered=True) as client:
            plain = client.table("t")
            calls = [plain.push_start(keys, -np.ones((KEYS, DIM), np.float32)) for _ in range(4)]
            self.ending.how = "refused"
            plain.erase(keys[:100])
            for call in calls:
                call.wait()
        self.assertEqual(self.ending.met, [("erase", "refused")])
        self.assertEqual(self.rows(table), KEYS - 100)


class LostAnswersTest(unittest.TestCase):
    """Steps of workers, of which nobody gets the answers before the server is killed."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="embd-lost-answers-")
        self.addCleanup(folder.cleanup)
        self.losing, self.folder = Losing(free_ports(1)), folder.name
        self.addCleanup(self.losing.close)
        before = os.environ.get("EMBD_TRANSPORT")
        self.addCleanup(lambda: os.environ.pop("EMBD_TRANSPORT") if before is None else os.environ.update(EMBD_TRANSPORT=before))
        os.environ["EMBD_TRANSPORT"] = "tcp"

    def start(self):
        self.server = clusters.Embd("--advertise", "127.0.0.2", "--data-dir", self.folder, listen=f"127.0.0.1:{self.losing.to[1]}",
                                    program=self.program)

    def until(self, reached):
        end = time.monotonic() + 60
        while not reached():
            self.assertLess(time.monotonic(), end, "not within 60 s")
            time.sleep(0.01)

    def lose_answers(self, workers, of_all):
        """To pushes of a step, of all workers or of some."""
        if of_all:
            meeting = InStep.Meeting(lambda: setattr(self.losing, "armed", True))
            for worker in workers:
                worker.meeting = meeting
            meeting.is_wanted = True
        else:
            self.losing.armed = True
        self.until(lambda: self.losing.lost and len(self.losing.lost) + self.figure("round_pushes_waiting") == InStep.WORKERS)

    def restart(self):
        self.server.process.kill()
        self.server.wait()
        self.server.kill()
        self.start()

    def figure(self, name):
        with wire.connect(self.server) as peer:
            return peer.call("stats")[0]["stats"][name]

    def go_on(self, workers):
        before = max(worker.at for worker in workers) + 1
        self.until(lambda: all(worker.at > before or worker.wrong for worker in workers))

    def make_steps(self, program, of_all):
        """Workers that made so many, their number, and how many pushes of them the servers have known again."""
        self.program = program
        self.start()
        self.addCleanup(lambda: self.server.kill())
        workers, again = InStep.begin(self.losing.address), 0
        for _ in range(4):
            self.go_on(workers)
            self.lose_answers(workers, of_all)
            self.restart()
            self.losing.disarm()
            self.go_on(workers)
            again += self.figure("pushes_again")
        n = max(worker.at for worker in workers) + 3
        self.assertEqual(InStep.finish(workers, n), [None] * len(workers))
        return workers, n, again

    def test_each_step_is_made_once(self):
        workers, n, again = self.make_steps(BIN, of_all=True)
        self.assertEqual(again, 4 * InStep.WORKERS)
        check_steps(self, workers, n)

    def test_each_step_is_made_once_where_some_have_the_answer(self):
        workers, n, again = self.make_steps(BIN, of_all=False)
        self.assertGreaterEqual(again, 4)
        check_steps(self, workers, n)

    def test_an_earlier_server_gets_no_push_again(self):
        """Whether it was there before or not."""
        for hid, why in ((True, "connection closed during the call"), (False, "of an earlier version")):
            with self.subTest(hid=hid):
                self.losing.hides, self.program = hid, BIN
                self.start()
                workers = InStep.begin(self.losing.address)
                self.go_on(workers)
                self.lose_answers(workers, of_all=True)
                steps = self.figure("round_steps")
                self.losing.hides = True
                self.losing.disarm()
                for worker in workers:
                    worker.join(60)
                    self.assertIsInstance(worker.wrong, embd.ClosedError)
                    self.assertRegex(str(worker.wrong), why)
                    worker.client.close()
                self.assertEqual((self.figure("round_steps"), self.figure("pushes_again")), (steps, 0))
                self.server.kill()

    @unittest.skipUnless(os.path.exists(FORGETFUL), "its server was not built")
    def test_a_server_that_does_not_know_them_again_makes_steps_twice(self):
        workers, n, again = self.make_steps(FORGETFUL, of_all=True)
        self.assertEqual(again, 0)
        with self.assertRaisesRegex(AssertionError, "not equal"):
            check_steps(self, workers, n)


class RestartsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="embd-restarts-")
        self.addCleanup(folder.cleanup)
        self.servers = Servers(folder.name)
        self.addCleanup(self.servers.close)
        self.client = self.connect()

    def connect(self, **options):
        client = embd.connect(self.servers.addresses, deadline=60, **options)
        self.addCleanup(client.close)
        return client

    def untouched(self):
        """A client of a cluster that is left alone."""
        server = clusters.Embd(shards=SHARDS)
        self.addCleanup(server.kill)
        client = embd.connect(server.addresses[0], deadline=60)
        self.addCleanup(client.close)
        return client

    def table(self, client, name="t", **fields):
        return client.create_table(name, DIM, optimizer=embd.Optimizer("adam", lr=0.05), **fields)

    def step(self, table, n):
        chance = np.random.default_rng(n)
        keys = chance.integers(0, KEYS, 64)
        table.push(keys, table.pull(keys) + chance.random((64, DIM), np.float32))

    def in_flight(self, client, table, n):
        """Pushes behind each other, waited for at the end."""
        chance, calls = np.random.default_rng(n), []
        for _ in range(4):
            calls.append(table.push_start(chance.integers(0, KEYS, 64), chance.random((64, DIM), np.float32)))
        for call in calls:
            call.wait()

    # ---- nothing is raised, and each push is applied once ----

    def through_restarts(self, step, hows=(signal.SIGTERM, signal.SIGKILL), **options):
        table = self.table(self.connect(**options))
        restarts, n, longest = Restarts(self.servers, hows), 0, 0.0
        try:
            while restarts.is_alive():
                began = time.monotonic()
                step(table.client, table, n)
                longest, n = max(longest, time.monotonic() - began), n + 1
        finally:
            restarts.join()
        self.assertEqual(restarts.left, 0)
        step(table.client, table, n)
        twin = self.table(self.untouched(), durability="snapshot")
        for i in range(n + 1):
            step(twin.client, twin, i)
        np.testing.assert_array_equal(table.pull(np.arange(KEYS)), twin.pull(np.arange(KEYS)))
        report(f"rolling restarts ({self.id().rpartition('.test_')[2].replace('_', ' ')})", longest, 0)
        print(f"{n + 1} steps, {RESTARTS} restarts: {sum(shard.shard['pushes_again'] for shard in self.client.stats())} "
              "pushes that had been applied came again to the servers that are there now")

    def test_a_loop_of_pulls_and_pushes(self):
        self.through_restarts(lambda client, table, n: self.step(table, n))

    def test_a_loop_without_a_thread_of_the_library(self):
        self.through_restarts(lambda client, table, n: self.step(table, n), own_thread=False)

    def test_pushes_in_flight(self):
        self.through_restarts(self.in_flight)

    def test_changes_without_a_number_where_servers_end_in_order(self):
        def step(client, table, n):
            self.step(table, n)
            table.erase(np.arange(n % KEYS, KEYS, 50))
            self.table(client, name="short").push([n], np.ones((1, DIM), np.float32))
            client.drop_table("short")

        self.through_restarts(step, hows=(signal.SIGTERM,))

    def test_workers_in_step(self):
        """Each step is made once on each shard, also one that is under way where a server ends, and no worker hears of it."""
        workers = InStep.begin(self.servers.addresses)
        restarts = Restarts(self.servers)
        restarts.join()
        n = max(worker.at for worker in workers) + 3
        self.assertEqual(InStep.finish(workers, n), [None] * len(workers))
        again = sum(shard.shard["pushes_again"] for shard in self.client.stats())
        check_steps(self, workers, n)
        print(f"{n} steps, {RESTARTS} restarts: {again} pushes of steps that had been made came again to the servers that are there now")

    def test_buffered_tables(self):
        self.table = lambda client, **fields: client.create_table("t", DIM, durability=fields.get("durability", "buffered"))
        self.through_restarts(self.in_flight)

    @unittest.skipUnless(torch, "PyTorch is not installed: deploy/deps.sh --torch")
    def test_a_torch_model(self):
        import embd.torch
        bags = {}

        def step(client, table, n):
            if client not in bags:
                torch.manual_seed(1)
                bags[client] = embd.torch.EmbeddingBag(None, DIM, mode="sum", client=client, table=table), torch.nn.Linear(DIM, 1)
            bag, head = bags[client]
            torch.manual_seed(n)
            head(bag(torch.randint(KEYS, (16, 5)))).square().sum().backward()
            bag.flush()

        self.through_restarts(step)

    @unittest.skipUnless(torch, "PyTorch is not installed: deploy/deps.sh --torch")
    def test_the_loop_of_the_readme_whose_servers_die_at_each_of_its_lines(self):
        import embd.torch
        text = README.read_text(encoding="utf-8").replace("127.0.0.1:7700", self.servers.addresses)
        block = next(block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "embd.torch.EmbeddingBag" in block)
        block = block.replace('"data"', repr(self.servers.data))
        first = next(i for i, line in enumerate(block.splitlines(), 1) if line.startswith("for step in"))
        last = next(i for i, line in enumerate(block.splitlines(), 1) if i > first and not line.startswith(" ")) - 1
        visits, starting, ended = dict.fromkeys(range(first, last + 1), 0), [], itertools.count()

        def at_line(frame, event, _):
            if event != "line" or frame.f_code.co_name != "<module>":
                return at_line
            line = frame.f_lineno
            visits[line] = visits.get(line, 0) + 1
            if line > last or (first <= line and visits[line] in (2, 4)):
                while starting:
                    starting.pop().join()
            if first <= line <= last and visits[line] in (2, 4):
                i = next(ended) % SHARDS
                self.servers.end(i, signal.SIGKILL if visits[line] == 2 else signal.SIGTERM)
                starting.append(threading.Thread(target=lambda: self.servers.list.__setitem__(i, self.servers.start(i))))
                starting[-1].start()
            return at_line

        names, said = {"__name__": "readme"}, io.StringIO()
        sys.settrace(lambda frame, event, _: at_line if frame.f_code.co_filename == "README.md" else None)
        try:
            with contextlib.redirect_stdout(said):
                exec(compile(block, "README.md", "exec"), names)
        finally:
            sys.settrace(None)
        self.assertEqual(next(ended), 2 * (last - first + 1))
        self.assertLess(float(said.getvalue().split()[1].rstrip(",")), 0.69, "no better than a coin")

    # ---- snapshots beside a trainer that rests ----

    def snapshot_waits_for_nobody(self, name, flags=(), how=signal.SIGKILL):
        """A shard that has started again knows the last push of a client that sends nothing meanwhile."""
        self.servers.restart(1, how, flags=flags)
        with embd.connect(self.servers.addresses) as other:
            other.snapshot(name)
        for server in self.servers.list:
            self.assertNotIn("client_left_out", server.log())

    def test_a_snapshot_does_not_wait_for_pushes_that_were_applied_before_a_restart(self):
        for options in ({}, {"unnumbered": True}):
            table = self.table(self.connect(**options))
            self.in_flight(None, table, 0)
            self.snapshot_waits_for_nobody(f"a{len(options)}")
            self.step(table, 1)

    def test_nor_does_it_after_the_journal_was_compacted(self):
        table = self.table(self.client)
        for n in range(20):
            self.step(table, n)
        self.servers.restart(1, signal.SIGTERM, flags=["--journal-limit", "1"])
        while not any(name.endswith(".base") for name in os.listdir(self.servers.data[1])):
            time.sleep(0.01)
        self.snapshot_waits_for_nobody("a")

    def test_nor_does_it_for_the_pushes_of_workers_in_step(self):
        clients = [self.connect() for _ in range(2)]
        clocks = [embd.Clock(client, "job", worker=worker, workers=2) for worker, client in enumerate(clients)]
        tables = [self.table(client) for client in clients]
        calls = [table.push_start(np.arange(9), np.ones((9, DIM), np.float32), round=clock)
                 for table, clock in zip(tables, clocks)]
        for call in calls:
            call.wait()
        self.snapshot_waits_for_nobody("a")

    # ---- a shard that went back ----

    def goes_back(self, table, i, status):
        """The next push is refused and says why; the one after it goes on."""
        with self.assertRaises(embd.Error) as caught:
            self.step(table, 1000)
        self.assertEqual(caught.exception.status, status)
        self.assertIn("lost acknowledged pushes", str(caught.exception))
        self.assertIn(self.servers.list[i].addresses[0], str(caught.exception))
        self.step(table, 1001)

    def test_a_data_directory_that_went_back(self):
        table = self.table(self.client)
        self.step(table, 0)
        older = self.servers.data[1] + ".older"
        self.servers.restart(1, signal.SIGTERM, lambda: shutil.copytree(self.servers.data[1], older))
        self.step(table, 1)
        self.step(table, 2)

        def restore():
            shutil.rmtree(self.servers.data[1])
            shutil.copytree(older, self.servers.data[1])

        self.servers.restart(1, signal.SIGTERM, restore, ["--accept-empty"])  # an older directory is refused without it
        self.goes_back(table, 1, embd.Status.GAP)

    def test_a_directory_that_is_older_than_the_client(self):
        table = self.table(self.client)
        older = self.servers.data[2] + ".older"
        self.servers.restart(2, signal.SIGTERM, lambda: shutil.copytree(self.servers.data[2], older))
        self.step(table, 0)

        def restore():
            shutil.rmtree(self.servers.data[2])
            shutil.copytree(older, self.servers.data[2])

        self.servers.restart(2, signal.SIGKILL, restore, ["--accept-empty"])
        self.goes_back(table, 2, embd.Status.FORGOTTEN)

    def test_a_table_that_no_journal_keeps_is_as_in_the_snapshot(self):
        table = self.table(self.client, durability="snapshot")
        self.step(table, 0)
        self.client.snapshot("a")
        self.servers.restart(0, signal.SIGKILL)
        self.step(table, 1)  # nothing was lost
        self.servers.restart(0, signal.SIGKILL)
        self.goes_back(table, 0, embd.Status.GAP)

    @unittest.skipUnless(torch, "PyTorch is not installed: deploy/deps.sh --torch")
    def test_a_torch_model_is_told(self):
        import embd.torch
        bag = embd.torch.EmbeddingBag(None, DIM, mode="sum", client=self.client, name="words", durability="snapshot")
        keys = torch.arange(50).reshape(10, 5)
        bag(keys).sum().backward()
        bag.flush()
        self.client.snapshot("a")
        bag(keys).sum().backward()
        bag.flush()
        self.servers.restart(1, signal.SIGKILL)
        with self.assertRaisesRegex(embd.Error, "lost acknowledged pushes") as caught:
            bag(keys).sum().backward()
            bag.flush()
        self.assertEqual(caught.exception.status, embd.Status.GAP)
        bag(keys).sum().backward()
        bag.flush()

    # ---- clients that only pull ----

    def warned(self, *tables):
        """The tables that a pull warns of, each once."""
        keys, named = np.arange(KEYS), []
        for _ in range(2):
            for table in tables:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    table.pull(keys)
                    table.pull_start(keys).wait()
                named += [(table.name, warning.category) for warning in caught]
        return named

    def replace_by(self, older, i):
        shutil.rmtree(self.servers.data[i])
        shutil.copytree(older, self.servers.data[i])

    def test_a_restart_is_told_of_tables_that_no_journal_keeps_only(self):
        self.step(self.table(self.client), 0)
        self.step(self.client.create_table("s", DIM, durability="snapshot"), 0)
        self.client.snapshot("a")
        reader = self.connect()
        kept, lost = reader.table("t"), reader.table("s")
        self.assertEqual(self.warned(kept, lost), [])
        self.servers.restart(1, signal.SIGKILL)
        self.assertEqual(self.warned(kept, lost), [("s", embd.RollbackWarning)])
        self.servers.restart(0, signal.SIGTERM)
        self.servers.restart(2, signal.SIGTERM)
        self.assertEqual([kind for _, kind in self.warned(kept, lost)][:1], [embd.RollbackWarning])
        self.assertEqual((kept.rollbacks, lost.rollbacks), (0, 3))
        self.assertEqual([(f.restarts, f.rollbacks) for f in reader.figures()], [(1, 0)] * SHARDS)
        self.assertEqual(self.connect().table("s").rollbacks, 0)

    def test_an_older_directory_that_an_operator_accepted_is_told(self):
        table, older = self.table(self.client), self.servers.data[1] + ".older"
        self.step(table, 0)
        self.servers.restart(1, signal.SIGTERM, lambda: shutil.copytree(self.servers.data[1], older))
        self.step(table, 1)
        reader = self.connect()
        rows = reader.table("t")
        self.assertEqual(self.warned(rows), [])
        self.servers.restart(1, signal.SIGTERM, lambda: self.replace_by(older, 1), ["--accept-empty"])
        self.assertEqual(self.warned(rows), [("t", embd.RollbackWarning)])
        self.assertEqual([f.rollbacks for f in reader.figures()], [0, 1, 0])
        self.servers.restart(1, signal.SIGTERM)
        self.assertEqual(self.warned(rows), [])

    def test_damage_that_an_operator_accepted_is_told(self):
        table = self.table(self.client)
        for n in range(8):
            self.step(table, n)
        reader = self.connect()
        rows = reader.table("t")
        self.assertEqual(self.warned(rows), [])

        def damage():
            journal = next(pathlib.Path(self.servers.data[2]).glob("journal.2.0*"))
            data = bytearray(journal.read_bytes())
            data[len(data.rstrip(b"\0")) * 3 // 4] ^= 1  # in the record of a push
            journal.write_bytes(data)

        self.servers.restart(2, signal.SIGTERM, damage, ["--accept-journal-damage"])
        self.assertEqual(self.warned(rows), [("t", embd.RollbackWarning)])
        self.assertEqual([f.rollbacks for f in reader.figures()], [0, 0, 1])
        self.servers.restart(2, signal.SIGKILL)
        self.assertEqual(self.warned(rows), [])

    def test_an_older_directory_of_a_server_alone_is_told(self):
        data = os.path.join(self.servers.folder, "alone")
        os.mkdir(data)
        server = clusters.Embd("--data-dir", data)
        self.addCleanup(lambda: server.kill())
        writer = embd.connect(server.addresses[0], deadline=60)
        table = self.table(writer)
        table.push([1], np.ones((1, DIM), np.float32))
        writer.close()
        server.process.send_signal(signal.SIGTERM)
        server.wait()
        shutil.copytree(data, data + ".older")
        server.kill()
        for back in (False, True):
            server = clusters.Embd("--data-dir", data, listen=server.addresses[0])
            if not back:
                reader = embd.connect(server.addresses[0], deadline=60)
                self.addCleanup(reader.close)
                rows = reader.table("t")
            self.assertEqual(self.warned(rows), [("t", embd.RollbackWarning)] if back else [])
            server.process.send_signal(signal.SIGKILL)
            server.wait()
            server.kill()
            shutil.rmtree(data)
            shutil.copytree(data + ".older", data)

    def test_the_warning_can_be_an_error(self):
        self.client.create_table("s", DIM, durability="snapshot")
        self.client.snapshot("a")
        rows = self.connect().table("s")
        rows.pull([1])
        self.servers.restart(0, signal.SIGKILL)
        with warnings.catch_warnings():
            warnings.simplefilter("error", embd.RollbackWarning)
            with self.assertRaisesRegex(embd.RollbackWarning, "table 's' .durability 'snapshot'."):
                rows.pull(np.arange(KEYS))
            rows.pull(np.arange(KEYS))

    # ---- a snapshot of several servers ----

    def is_running(self, client, name):
        with contextlib.suppress(embd.InvalidError):  # not yet
            return client.snapshot_status(name).is_running
        return False

    def test_a_snapshot_that_waits_for_a_server_is_cancelled_by_another_client(self):
        table, other, failed = self.table(self.client), self.connect(), []
        self.step(table, 0)
        self.servers.list[2].pause()
        asker = threading.Thread(target=lambda: failed.append(self.failure(lambda: self.client.snapshot("sunday"))))
        asker.start()
        while not self.is_running(other, "sunday"):
            threading.Event().wait(0.01)
        cancel = threading.Thread(target=lambda: other.snapshot_cancel("sunday"))
        cancel.start()
        threading.Event().wait(0.2)
        self.servers.list[2].go_on()
        cancel.join()
        asker.join()
        self.assertEqual(failed[0].status, embd.Status.CLOSED)
        said = other.snapshot_status("sunday")
        self.assertEqual((said.name, said.is_running, said.status), ("sunday", False, embd.Status.CLOSED))
        self.assertIn("cancel", said.error)
        self.assertFalse([name for data in self.servers.data for name in os.listdir(data) if name.startswith("sunday")])

    def failure(self, call):
        with self.assertRaises(embd.Error) as caught:
            call()
        return caught.exception

    # ---- streams ----

    def streams(self):
        return [shard.shard["push_streams"] for shard in self.client.stats()]

    def test_a_client_has_one_stream_a_shard_and_kind_of_table_unless_it_wants_none(self):
        table, other = self.table(self.client), self.client.create_table("other", DIM, durability="snapshot")
        self.assertEqual(self.streams(), [0] * SHARDS)
        for n in range(3):
            self.step(table, n)
        self.assertEqual(self.streams(), [1] * SHARDS)
        self.step(other, 0)
        self.assertEqual(self.streams(), [2] * SHARDS)
        self.step(self.connect(unnumbered=True).table("t"), 3)
        self.assertEqual(self.streams(), [2] * SHARDS)

    def test_a_push_that_is_refused_leaves_no_gap(self):
        table = self.table(self.client)
        bad, good = np.full((1, DIM), np.nan, np.float32), np.ones((1, DIM), np.float32)
        table.push([1], good)
        for _ in range(3):
            with self.assertRaisesRegex(embd.Error, "not a finite number"):
                table.push([1], bad)
            table.push([1], good)
        self.assertEqual(self.streams(), [1] * SHARDS)

    def test_pushes_behind_one_that_is_refused_fail_as_it_did(self):
        table = self.client.create_table("t", DIM, optimizer=embd.Optimizer("sgd", lr=1), initializer=embd.Initializer("constant", 0))
        bad, good = np.full((1, DIM), np.nan, np.float32), np.ones((1, DIM), np.float32)
        for order in ((0, 1, 2, 3), (3, 2, 1, 0)):
            calls = [table.push_start([1], gradient) for gradient in (good, bad, good, good)]
            failed = {}
            for i in order:
                with contextlib.suppress(embd.Error):
                    try:
                        calls[i].wait()
                    except embd.Error as error:
                        failed[i] = error
            self.assertEqual([failed[i].status for i in sorted(failed)], [embd.Status.NOT_FINITE] * 3)
            self.assertIn("behind one that failed", str(failed[3]))
            table.push([1], good)
        self.assertEqual(table.pull([1])[0, 0], -4)  # the pushes that were said to be applied


if __name__ == "__main__":
    clusters.main()
