"""Memory of a GPU that a trainer lends to a server of another process: rows and steps are those of the host's way, bit for bit;
forged handles and sizes are refused; a trainer that is killed in the midst of pulls harms nobody. The same with several shards on
one GPU, in one process and in two.

usage: test_lent.py [--other] [--tests]
                               - the tests, then the figures, unless --tests is given; with --other the server has the second GPU, and
                                 the trainer the first
       test_lent.py --measure [--other]
                               - the figures alone: medians of pulls and pushes whose keys, rows and gradients stay on the GPU, idle
                                 and while kernels of the trainer run; then those of one, two and four shards on one GPU
       test_lent.py --measure --process
                               - the same with the server in the trainer's process"""
import os
import random
import signal
import statistics
import subprocess
import sys
import time
import unittest
import warnings

try:
    import torch
    HAS_GPU = torch.cuda.is_available()
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
    import numpy as np
    import clusters
    import embd
    from listed import Listed
    from embd.torch import lent
    from embd.device import DeviceMemory
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)
if not HAS_GPU:
    print("skipped: PyTorch sees no GPU")
    sys.exit(0)

TRAINER = dict(os.environ)
if "--other" in sys.argv:  # PyTorch has seen its GPUs; servers that are started see them in another order
    if torch.cuda.device_count() < 2:
        print("skipped: PyTorch sees one GPU")
        sys.exit(0)
    torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"
GPU = torch.device("cuda")
DIM, ROWS_AT = 16, 1 << 20
warnings.simplefilter("ignore", RuntimeWarning)  # a GPU that takes turns


def allocation(n_bytes):
    torch.zeros(1, device=GPU)
    return lent.Allocation(n_bytes, torch.cuda.current_device())


def tensors(memory, n, dim):
    """Keys [n] and rows [n, dim] in it."""
    whole = torch.as_tensor(memory, device=GPU)
    return whole[:8 * n].view(torch.int64), whole[ROWS_AT:ROWS_AT + 4 * n * dim].view(torch.float32).view(n, dim)


def kill_me_pulling(address):
    """A trainer that pulls until it is killed."""
    client = embd.connect(address)
    table = client.table("killed")
    memory = allocation(16 << 20)
    device = DeviceMemory(client, memory.handle, memory.uuid, 16 << 20)
    keys, _ = tensors(memory, 60000, DIM)
    keys.copy_(torch.arange(60000))
    torch.cuda.synchronize()
    print("pulling", flush=True)
    while True:
        device.pull(table, 60000, 0, ROWS_AT)
        device.push(table, 60000, 0, ROWS_AT)


class Lent(clusters.ClusterTest):
    def lend(self, n_bytes=4 << 20):
        memory = allocation(n_bytes)
        return memory, DeviceMemory(self.client, memory.handle, memory.uuid, n_bytes)

    def test_rows_and_steps_are_those_of_the_hosts_way(self):
        for dtype, optimizer, n in (("f32", "sgd", 5000), ("f16", "adagrad", 700), ("f32", "adam", 6000), ("bf16", "ftrl", 33)):
            tables = [self.client.create_table(f"{name}_{dtype}_{optimizer}", DIM, dtype=dtype, optimizer=optimizer,
                                               initializer="constant") for name in ("ours", "theirs")]
            memory, device = self.lend()
            keys, rows = tensors(memory, n, DIM)
            for turn in range(4):
                numbers = torch.randint(0, 3 * n, (n,))
                gradient = torch.randn(n, DIM)
                keys.copy_(numbers)
                rows.copy_(gradient)
                torch.cuda.synchronize()
                device.push(tables[0], n, 0, ROWS_AT)
                tables[1].push(numbers.numpy(), gradient.numpy())
                device.pull(tables[0], n, 0, ROWS_AT)
                self.assertTrue(np.array_equal(rows.cpu().numpy(), tables[1].pull(numbers.numpy(), wire="f32")))
            device.close()

    def test_gradients_that_are_not_finite(self):
        table = self.client.create_table("finite", DIM, optimizer="sgd", initializer="constant")
        memory, device = self.lend()
        keys, rows = tensors(memory, 4000, DIM)
        keys.copy_(torch.arange(4000))
        rows.zero_()
        rows[3999, DIM - 1] = float("inf")
        torch.cuda.synchronize()
        with self.assertRaisesRegex(embd.Error, "row 3999"):
            device.push(table, 4000, 0, ROWS_AT)
        self.assertEqual(table.step, 0)

    def test_sizes_and_handles_that_lie(self):
        memory = allocation(4 << 20)
        for n_bytes in (4 << 20) + (2 << 20), 1 << 40, 1 << 44:
            with self.assertRaisesRegex(embd.Error, "fewer than"):
                DeviceMemory(self.client, memory.handle, memory.uuid, n_bytes)
        dice = random.Random(3)
        refused = 0
        for _ in range(200):
            handle = bytearray(memory.handle)
            for _ in range(dice.randrange(1, 9)):
                handle[dice.randrange(64)] = dice.randrange(256)
            try:
                DeviceMemory(self.client, bytes(handle), memory.uuid, 4 << 20).close()
            except embd.Error:
                refused += 1
        self.assertGreater(refused, 0)
        table = self.client.create_table("lies", DIM, optimizer="sgd")
        device = DeviceMemory(self.client, memory.handle, memory.uuid, 4 << 20)
        for n, keys_at, rows_at in ((4000, (4 << 20) - 16, ROWS_AT), (4000, 0, (4 << 20) - 16), (1 << 22, 0, 0)):
            with self.assertRaises(embd.InvalidError):
                device.pull(table, n, keys_at, rows_at)
        device.pull(table, 4000, 0, ROWS_AT)  # whatever the keys are

    def test_a_trainer_that_is_killed_harms_nobody(self):
        table = self.client.create_table("killed", DIM, optimizer="sgd")
        for _ in range(3):
            trainer = subprocess.Popen([sys.executable, "-B", __file__, "--killed", self.server.addresses[0]],
                                       stdout=subprocess.PIPE, text=True, env=TRAINER)
            self.assertEqual(trainer.stdout.readline(), "pulling\n")
            time.sleep(0.2)
            trainer.send_signal(signal.SIGKILL)
            trainer.communicate()
        memory, device = self.lend()
        keys, rows = tensors(memory, 1000, DIM)
        keys.copy_(torch.arange(1000))
        torch.cuda.synchronize()
        device.pull(table, 1000, 0, ROWS_AT)
        self.assertTrue(np.array_equal(rows.cpu().numpy(), table.pull(np.arange(1000))))
        device.close()


    def test_calls_in_the_order_of_a_stream(self):
        n = 5000
        tables = [self.client.create_table(name, DIM, optimizer="adagrad", initializer="constant") for name in ("ours", "theirs")]
        memory, device = self.lend()
        gate, stream = lent.Gate(self.client), torch.cuda.current_stream()
        self.assertEqual(len(self.client.shards), self.shards)
        keys, rows = tensors(memory, n, DIM)
        for turn in range(6):
            numbers, gradient = torch.randint(0, 3 * n, (n,)), torch.randn(n, DIM)
            torch.cuda._sleep(20_000_000)  # keys come late
            keys.copy_(numbers.to(GPU))
            rows.copy_(gradient.to(GPU))
            calls = [in_order(gate, stream, device.push_start, tables[0], n), in_order(gate, stream, device.pull_start, tables[0], n)]
            out = rows.clone()
            tables[1].push(numbers.numpy(), gradient.numpy())
            self.assertTrue(np.array_equal(out.cpu().numpy(), tables[1].pull(numbers.numpy(), wire="f32")))
            for call in calls:
                call.wait()
        device.close()

    def test_a_server_that_dies_lets_streams_go_on(self):
        server = clusters.Embd(shards=self.shards)
        with embd.connect(server.addresses[0]) as client:
            table = client.create_table("dies", DIM, optimizer="sgd")
            memory = allocation(4 << 20)
            device, gate = DeviceMemory(client, memory.handle, memory.uuid, 4 << 20), lent.Gate(client)
            torch.cuda._sleep(200_000_000)
            call = in_order(gate, torch.cuda.current_stream(), device.pull_start, table, 1000)
            server.kill()
            torch.cuda.synchronize()
            with self.assertRaises(embd.Error):
                call.wait()


class LentToShards(Lent):
    """Two shards of a process, on one GPU."""

    shards = 2

    def test_gradients_that_are_not_finite(self):
        """Only the shard of that key sees it."""
        table = self.client.create_table("finite", DIM, optimizer="sgd", initializer="constant", partition="modulo")
        memory, device = self.lend()
        keys, rows = tensors(memory, 4000, DIM)
        keys.copy_(torch.arange(4000))
        rows.fill_(1)
        rows[3999, DIM - 1] = float("inf")
        torch.cuda.synchronize()
        owner = 3999 % self.shards
        with self.assertRaisesRegex(embd.Error, f"applied by shard.*refused by shard {owner}"):
            device.push(table, 4000, 0, ROWS_AT)
        pulled, are_owners = table.pull(np.arange(4000)), np.arange(4000) % self.shards == owner
        self.assertTrue((pulled[~are_owners] < 0).all() and not pulled[are_owners].any())

    def test_keys_that_are_not_a_shards_cost_it_no_rows(self):
        table = self.client.create_table("split", DIM, optimizer="sgd")
        memory, device = self.lend()
        keys, rows = tensors(memory, 4000, DIM)
        keys.copy_(torch.arange(4000))
        rows.zero_()
        torch.cuda.synchronize()
        device.push(table, 4000, 0, ROWS_AT)
        counts = [shard.tables["split"]["rows"] for shard in self.client.stats()]
        self.assertEqual(sum(counts), 4000)
        self.assertTrue(all(counts))


class LentToManyShards(LentToShards):
    shards = 5


class LentToServers(LentToShards):
    """Two servers, on one GPU, with journals: pushes go by the host's memory there."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Listed("ab")
        for name in "ab":
            cls.cluster.start(name, waits=False)
        cls.server = cls.cluster.running["a"]
        embd.connect(cls.cluster.address("a"), deadline=60).close()

    @classmethod
    def tearDownClass(cls):
        for name in "ba":
            assert cls.cluster.end(name) == 0, "the server did not stop in order"
        cls.cluster.__exit__(None, None, None)

    def test_one_server_that_dies_lets_streams_go_on(self):
        table = self.client.create_table("one_dies", DIM, optimizer="sgd")
        memory, device = self.lend()
        gate = lent.Gate(self.client)
        torch.cuda._sleep(200_000_000)
        call = in_order(gate, torch.cuda.current_stream(), device.pull_start, table, 1000)
        self.cluster.kill("b")
        torch.cuda.synchronize()
        with self.assertRaises(embd.Error):
            call.wait()
        self.cluster.start("b", waits=False)
        tensors(memory, 1000, DIM)[0].copy_(torch.arange(1000))
        torch.cuda.synchronize()
        device.pull(table, 1000, 0, ROWS_AT)  # it is lent again
        self.assertTrue(np.array_equal(tensors(memory, 1000, DIM)[1].cpu().numpy(), table.pull(np.arange(1000))))


def in_order(gate, stream, start, table, n):
    """A call that the stream comes to, and waits for."""
    number = gate.number + 1
    call = start(table, n, 0, ROWS_AT, gate.words, number)
    gate.reach(stream, call)
    gate.wait(stream, number)
    return call


# ---- figures ----

def address(memory):
    return torch.as_tensor(memory, device=GPU).data_ptr()


def measure_in_process():
    with embd.connect("inproc:?store=cuda", deadline=20) as client:
        measure(client)


def median_us(work, n=200):
    times = []
    for i in range(n + 5):
        begin = time.perf_counter()
        work(i)
        times.append((time.perf_counter() - begin) * 1e6)
    times = sorted(times[5:])
    return statistics.median(times), times[len(times) * 9 // 10]


def in_stream_us(gate, start, table, n, load, before=None):
    """From where the stream comes to a call to where it goes on; the request is with the server by then. `before`: starts a call
    that comes first, and is not measured."""
    stream, times = torch.cuda.current_stream(), []
    for i in range(100):
        load(i)
        if before is not None:
            in_order(gate, stream, before, table, n).wait()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1_000_000)
        begin.record()
        call = in_order(gate, stream, start, table, n)
        end.record()
        end.synchronize()
        call.wait()
        times.append(begin.elapsed_time(end) * 1e3)
    times = sorted(times[5:])
    return statistics.median(times), times[len(times) * 9 // 10]


def measure_in_order(client, device, table, work):
    gate, side = lent.Gate(client), torch.cuda.Stream()
    ends = []

    def busy(_):
        while ends and ends[0].query():
            ends.pop(0)
        with torch.cuda.stream(side):
            while len(ends) < 8:
                torch.mm(work, work)
                ends.append(torch.cuda.Event())
                ends[-1].record()
    for name, load in ("idle", lambda i: None), ("busy", busy):
        for n in 256, 4096, 65536:
            for what, start, before in (("pull", device.pull_start, None), ("push", device.push_start, None),
                                        ("push behind its pull", device.push_start, device.pull_start)):
                p50, p90 = in_stream_us(gate, start, table, n, load, before)
                print(f"{n:>6} keys of 256 bytes  {what}, {name}, in the stream {p50:7.0f} us  (p90 {p90:.0f})", flush=True)
        torch.cuda.synchronize()


MEASURED_ROWS, MEASURED_DIM, MEASURED_BYTES = 1 << 22, 64, 32 << 20


def filled(client):
    table = client.create_table("measured", MEASURED_DIM, optimizer="sgd", seed=3)
    for first in range(0, MEASURED_ROWS, 1 << 16):
        keys = np.arange(first, first + (1 << 16), dtype=np.uint64)
        table.push(keys, np.zeros((keys.size, MEASURED_DIM), np.float32))
    return table


def load_batch(memory, n):
    """Keys and gradients."""
    whole = torch.as_tensor(memory, device=GPU)
    whole[:8 * n].view(torch.int64).copy_(torch.randint(0, MEASURED_ROWS, (n,)))
    whole[ROWS_AT:].zero_()
    torch.cuda.synchronize()


def measure(client):
    rows, dim = MEASURED_ROWS, MEASURED_DIM
    table, memory = filled(client), allocation(MEASURED_BYTES)
    device = DeviceMemory(client, address(memory) if client.is_inproc else memory.handle, memory.uuid, MEASURED_BYTES)
    print("the server is in the trainer's process" if client.is_inproc else "the server has another GPU" if "--other" in sys.argv else
          "server and trainer take turns on the GPU" if device.takes_turns else "server and trainer share the GPU by MPS")
    work = torch.randn(4096, 4096, device=GPU)
    for name in "idle", "busy":
        for n in 256, 4096, 65536:
            load_batch(memory, n)

            def load(_):
                if name == "busy":
                    while load.ends and load.ends[0].query():
                        load.ends.pop(0)
                    while len(load.ends) < 8:
                        torch.mm(work, work)
                        load.ends.append(torch.cuda.Event())
                        load.ends[-1].record()
            load.ends = []
            for what, call in ("pull", device.pull), ("push", device.push):
                p50, p90 = median_us(lambda i: (load(i), call(table, n, 0, ROWS_AT)))
                print(f"{n:>6} keys of 256 bytes  {what}, {name:<5} {p50:9.0f} us  (p90 {p90:.0f})", flush=True)
            torch.cuda.synchronize()
    if not client.is_inproc:  # whose calls block
        measure_in_order(client, device, table, work)
    for where, call in (("pull, numpy", lambda i: table.pull(numbers)), ("push, numpy", lambda i: table.push(numbers, zeros))):
        numbers, zeros = np.random.randint(0, rows, 65536), np.zeros((65536, dim), np.float32)
        print(f" 65536 keys of 256 bytes  {where:<11} {median_us(call, 40)[0]:9.0f} us", flush=True)


def measure_shards(shards, n=65536):
    """So many on one GPU."""
    server = clusters.Embd(shards=shards)
    with embd.connect(server.addresses[0]) as client:
        table, memory, gate = filled(client), allocation(MEASURED_BYTES), lent.Gate(client)
        device = DeviceMemory(client, memory.handle, memory.uuid, MEASURED_BYTES)
        load_batch(memory, n)
        for what, call, start in ("pull", device.pull, device.pull_start), ("push", device.push, device.push_start):
            p50, p90 = median_us(lambda i: call(table, n, 0, ROWS_AT))
            print(f"{n:>6} keys of 256 bytes  {what}, {shards} shards of one GPU {p50:9.0f} us  (p90 {p90:.0f})", flush=True)
            p50, p90 = in_stream_us(gate, start, table, n, lambda i: None)
            print(f"{n:>6} keys of 256 bytes  {what}, {shards} shards of one GPU, in the stream {p50:7.0f} us  (p90 {p90:.0f})", flush=True)
    server.stop()


if __name__ == "__main__":
    if "--killed" in sys.argv:
        kill_me_pulling(sys.argv[-1])
    status = 0
    if "--measure" not in sys.argv:
        result = unittest.main(module="__main__", exit=False, argv=sys.argv[:1]).result
        status = 0 if result.wasSuccessful() else 1
    if "--process" in sys.argv:
        measure_in_process()
    elif not status and "--tests" not in sys.argv:
        server = clusters.Embd(shards=1)
        with embd.connect(server.addresses[0]) as own:
            measure(own)
        server.stop()
        for shards in 1, 2, 4:
            measure_shards(shards)
    sys.exit(status)
