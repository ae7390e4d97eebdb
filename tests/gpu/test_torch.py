"""embd.torch on CUDA tensors: rows and gradients are those of CPU tensors, bit for bit, whatever else the GPU does meanwhile.

usage: test_torch.py            - the tests, then the figures
       test_torch.py --measure  - the figures alone: medians of a forward and of a step with its push applied, beside
                                  torch.nn.Embedding in the GPU's own memory, the same pull into numpy arrays, and the bare copies"""
import os
import statistics
import sys
import time
import unittest

try:
    import torch
    HAS_GPU = torch.cuda.is_available()
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
    import numpy as np
    import clusters
    import embd
    import embd.torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)
if not HAS_GPU:
    print("skipped: PyTorch sees no GPU")
    sys.exit(0)

GPU = torch.device("cuda")
DIM, BUSY = 16, 20_000_000  # cycles: some 10 ms
SGD = embd.Optimizer("sgd", lr=0.5)


def busy():
    """The GPU has work before what comes next in the current stream."""
    torch.cuda._sleep(BUSY)


class Cuda(clusters.ClusterTest):
    shards = 2

    def pair(self, make):
        """The same module twice, over tables of its own."""
        return make("on_cpu"), make("on_gpu")

    def train(self, module, device, batches, call):
        out = []
        for number, batch in enumerate(batches):
            busy()
            rows = call(module, *(None if t is None else t.to(device) for t in batch))
            factor = torch.full(rows.shape, 1.0 + number, device=rows.device)
            busy()
            (rows * factor).sum().backward()
            out.append(rows.detach())
        module.flush()
        return [rows.cpu() for rows in out]

    def check(self, make, batches, call=lambda module, *batch: module(*batch)):
        cpu, gpu = self.pair(make)
        for ours, theirs in zip(self.train(cpu, "cpu", batches, call), self.train(gpu, GPU, batches, call)):
            self.assertTrue(torch.equal(ours, theirs))
        keys = np.arange(1000)
        self.assertTrue(np.array_equal(cpu.table.pull(keys, raw=True), gpu.table.pull(keys, raw=True)))

    def test_rows_and_steps_of_embeddings(self):
        batches = [(torch.randint(0, 1000, (40, 25)),) for _ in range(12)]
        self.check(lambda name: embd.torch.Embedding(1000, DIM, padding_idx=7, client=self.client, name=name,
                                                     optimizer=SGD, seed=3), batches)

    def test_bags_that_servers_pool(self):
        batches = [(torch.randint(0, 1000, (900,)), torch.arange(0, 900, 3)) for _ in range(12)]
        self.check(lambda name: embd.torch.EmbeddingBag(1000, DIM, mode="mean", client=self.client, name=name,
                                                        optimizer=SGD, seed=3), batches)

    def test_bags_with_weights(self):
        batches = [(torch.randint(0, 1000, (30, 8)), None, torch.randint(1, 5, (30, 8)).float()) for _ in range(12)]
        self.check(lambda name: embd.torch.EmbeddingBag(1000, DIM, mode="sum", padding_idx=2, client=self.client,
                                                        name=name, optimizer=SGD, seed=3), batches)

    def test_indices_of_the_cpu_and_rows_of_the_gpu(self):
        module = embd.torch.Embedding(1000, DIM, device="cuda", client=self.client, name="placed", optimizer=SGD, seed=3)
        keys = torch.randint(0, 1000, (512,))
        before = module.table.pull(keys.numpy(), raw=True)
        rows = module(keys)
        self.assertEqual(rows.device.type, "cuda")
        self.assertTrue(np.array_equal(rows.detach().cpu().numpy(), before))
        rows.sum().backward()
        module.flush()
        self.assertTrue((module.table.pull(keys.numpy(), raw=True) < before).all())

    def test_memory_of_rows_is_not_taken_again_before_the_gpu_has_them(self):
        module = embd.torch.Embedding(4000, DIM, client=self.client, name="again", optimizer=SGD, seed=3).eval()
        keys = torch.arange(4000)
        expected = module(keys)
        out, keys = [], keys.to(GPU)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(20):
                ticket = module.prefetch(keys)
                getattr(ticket, "call", ticket).wait()
                busy()  # the copy waits behind it, and the next pulls arrive meanwhile
                out.append(module(ticket))
                del ticket
        side.synchronize()
        for rows in out:
            self.assertTrue(torch.equal(rows.cpu(), expected))

    def test_a_ticket_is_used_twice(self):
        module = embd.torch.Embedding(100, DIM, client=self.client, name="twice", optimizer=SGD, seed=3)
        for device in "cpu", GPU:
            ticket = module.prefetch(torch.arange(100, device=device))
            self.assertTrue(torch.equal(module(ticket), module(ticket)))

    def test_collections_and_the_compiler(self):
        configs = [embd.torch.EmbeddingBagConfig(1000, DIM, f"t{i}", feature_names=[f"f{i}"]) for i in range(3)]
        collection = embd.torch.EmbeddingBagCollection(configs, client=self.client, optimizer=SGD, seed=3)
        values, lengths = torch.randint(0, 1000, (600,)), torch.full((300,), 2)
        features = ["f0", "f1", "f2"]
        ours, theirs = collection(features, values, lengths), collection(features, values.to(GPU), lengths.to(GPU))
        for name in features:
            self.assertTrue(torch.equal(ours[name], theirs[name].cpu()))
        bag = embd.torch.EmbeddingBag(1000, DIM, mode="sum", client=self.client, name="compiled", optimizer=SGD, seed=3)
        keys, offsets = values.to(GPU), torch.arange(0, 600, 2, device=GPU)
        before = bag(keys, offsets).detach()
        compiled = torch.compile(lambda k, o: bag(k, o) * 2, fullgraph=True)
        compiled(keys, offsets).sum().backward()
        bag.flush()
        self.assertFalse(torch.equal(bag(keys, offsets), before))


class Lent(Cuda):
    """The same of a server that takes memory of the GPU: keys, rows and gradients stay there."""

    shards = 1

    def test_memory_was_lent(self):
        module = embd.torch.Embedding(1000, DIM, client=self.client, name="lent", optimizer=SGD, seed=3)
        keys = torch.randint(0, 1000, (512,), device=GPU)
        module(keys).sum().backward()
        self.assertIsNotNone(module.source.lent(GPU, 512))
        self.assertIsInstance(module.prefetch(keys), embd.torch.rows.LentTicket)
        with self.assertRaises(IndexError):
            module(torch.tensor([3, 1000], device=GPU))

    def test_steps_of_several_passes_and_rates(self):
        out = []
        for device in "cpu", GPU:
            module = embd.torch.Embedding(100, DIM, client=self.client, name=f"several_{device}", optimizer=SGD, seed=3)
            for turn in range(3):
                keys = torch.arange(turn, 100, device=device)
                with embd.torch.accumulate(module):
                    for factor in 1.0, 2.0:
                        (module(keys) * factor).sum().backward()
                (module(keys) * 3).sum().backward()
            module.flush()
            out.append(module.table.pull(np.arange(100), raw=True))
        self.assertTrue(np.array_equal(*out))


def median_us(work, sync=torch.cuda.synchronize, n=40):
    times = []
    for i in range(n + 5):
        begin = time.perf_counter()
        work(i)
        sync()
        times.append((time.perf_counter() - begin) * 1e6)
    times = sorted(times[5:])
    return statistics.median(times), times[len(times) // 10], times[len(times) * 9 // 10]


def say(what, keys, work):
    p50, p10, p90 = median_us(work)
    print(f"{keys:>6} keys  {what:<58} {p50:9.0f} us  ({p10:.0f} to {p90:.0f})", flush=True)


def measure(client):
    rows, dim = 1 << 20, 64
    table = client.create_table("measured", dim, optimizer="sgd", seed=3)
    for first in range(0, rows, 1 << 16):
        keys = np.arange(first, first + (1 << 16), dtype=np.uint64)
        table.push(keys, np.zeros((keys.size, dim), np.float32))
    ours = embd.torch.Embedding(None, dim, table=table)
    theirs = torch.nn.Embedding(rows, dim, sparse=True, device=GPU)
    sgd = torch.optim.SGD(theirs.parameters(), lr=0.01)

    def step(keys):
        ours(keys).sum().backward()
        ours.flush()

    def their_step(keys):
        sgd.zero_grad()
        theirs(keys).sum().backward()
        sgd.step()

    for n in 4096, 65536:
        host = [torch.randint(0, rows, (n,)) for _ in range(8)]
        batches = [keys.to(GPU) for keys in host]
        numbers = [keys.numpy() for keys in host]
        matrix = torch.zeros(n, dim)
        with torch.no_grad():
            say("pull into a numpy array", n, lambda i: table.pull(numbers[i % 8], raw=True))
            say("copy of such an array to the GPU", n, lambda i: matrix.to(GPU))
            say("embd.torch.Embedding, forward", n, lambda i: ours(batches[i % 8]))
            say("torch.nn.Embedding, forward", n, lambda i: theirs(batches[i % 8]))
        say("embd.torch.Embedding, forward, backward, push applied", n, lambda i: step(batches[i % 8]))
        say("torch.nn.Embedding, forward, backward, sparse SGD", n, lambda i: their_step(batches[i % 8]))


if __name__ == "__main__":
    status = 0
    if "--measure" not in sys.argv:
        result = unittest.main(module="__main__", exit=False, argv=sys.argv[:1]).result
        status = 0 if result.wasSuccessful() else 1
    if not status:
        server = clusters.Embd(shards=1)
        with embd.connect(server.addresses[0]) as client:
            measure(client)
        server.stop()
    sys.exit(status)
