"""Memory that a client lends to a server of a GPU: what libembd and the Python package do, against a server whose GPU is emulated
(EMBD_TRIED), to which a handle is the path of a file that both can map. tests/gpu/test_lent.py does the same on a GPU."""
import ctypes
import mmap
import os
import shutil
import tempfile
import threading
import time
import unittest
import weakref
from unittest import mock

import numpy as np

import clusters
import embd
import test_shared
import wire
from embd.device import GATE_BYTES, GATE_DONE, GATE_READY, DeviceMemory
from embd_process import Embd
from ports import free_ports

try:
    import torch
    import embd.torch
    from embd.torch import lent, modules, rows
except ImportError:
    torch = None

EMULATED = os.environ["EMBD_TRIED"]
BYTES, ROWS_AT, DIM = 1 << 20, 1 << 16, 8
GATE_FAILED = GATE_DONE + 4
UUID = bytes(16)


class Memory:
    """The trainer's: keys at 0, rows at ROWS_AT."""

    def __init__(self, uuid=UUID):
        self.fd = os.memfd_create("device")
        os.ftruncate(self.fd, BYTES)
        self.map = mmap.mmap(self.fd, BYTES)
        self.handle = f"/proc/{os.getpid()}/fd/{self.fd}".encode().ljust(64, b"\0")
        self.uuid = uuid

    def keys(self, n):
        return np.frombuffer(self.map, np.uint64, n)

    def rows(self, n, dtype=np.float32):
        return np.frombuffer(self.map, dtype, n * DIM, ROWS_AT).reshape(n, DIM)

    def lend(self, client, n_bytes=BYTES):
        return DeviceMemory(client, self.handle, self.uuid, n_bytes)


def server(*flags, **more):
    return Embd("--store", "cuda", *flags, program=EMULATED, **more)


class Device(unittest.TestCase):
    def setUp(self):
        self.server = server()
        self.addCleanup(self.server.stop)
        self.client = embd.connect(self.server.addresses[0], deadline=20)
        self.addCleanup(self.client.close)
        self.memory = Memory()

    def tables(self, **fields):
        return [self.client.create_table(name, DIM, optimizer="adagrad", initializer="constant", **fields)
                for name in ("ours", "theirs")]

    def test_rows_and_steps_are_those_of_pull_and_push(self):
        ours, theirs = self.tables()
        lent = self.memory.lend(self.client)
        dice = np.random.default_rng(5)
        for turn in range(5):
            n = 300 + turn
            self.memory.keys(n)[:] = dice.integers(0, 400, n)
            self.memory.rows(n)[:] = dice.standard_normal((n, DIM))
            keys, gradient = self.memory.keys(n).copy(), self.memory.rows(n).copy()
            lr = 0.5 if turn == 3 else None
            lent.push(ours, n, 0, ROWS_AT, lr=lr)
            theirs.push(keys, gradient, lr=lr)
            lent.pull(ours, n, 0, ROWS_AT)
            self.assertTrue(np.array_equal(self.memory.rows(n), theirs.pull(keys)))
            lent.pull(ours, n, 0, ROWS_AT, dtype="f16")
            self.assertTrue(np.array_equal(self.memory.rows(n, np.float16), theirs.pull(keys).astype(np.float16)))
        self.assertEqual(ours.step, 5)

    def test_what_is_wrong_is_named(self):
        ours, _ = self.tables()
        lent = self.memory.lend(self.client)
        for n, keys_at, rows_at in (10, 8, ROWS_AT), (10, BYTES - 16, ROWS_AT), (10, 0, BYTES), (1 << 20, 0, ROWS_AT):
            with self.assertRaises(embd.InvalidError):
                lent.push(ours, n, keys_at, rows_at)
        with self.assertRaises(embd.Error) as caught:
            lent.pull(ours, (4 << 20) + 1, 0, ROWS_AT)
        self.assertEqual(caught.exception.status, embd.Status.TOO_LARGE)
        with self.assertRaises(embd.UnsupportedError):
            lent.pull(ours, 10, 0, ROWS_AT, dtype="i8")
        self.memory.rows(1)[:] = np.nan
        with self.assertRaisesRegex(embd.Error, "not finite"):
            lent.push(ours, 1, 0, ROWS_AT)
        self.assertEqual(ours.step, 0)
        with self.assertRaisesRegex(embd.InvalidError, "fewer than"):
            self.memory.lend(self.client, 2 * BYTES)
        with self.assertRaises(ValueError):
            DeviceMemory(self.client, b"short", UUID, BYTES)

    def test_closing_in_any_order(self):
        ours, _ = self.tables()
        for _ in range(40):  # a connection has 16
            self.memory.lend(self.client).close()
        lent = self.memory.lend(self.client)
        lent.close()
        lent.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            lent.pull(ours, 1, 0, ROWS_AT)
        lent = self.memory.lend(self.client)
        self.client.close()
        lent.close()

    def test_a_gpu_that_takes_turns_is_told(self):
        self.assertFalse(self.memory.lend(self.client).takes_turns)
        self.assertNotIn("gpu_takes_turns", self.server.log())
        self.assertTrue(Memory(b"\1" * 16).lend(self.client).takes_turns)
        self.server.wait_log("gpu_takes_turns")

    def test_who_cannot_says_so(self):
        def refuses(address):
            with embd.connect(address, deadline=20) as client, self.assertRaises(embd.UnsupportedError):
                self.memory.lend(client)
        with mock.patch.dict(os.environ, EMBD_TRANSPORT="tcp"):
            refuses(self.server.addresses[0])
        with Embd() as other:
            refuses(other.addresses[0])


class Gate:
    """Gates of all shards, without a stream: the host comes to each place at once, and waits itself."""

    def __init__(self, client, shards=1):
        self.words = client.buffer(shards * GATE_BYTES // 4, np.uint32)

    def each(self, at):
        """That word of all gates."""
        return self.words[at // 4::GATE_BYTES // 4]

    def reach(self, number, shards=None):
        self.each(GATE_READY)[:shards] = number

    def wait(self, number, shards=None):
        end = time.monotonic() + 20
        while (self.each(GATE_DONE)[:shards] < number).any():
            assert time.monotonic() < end, "the stream waits for ever"


def stream_gate(client):
    """The same for lent.Lent."""
    gate, made = Gate(client, len(client.shards)), mock.Mock(turns=lent.Turns())
    type(made).number = property(lambda made: made.turns.number)
    made.words = gate.words

    def reach(stream, call):
        made.turns.take(call.shards)
        gate.reach(made.number, call.shards)

    def wait(stream, number):
        for shard, last in made.turns.due(number):
            gate.wait(last, shard + 1)
    made.reach, made.wait = reach, wait
    return made


def torch_memory(table, in_order=True):
    """A lent.Lent over tensors of the CPU: what a GPU's stream does in order happens at once here."""
    memory, made = Memory(), object.__new__(lent.Lent)
    made.tables, made.device, made.n_keys, made.rows_at = [table], torch.device("cpu"), 1024, ROWS_AT
    made.memory = memory.lend(table.client)
    made._keys = torch.frombuffer(memory.map, dtype=torch.int64, count=1024)
    made._rows = torch.frombuffer(memory.map, dtype=torch.float32, count=1024 * DIM, offset=ROWS_AT)
    made._bounds = torch.empty(2, dtype=torch.int64)
    made._gate, made._pulls, made._in_use, made._stream = stream_gate(table.client) if in_order else None, [], 0, None
    made._held = None
    made._enter = made._wait = lambda: None
    return made


@unittest.skipIf(torch is None, "no PyTorch")
class Torch(unittest.TestCase):
    """Modules on lent memory beside the same by the host."""

    in_order = True
    shards = 1

    def setUp(self):
        self.server = server(shards=self.shards)
        self.addCleanup(self.server.stop)
        self.client = embd.connect(self.server.addresses[0], deadline=20)
        self.addCleanup(self.client.close)
        lends = mock.patch.object(modules._Rows, "_lent", lambda module, input, scores:
                                  module.source.lent(input.device, [input.numel()]) if scores is None else None)
        lends.start()
        self.addCleanup(lends.stop)

    def pair(self, made=None, **fields):
        """The same module twice; the first one's memory is lent."""
        pair = [(made or embd.torch.Embedding)(500, DIM, client=self.client, name=name, seed=3, **fields) for name in ("ours", "theirs")]
        ours = torch_memory(pair[0].table, self.in_order)
        pair[0].source.lending.of = lambda device, counts: pair[0].source.lending._by_device.setdefault(device, ours)
        return pair

    def check(self, pair):
        for module in pair:
            module.flush()
        self.assertTrue(np.array_equal(*(module.table.pull(np.arange(500), raw=True) for module in pair)))

    def step(self, module, keys, factor, *bags):
        out = module(keys, *bags)
        (out * factor).sum().backward()
        return out.detach()

    def test_outputs_and_steps(self):
        for padding in None, 7:
            pair = self.pair(padding_idx=padding, optimizer="adagrad")
            for turn in range(4):
                keys = torch.randint(0, 500, (20, 5))
                keys[0, 0] = 7
                out = [self.step(module, keys.to(torch.int32) if turn == 3 else keys, float(turn)) for module in pair]
                self.assertTrue(torch.equal(*out))
            self.assertIsInstance(pair[0].prefetch(keys), rows.LentTicket)
            self.assertNotIsInstance(pair[1].prefetch(keys), rows.LentTicket)
            self.check(pair)
            for module in pair:
                with self.assertRaises(IndexError):
                    module(torch.tensor([3, 500]))
                with self.assertRaises(TypeError):
                    module(torch.tensor([3.0]))
                module.table.drop()

    def test_bags(self):
        rng = np.random.default_rng(5)
        for fields in ({"mode": "sum"}, {"mode": "mean", "padding_idx": 7}, {"mode": "sum", "include_last_offset": True},
                       {"mode": "sum", "padding_idx": 3, "weighted": True}):
            weighted = fields.pop("weighted", False)
            pair = self.pair(embd.torch.EmbeddingBag, optimizer="adagrad", **fields)
            for turn in range(4):
                keys = torch.from_numpy(rng.integers(0, 500, 200))
                offsets = torch.from_numpy(np.concatenate([[0], np.sort(rng.integers(0, 200, 30)), [200]]))
                weights = torch.from_numpy(rng.standard_normal(200, dtype=np.float32)) if weighted else None
                out = [self.step(module, keys, float(turn), offsets, weights) for module in pair]
                self.check_bags(out, fields)
                square = torch.from_numpy(rng.integers(0, 500, (20, 4)))
                self.check_bags([self.step(module, square, 0.5) for module in pair], fields)
            self.assertIsInstance(pair[0].prefetch(keys, offsets), rows.LentTicket)
            self.check(pair)
            for module in pair:
                self.refuse_bags(module)
            self.check(pair)
            for module in pair:
                module.table.drop()

    def check_bags(self, out, fields):
        """Several shards add partial sums in their order; the GPU adds in that of the keys, as one shard does."""
        self.assertTrue(torch.equal(*out) if self.shards == 1 else torch.allclose(*out, rtol=1e-5, atol=1e-6), fields)

    def refuse_bags(self, module):
        keys = torch.arange(4)
        for wrong in (torch.tensor([1, 4]), torch.tensor([0, 3, 2, 4]), torch.tensor([0, 2, 9]), torch.tensor([[0, 4]])):
            with self.assertRaisesRegex((ValueError, embd.InvalidError), "offset", msg=wrong):
                module(keys, wrong)
        with self.assertRaises(TypeError):
            module(torch.ones(2, 2))
        with self.assertRaises(IndexError):
            module(torch.tensor([[3, 500]]))

    def test_bags_that_pytorch_combines(self):
        pair = self.pair(embd.torch.EmbeddingBag, mode="sum", optimizer="sgd")
        keys, offsets = torch.randint(0, 500, (60,)), torch.arange(0, 60, 5)
        weights = [torch.arange(60, dtype=torch.float32).requires_grad_() for _ in pair]
        out = [self.step(module, keys, 2.0, offsets, each) for module, each in zip(pair, weights)]
        self.assertTrue(torch.equal(*out))
        self.assertTrue(torch.equal(*(each.grad for each in weights)))
        self.check(pair)

    def test_operators_of_the_compiler_push_what_they_pulled(self):
        pair = self.pair(embd.torch.EmbeddingBag, mode="mean", optimizer="sgd")
        keys, offsets = torch.randint(0, 500, (60,)), torch.arange(0, 60, 5)
        number = pair[0].started(keys, offsets, None).number
        self.assertEqual(number > 0, self.in_order)
        for module in pair:
            module.push_pooled(torch.full((12, DIM), 0.3), keys, offsets, None, number if module is pair[0] else 0)
        self.check(pair)

    def test_tickets_passes_and_rates(self):
        pair = self.pair(optimizer="sgd")
        optimizers = [embd.torch.optimizer(module) for module in pair]
        ticket = pair[0].prefetch(torch.arange(100))
        first = pair[0](ticket)
        first.detach().add_(1)
        self.assertTrue(torch.equal(pair[0](ticket) + 1, first))
        for turn in range(3):
            for module, optimizer in zip(pair, optimizers):
                optimizer.param_groups[0]["lr"] = 0.1 * (turn + 1)
                with embd.torch.accumulate(module):
                    for factor in 1.0, 2.0:
                        self.step(module, torch.arange(turn, 90), factor)
                self.step(module, torch.arange(50, 90), 3.0)
        self.check(pair)

    def test_a_lending_that_fails_for_now_is_tried_again(self):
        lending, device = lent.Lending([embd.torch.Embedding(9, DIM, client=self.client, name="ours").table]), torch.device("cuda")
        for status, stays in (embd.Status.MOVED, False), (embd.Status.CLOSED, False), (embd.Status.UNSUPPORTED, True):
            with mock.patch.object(lent, "Lent", side_effect=embd.errors.make(status, "not taken")):
                self.assertIsNone(lending.of(device, [4]))
            self.assertEqual(lending.is_refused(device), stays)

    def test_a_server_that_takes_it_no_more(self):
        pair = self.pair(optimizer="sgd")
        keys = torch.arange(40)
        out = pair[0](keys)
        refuse = mock.Mock(side_effect=embd.errors.make(embd.Status.UNSUPPORTED, "not taken"))
        pair[0].source.lending.of(keys.device, [40]).memory = mock.Mock(pull=refuse, push=refuse, pull_start=refuse, push_start=refuse)
        out.sum().backward()
        self.step(pair[1], keys, 1.0)
        self.assertIsNone(pair[0].source.lent(keys.device, [40]))
        self.assertTrue(torch.equal(*(self.step(module, keys, 2.0) for module in pair)))
        self.check(pair)


class TorchBlocking(Torch):
    """The same where no gate can be."""

    in_order = False


def run(node):
    """What CUDA does when a stream comes to the node: in a thread of its own."""
    thread = threading.Thread(target=ctypes.CFUNCTYPE(None, ctypes.c_void_p)(node.function), args=[node.argument])
    thread.start()
    thread.join()


class Nodes(unittest.TestCase):
    """Calls that streams make, as often as they come to them."""

    def setUp(self):
        self.port = free_ports(1)
        self.server = server("--listen", f"127.0.0.1:{self.port}")
        self.addCleanup(lambda: self.server.stop())
        self.client = embd.connect(f"127.0.0.1:{self.port}", deadline=3)
        self.addCleanup(self.client.close)
        self.table = self.client.create_table("nodes", DIM, optimizer="sgd", initializer="constant")
        self.nodes_client = self.client.again(own_thread=False)
        self.addCleanup(self.nodes_client.close)
        self.memory = Memory()
        self.lent = self.memory.lend(self.nodes_client)

    def nodes(self, n=20):
        table = self.nodes_client.table("nodes")
        pull = self.lent.pull_node(table, n, 0, ROWS_AT)
        return pull, self.lent.push_node(table, n, 0, ROWS_AT, pull, lr=0.5)

    def test_each_run_is_a_pull_or_a_push(self):
        pull, push = self.nodes()
        expected = np.zeros((100, DIM), np.float32)
        for turn in range(6):
            keys = np.arange(turn, turn + 20, dtype=np.uint64)
            self.memory.keys(20)[:] = keys
            run(pull)
            np.testing.assert_array_equal(self.memory.rows(20), expected[keys])
            gradient = np.full((20, DIM), turn - 2.0, np.float32)
            self.memory.rows(20)[:] = gradient
            run(push)
            expected[keys] -= np.float32(0.5) * gradient
            pull.check()
            push.check()
        np.testing.assert_array_equal(self.table.pull(np.arange(100), raw=True), expected)

    def test_a_push_whose_rows_were_not_pulled_is_not_made(self):
        pull, push = self.nodes()
        self.memory.keys(20)[:] = np.arange(20)
        self.memory.rows(20)[:] = 1
        run(push)
        self.assertEqual(self.server.stop(), 0)
        run(pull)
        self.server = server("--listen", f"127.0.0.1:{self.port}")
        table = self.client.create_table("nodes", DIM, optimizer="sgd", initializer="constant")
        run(push)
        np.testing.assert_array_equal(table.pull(np.arange(20), raw=True), 0)
        with self.assertRaises(embd.Error):
            pull.check()
        pull.check()  # it is said once
        with self.assertRaisesRegex(embd.Error, "were not pulled"):
            push.check()

    def test_addresses_are_for_servers_in_this_process(self):
        with self.assertRaisesRegex(embd.UnsupportedError, "another process"):
            DeviceMemory(self.client, 4096, b"", BYTES)

    def test_nodes_that_cannot_be(self):
        table = self.nodes_client.table("nodes")
        with self.assertRaises(embd.Error):
            self.lent.pull_node(table, (1 << 22) + 1, 0, ROWS_AT)
        node = self.lent.pull_node(table, 20, 8, ROWS_AT)  # which the server says
        run(node)
        with self.assertRaisesRegex(embd.InvalidError, "16"):
            node.check()
        self.nodes_client.close()
        node.check()


class Gates(unittest.TestCase):
    """Calls that begin when a stream has come to them."""

    def setUp(self):
        self.server = server()
        self.addCleanup(self.server.stop)
        self.client = embd.connect(self.server.addresses[0], deadline=20)
        self.addCleanup(self.client.close)
        self.table = self.client.create_table("gated", DIM, optimizer="sgd", initializer="constant")
        self.memory = Memory()
        self.lent = self.memory.lend(self.client)
        self.gate = Gate(self.client)
        self.assertTrue(self.client.is_shared(self.gate.words))

    def start(self, start, number, n=50, rows_at=ROWS_AT, **options):
        return start(self.table, n, 0, rows_at, self.gate.words, number, **options)

    def test_a_call_waits_for_its_stream_and_what_follows_waits_for_it(self):
        self.memory.rows(50)[:] = np.nan
        push = self.start(self.lent.push_start, 1)
        pull = self.start(self.lent.pull_start, 2)
        part = embd.Part(self.table, np.arange(50, dtype=np.uint64), raw=True)
        behind = self.client.pull_start([part])
        time.sleep(0.1)
        self.assertEqual([push.done(), pull.done(), behind.done()], [False] * 3)
        self.assertEqual(self.gate.words[GATE_DONE // 4], 0)
        with embd.connect(self.server.addresses[0], deadline=20) as other:
            other.create_table("meanwhile", DIM)  # nobody else waits
            other.table("meanwhile").drop()
        self.memory.keys(50)[:] = np.arange(50)
        self.memory.rows(50)[:] = 1
        self.gate.reach(1)
        push.wait()
        self.assertFalse(pull.done())
        self.memory.rows(50)[:] = 7
        self.gate.reach(2)
        self.gate.wait(2)
        self.assertTrue((self.memory.rows(50) < 0).all())
        pull.wait()
        self.assertTrue(np.array_equal(behind.wait()[0], self.memory.rows(50)))
        self.assertEqual(self.table.step, 1)

    def test_a_call_that_fails_lets_the_stream_go_on_and_what_needs_it_fails_too(self):
        self.memory.keys(50)[:] = np.arange(50)
        self.memory.rows(50)[:] = 1
        for number, (n, rows_at, error) in enumerate(((50, BYTES, "rows lie at"), (1 << 20, ROWS_AT, "keys lie at")), 1):
            call = self.start(self.lent.pull_start, number, n, rows_at)
            self.gate.reach(number)
            self.gate.wait(number)
            for _ in range(2):
                with self.assertRaisesRegex(embd.InvalidError, error):
                    call.wait()
        self.gate.reach(5)
        needs = self.start(self.lent.push_start, 3, needs=2)
        self.gate.wait(3)
        with self.assertRaisesRegex(embd.InvalidError, "needs call 2"):
            needs.wait()
        self.assertEqual(self.table.step, 0)
        self.start(self.lent.pull_start, 4).wait()
        self.start(self.lent.push_start, 5, needs=4).wait()
        self.assertEqual(self.table.step, 1)

    def test_gates_and_numbers_that_cannot_be(self):
        for number, needs in (0, 0), (1 << 31, 0), (3, 3):
            with self.assertRaisesRegex(embd.InvalidError, "gate.number"):
                self.start(self.lent.pull_start, number, needs=needs)
        own = np.zeros(GATE_BYTES, np.uint32)
        with self.assertRaisesRegex(embd.InvalidError, "shares"):
            self.lent.pull_start(self.table, 1, 0, ROWS_AT, own, 1)
        with self.assertRaisesRegex(embd.InvalidError, "multiple of 64"):
            self.lent.pull_start(self.table, 1, 0, ROWS_AT, self.client.buffer(2 * GATE_BYTES, np.uint8)[4:4 + GATE_BYTES], 1)
        with self.assertRaises(ValueError):
            self.lent.pull_start(self.table, 1, 0, ROWS_AT, self.gate.words[:8], 1)
        with embd.connect(self.server.addresses[0], own_thread=False, deadline=20) as client:
            lent, gate = self.memory.lend(client), Gate(client)
            with self.assertRaisesRegex(embd.UnsupportedError, "own_thread"):
                lent.pull_start(client.table("gated"), 1, 0, ROWS_AT, gate.words, 1)
        self.assertEqual(self.gate.words[GATE_DONE // 4], 0)

    def test_a_server_that_dies_lets_the_stream_go_on(self):
        calls = [self.start(self.lent.pull_start, 1), self.start(self.lent.push_start, 2)]
        time.sleep(0.05)
        self.server.kill()
        self.gate.wait(2)
        for call in calls:
            with self.assertRaises(embd.Error):
                call.wait()

    def shared_words(self):
        """The gate's words as a GPU has them that the memory is registered with: those of the memfd, whatever is mapped there."""
        at = self.gate.words.ctypes.data
        with open("/proc/self/maps", encoding="ascii") as maps:
            begin = next(int(line.split("-")[0], 16) for line in maps if "memfd:embd-shared" in line
                         and int(line.split("-")[0], 16) <= at < int(line.split("-")[1].split()[0], 16))
        for fd in os.listdir("/proc/self/fd"):
            try:
                if "memfd:embd-shared" in os.readlink(f"/proc/self/fd/{fd}"):
                    memory = mmap.mmap(int(fd), 0)
                    if np.frombuffer(memory, np.uint32, 1, at - begin)[0] == self.gate.words[0]:
                        return np.frombuffer(memory, np.uint32, GATE_BYTES // 4, at - begin)
            except OSError:
                pass
        raise AssertionError("no memory is shared")

    def test_words_stay_where_the_gpu_has_them_when_other_buffers_are_taken_back(self):
        with embd.connect(self.server.addresses[0], deadline=1.5) as self.client:
            lent, self.gate = self.memory.lend(self.client), Gate(self.client)
            table, rows = self.client.table("gated"), self.client.buffer((4096, DIM))
            self.gate.words[GATE_READY // 4] = 77
            of_gpu = self.shared_words()
            self.server.pause()
            self.addCleanup(self.server.go_on)
            part = embd.Part(table, np.arange(4096, dtype=np.uint64), raw=True)
            first = self.client.pull_start([part])
            time.sleep(0.3)
            call = lent.pull_start(table, 50, 0, ROWS_AT, self.gate.words, 78)
            with self.assertRaises(embd.DeadlineError):
                first.wait()
            self.assertEqual(of_gpu[GATE_DONE // 4], 0)
            with self.assertRaises(embd.DeadlineError):
                call.wait()
            self.assertEqual(of_gpu[GATE_DONE // 4], 78)
            self.server.go_on()
            with self.assertRaisesRegex(embd.UnsupportedError, "shares no memory"):
                lent.pull_start(table, 50, 0, ROWS_AT, self.gate.words, 79)
            self.assertEqual(len(rows), 4096)

    def test_words_that_a_server_may_still_write_are_not_used_again(self):
        with embd.connect(self.server.addresses[0], deadline=0.3) as self.client:
            lent, self.gate = self.memory.lend(self.client), Gate(self.client)
            place = self.gate.words.ctypes.data
            self.gate.words = None
            self.gate = Gate(self.client)
            self.assertEqual(self.gate.words.ctypes.data, place)
            with self.assertRaises(embd.DeadlineError):  # nobody comes to it
                lent.pull_start(self.client.table("gated"), 50, 0, ROWS_AT, self.gate.words, 1).wait()
            self.assertEqual(self.gate.words[GATE_DONE // 4], 1)
            self.gate.words = None
            self.assertNotEqual(Gate(self.client).words.ctypes.data, place)

    def test_a_client_that_dies_unread_leaves_at_once(self):
        peer = test_shared.Peer(self.server, 1 << 16)
        params = {"table": 1, "n_keys": 0, "keys_in": 1, "keys_at": 0, "rows_in": 1, "rows_at": 0, "gate_at": 0, "gate": 1}
        peer.socket.sendall(b"".join(wire.request(100 + i, "device_pull", params) for i in range(80)))
        self.assertEqual(self.connections(), 2)
        peer.close()
        end = time.monotonic() + 10
        while self.connections() > 1:
            self.assertLess(time.monotonic(), end, "its connection is still there")
            time.sleep(0.05)

    def connections(self):
        admin = wire.Wire(self.server.admin_path(0))
        self.addCleanup(admin.close)
        return admin.call("stats", {})[0]["stats"]["local_connections"]

    def test_what_is_lent_stays_until_the_server_has_given_it_back(self):
        class Owner:
            pass
        owners = Owner(), Owner()
        alive = [weakref.ref(owner) for owner in owners]
        lent = [DeviceMemory(self.client, self.memory.handle, UUID, BYTES, owner) for owner in owners]
        del owners
        lent.pop()
        self.assertIsNone(alive[1]())
        with self.client.handle:  # the collector comes in the midst of a call
            lent.pop()
        self.assertIsNotNone(alive[0]())

    def test_a_server_that_ends_refuses_what_waits(self):
        call = self.start(self.lent.pull_start, 1)
        time.sleep(0.05)
        self.server.stop()
        self.gate.wait(1)
        with self.assertRaisesRegex(embd.Error, "shutting down|closed"):
            call.wait()

    def test_a_client_that_leaves_takes_its_calls_with_it(self):
        calls = [self.start(self.lent.pull_start, number) for number in (1, 2, 3)]
        del calls[1]
        time.sleep(0.05)
        self.client.close()
        self.gate.wait(3)
        with self.assertRaises(embd.Error):
            calls[0].wait()
        with embd.connect(self.server.addresses[0], deadline=20) as other:
            other.table("gated").drop()


class Answers(unittest.TestCase):
    """What a server says, byte by byte, when memory is lent to it."""

    def setUp(self):
        self.memory = Memory()

    def peer(self, **more):
        lent_to = server(**more)
        self.addCleanup(lent_to.stop)
        peer = test_shared.Peer(lent_to)
        self.addCleanup(peer.close)
        return peer

    def opened(self, peer):
        return peer.call("device_open", {"bytes": BYTES}, self.memory.handle, UUID)[0]

    def test_a_number_of_an_earlier_process_names_nothing_in_the_next_one(self):
        earlier, peer = self.opened(self.peer())["number"], self.peer()
        later = [self.opened(peer)["number"] for _ in range(3)]
        self.assertEqual(later, list(range(later[0], later[0] + 3)))
        for number in earlier, *later:
            self.assertIn(number, range(1, 1 << 53))
        with self.assertRaisesRegex(wire.RpcError, f"has the number {earlier}"):
            peer.call("device_close", {"number": earlier})

    def test_clients_of_before_sets_can_read_what_a_single_shard_says(self):
        for shards, fields in (1, {"number", "takes_turns", "gates"}), (2, {"number", "takes_turns", "gates", "own"}):
            self.assertEqual(set(self.opened(self.peer(shards=shards))), fields)


class Again(unittest.TestCase):
    def test_memory_is_lent_again_to_a_server_that_was_started_again(self):
        folder = tempfile.mkdtemp(prefix="embd-device-")
        self.addCleanup(shutil.rmtree, folder)
        listen = f"127.0.0.1:{free_ports(1)}"
        first = server("--data-dir", folder, listen=listen)
        memory = Memory()
        with embd.connect(listen, deadline=20) as client:
            table = client.create_table("kept", DIM, optimizer="sgd", initializer="constant", durability="durable")
            lent = memory.lend(client)
            memory.keys(50)[:] = np.arange(50)
            memory.rows(50)[:] = 1
            lent.push(table, 50, 0, ROWS_AT)
            lent.pull(table, 50, 0, ROWS_AT)
            rows = memory.rows(50).copy()
            self.assertTrue((rows < 0).all())
            first.stop()
            second = server("--data-dir", folder, listen=listen)
            memory.rows(50)[:] = 7
            lent.pull(table, 50, 0, ROWS_AT)
            self.assertTrue(np.array_equal(memory.rows(50), rows))
            second.stop()


if __name__ == "__main__":
    clusters.main()
