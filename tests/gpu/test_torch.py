"""embd.torch on CUDA tensors: rows and gradients are those of CPU tensors, bit for bit, whatever else the GPU does meanwhile.

usage: test_torch.py [--tests]  - the tests, then the figures, unless --tests is given
       test_torch.py --measure  - the figures alone: medians of a forward and of a step with its push applied, beside
                                  torch.nn.Embedding in the GPU's own memory, the same pull into numpy arrays, and the bare copies"""
import contextlib
import gc
import os
import statistics
import sys
import threading
import time
import unittest
from unittest import mock

try:
    import torch
    HAS_GPU = torch.cuda.is_available()
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
    import numpy as np
    import clusters
    import embd
    import embd.torch
    from embd.torch import lent
    from listed import Listed
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
    """By memory of the host: the servers are lent none of the GPU's."""

    shards = 2
    lends = False

    def setUp(self):
        super().setUp()
        if not self.lends:
            refused = mock.patch.object(lent.Lending, "_lend", lambda *_: None)
            refused.start()
            self.addCleanup(refused.stop)

    def is_same(self, ours, theirs):
        """Of pooled rows: shards add partial sums in their order where the host takes these, and the GPU adds in that of the keys."""
        if self.shards == 1 or not self.lends:
            return torch.equal(ours.cpu(), theirs.cpu())
        return torch.allclose(ours.cpu(), theirs.cpu(), rtol=1e-5, atol=1e-6)

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
            self.assertTrue(self.is_same(ours, theirs))
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
            self.assertTrue(self.is_same(ours[name], theirs[name]))
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
    lends = True

    def test_memory_was_lent(self):
        module = embd.torch.Embedding(1000, DIM, client=self.client, name="lent", optimizer=SGD, seed=3)
        keys = torch.randint(0, 1000, (512,), device=GPU)
        module(keys).sum().backward()
        self.assertIsNotNone(module.source.lent(GPU, [512]))
        self.assertIsInstance(module.prefetch(keys), embd.torch.rows.LentTicket)
        with self.assertRaises(IndexError):
            module(torch.tensor([3, 1000], device=GPU))

    def test_bags_stay_there(self):
        for mode, weighted in ("sum", False), ("sum", True), ("mean", False):
            name = f"stay_{mode}_{weighted}".lower()
            cpu, gpu = (embd.torch.EmbeddingBag(1000, DIM, mode=mode, client=self.client, name=f"{name}_{i}", optimizer="adagrad", seed=3)
                        for i in range(2))
            for turn in range(6):
                keys, offsets = torch.randint(0, 1000, (900,)), torch.randint(0, 900, (200,)).sort().values
                offsets[0] = 0
                weights = torch.randn(900) if weighted else None
                busy()
                ticket = gpu.prefetch(keys.to(GPU), offsets.to(GPU), None if weights is None else weights.to(GPU))
                self.assertIsInstance(ticket, embd.torch.rows.LentTicket)
                out = [cpu(keys, offsets, weights), gpu(ticket)]
                self.assertTrue(self.is_same(*out), (mode, weighted, turn))
                factor = torch.randn(out[0].shape)
                for rows in out:
                    (rows * factor.to(rows.device)).sum().backward()
                for module in cpu, gpu:
                    module.flush()
            self.assertTrue(np.array_equal(*(module.table.pull(np.arange(1000), raw=True) for module in (cpu, gpu))), (mode, weighted))

    def collections(self, name, make, config, n_tables, fields, **more):
        """The same one twice, over tables of its own. The tables have two features each."""
        dims = (DIM, 3, 8) if "mixed" in name else (DIM,)
        return [make([config(1000, dims[t % len(dims)], f"{name}_{i}_{t}", feature_names=[f"f{2 * t + 1}", f"f{2 * t}"])
                      for t in range(n_tables)], client=self.client, seed=3, **fields, **more) for i in range(2)]

    def batch(self, n_features, samples=50, whole=False):
        lengths = torch.randint(0, 4, (n_features * samples,))
        n = int(lengths.sum())
        return [f"f{i}" for i in range(n_features)], torch.randint(0, 1000, (n,)), lengths, torch.randn(n) if whole else None

    def train_collections(self, pair, weighted, hold):
        for turn in range(5):
            names, values, lengths, weights = self.batch(2 * len(pair[0].tables), whole=weighted)
            busy()
            more = [] if weights is None else [weights]
            out = [pair[0](names, values, lengths, *more), pair[1](names, *(t.to(GPU) for t in (values, lengths, *more)))]
            self.assertEqual(list(out[0]), list(out[1]))
            losses = [[], []]
            for feature in list(out[0])[turn % 2:]:  # one without a gradient
                self.assertTrue(self.is_same(out[0][feature], out[1][feature]), (feature, turn))
                factor = torch.randn(out[0][feature].shape)
                for loss, rows in zip(losses, out):
                    loss.append((rows[feature] * factor.to(rows[feature].device)).sum())
            for module, loss in zip(pair, losses):
                with embd.torch.accumulate(module) if hold else contextlib.nullcontext():
                    sum(loss).backward()
                module.flush()
        for ours, theirs in zip(pair[0].tables, pair[1].tables):
            self.assertTrue(np.array_equal(ours.pull(np.arange(1000), raw=True), theirs.pull(np.arange(1000), raw=True)), ours.name)

    def test_collections_stay_there(self):
        bags, rows = ((embd.torch.EmbeddingBagCollection, embd.torch.EmbeddingBagConfig),
                      (embd.torch.EmbeddingCollection, embd.torch.EmbeddingConfig))
        cases = (("sums", bags, 20, {"optimizer": "adam"}, False, False), ("mixed", bags, 7, {"optimizer": "adam"}, False, False), ("held", bags, 3, {"optimizer": "adagrad"}, False, True),
                 ("weighted", bags, 2, {"optimizer": SGD, "is_weighted": True}, True, False),
                 ("single", rows, 5, {"optimizer": "adagrad"}, False, False))
        for name, (make, config), n_tables, fields, weighted, hold in cases:
            with self.subTest(name):
                pair = self.collections(name, make, config, n_tables, fields)
                names, values, lengths, weights = self.batch(2 * n_tables, whole=weighted)
                arguments = [names, *(t.to(GPU) for t in ((values, lengths, weights) if weighted else (values, lengths)))]
                ticket = pair[1].prefetch(*arguments)
                self.assertIsInstance(ticket, embd.torch.rows.LentTicket)
                twice = [pair[1](ticket), pair[1](ticket)]
                for feature, made in twice[0].items():
                    self.assertTrue(torch.equal(made, twice[1][feature]))
                self.train_collections(pair, weighted, hold)

    def test_batches_that_collections_refuse(self):
        _, collection = self.collections("wrong", embd.torch.EmbeddingBagCollection, embd.torch.EmbeddingBagConfig, 2, {"optimizer": SGD})
        names, values, lengths, _ = self.batch(4)
        good = [names, values.to(GPU), lengths.to(GPU)]
        collection(*good)
        for error, names, values, lengths in (
                (ValueError, good[0], good[1], good[2] - 1), (ValueError, good[0], good[1][1:], good[2]),
                (KeyError, ["f0", "f1", "f2", "other"], good[1], good[2]), (IndexError, good[0], good[1] + 1000, good[2]),
                (ValueError, good[0], good[1], good[2][1:])):
            with self.assertRaises(error):
                collection(names, values, lengths)
        with self.assertRaisesRegex(RuntimeError, "lengths are on the host"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                collection(*good)
        torch.cuda.synchronize()
        collection(*good)

    def test_compiled_bags_stay_there(self):
        compiled, plain = (embd.torch.EmbeddingBag(1000, DIM, mode="sum", client=self.client, name=name, optimizer=SGD, seed=3)
                           for name in ("compiled_there", "plain_there"))
        model = torch.compile(lambda keys, offsets: compiled(keys, offsets) * 2, fullgraph=True)
        for _ in range(5):
            keys, offsets = torch.randint(0, 1000, (600,)), torch.arange(0, 600, 3)
            out = [model(keys.to(GPU), offsets.to(GPU)), plain(keys, offsets) * 2]
            self.assertTrue(self.is_same(*out))
            for rows in out:
                rows.sum().backward()
            for module in compiled, plain:
                module.flush()
        self.assertTrue(np.array_equal(*(module.table.pull(np.arange(1000), raw=True) for module in (compiled, plain))))

    def test_graphs_replay_pulls_and_steps(self):
        makers = [(embd.torch.Embedding, (512,), {}), (embd.torch.EmbeddingBag, (100, 5), {"mode": "mean"})]
        for number, (make, shape, fields) in enumerate(makers):
            pair = [make(1000, DIM, client=self.client, name=f"graph_{number}_{i}", optimizer="adagrad", seed=3, **fields) for i in range(2)]
            keys = torch.zeros(shape, dtype=torch.int64, device=GPU)
            graph, expected = torch.cuda.CUDAGraph(), pair[1]
            left = embd.torch.Embedding(1000, DIM, client=self.client, name=f"left_{number}", optimizer=SGD)
            left(keys)
            with torch.cuda.graph(graph):
                out = pair[0](keys)
                del left
                gc.collect()  # what it lent is not freed now: that would end the capture
                (out * 0.5).sum().backward()
            for turn in range(8):
                batch = torch.randint(0, 1000, shape)
                keys.copy_(batch)
                if turn % 2:
                    busy()
                graph.replay()
                theirs = expected(batch)
                self.assertTrue(self.is_same(out.detach(), theirs), (number, turn))
                (theirs * 0.5).sum().backward()
                for module in pair:
                    module.flush()
            self.assertTrue(np.array_equal(*(module.table.pull(np.arange(1000), raw=True) for module in pair)))

    def test_graphs_of_collections(self):
        """Two tables, one with two features; bags of several lengths, which stay."""
        lengths = torch.tensor([2, 0, 3, 1, 1, 1, 4, 2, 0])  # of a, b and c; 3 samples
        for number, (make, config, more) in enumerate(((embd.torch.EmbeddingBagCollection, embd.torch.EmbeddingBagConfig, {}),
                                                       (embd.torch.EmbeddingCollection, embd.torch.EmbeddingConfig, {}))):
            pair = [make([config(num_embeddings=1000, embedding_dim=DIM, name=f"many_{number}_{i}_0", feature_names=["a", "c"]),
                          config(num_embeddings=1000, embedding_dim=DIM, name=f"many_{number}_{i}_1", feature_names=["b"])],
                         client=self.client, optimizer="adagrad", seed=3, **more) for i in range(2)]
            values, graph, there = torch.zeros(14, dtype=torch.int64, device=GPU), torch.cuda.CUDAGraph(), lengths.to(GPU)
            with self.assertRaisesRegex(RuntimeError, "lengths are on the host"):
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    pair[0]("abc", values, there)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                out = pair[0]("abc", values, lengths)
                sum((rows * 0.5).sum() for rows in out.values()).backward()
            for turn in range(6):
                batch = torch.randint(0, 1000, (14,))
                values.copy_(batch)
                if turn % 2:
                    busy()
                graph.replay()
                theirs = pair[1]("abc", batch, lengths)
                self.assertEqual(list(out), list(theirs))
                for name, rows in theirs.items():
                    self.assertTrue(self.is_same(out[name].detach(), rows), (number, turn, name))
                sum((rows * 0.5).sum() for rows in theirs.values()).backward()
                for module in pair:
                    module.flush()
            for tables in zip(*(module.tables for module in pair)):
                self.assertTrue(np.array_equal(*(table.pull(np.arange(1000), raw=True) for table in tables)))

    def test_what_no_graph_takes(self):
        module = embd.torch.Embedding(1000, DIM, padding_idx=3, client=self.client, name="no_graph", optimizer=SGD, seed=3)
        keys = torch.zeros(8, dtype=torch.int64, device=GPU)
        with self.assertRaisesRegex(RuntimeError, "padding_idx"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                module(keys)
        torch.cuda.synchronize()
        module(keys)

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


class LentToShards(Lent):
    """Each of two shards on the GPU takes its own keys."""

    shards = 2

    def test_nothing_is_raised_while_keys_move(self):
        module = embd.torch.Embedding(1000, DIM, client=self.client, name="moving", optimizer=embd.Optimizer("sgd", lr=1.0),
                                      initializer=embd.Initializer("constant", 0))
        moved, stops = [], threading.Event()

        def move():
            with embd.connect(self.server.addresses[0], deadline=60) as operator:
                while not stops.is_set() and len(moved) < 1000:
                    try:
                        moved.append(operator.rebalance([1 + len(moved) % 3, 2]).vshards)
                    except embd.Error as error:
                        if error.status != embd.Status.BUSY:  # rows that left are being removed
                            moved.append(error)
                            return
                    time.sleep(0.01)

        mover = threading.Thread(target=move)
        mover.start()
        steps, keys = 0, torch.arange(1000, device=GPU)
        try:
            while steps < 100 or (len(moved) < 10 and mover.is_alive()):
                rows = module(keys)
                self.assertTrue(bool((rows == -steps).all()))
                rows.sum().backward()
                steps += 1
        finally:
            stops.set()
            mover.join(60)
        module.flush()
        self.assertFalse(mover.is_alive())
        self.assertEqual([error for error in moved if isinstance(error, embd.Error)], [])
        self.assertGreaterEqual(len(moved), 10)
        np.testing.assert_array_equal(module.table.pull(np.arange(1000), raw=True), np.full((1000, DIM), -steps))


class LentToServers(LentToShards):
    """Two servers on the GPU, with journals."""

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


class InProcess(Cuda):
    """The same of a server in this process."""

    shards = 1
    lends = True

    def setUp(self):
        self.client = embd.connect(f"inproc:?store=cuda&shards={self.shards}", deadline=20)
        self.addCleanup(self.client.close)

    def test_memory_was_lent(self):
        for make, keys in (embd.torch.Embedding, torch.randint(0, 1000, (512,))), (embd.torch.EmbeddingBag, torch.randint(0, 1000, (90, 3))):
            pair = [make(1000, DIM, client=self.client, name=f"lent_{make.__name__}_{i}".lower(), optimizer="adagrad", seed=3)
                    for i in range(2)]
            for turn in range(5):
                ticket = pair[0].prefetch(keys.to(GPU))
                self.assertIsInstance(ticket, embd.torch.rows.LentTicket)
                out = [pair[0](ticket), pair[1](keys)]
                self.assertTrue(self.is_same(*out))
                for rows in out:
                    (rows * (turn - 1.5)).sum().backward()
                for module in pair:
                    module.flush()
            self.assertTrue(np.array_equal(*(module.table.pull(np.arange(1000), raw=True) for module in pair)))

    def test_no_stream_waits_for_a_server_of_its_own_process(self):
        module = embd.torch.Embedding(1000, DIM, client=self.client, name="no_stream", optimizer=SGD, seed=3)
        with self.assertRaisesRegex(RuntimeError, "in this process"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                module(torch.zeros(8, dtype=torch.int64, device=GPU))
        torch.cuda.synchronize()


class InProcessShards(InProcess):
    shards = 2


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


def measure_collection(client, dim, n_tables=26, samples=2048):
    """A value a sample and table."""
    make = [embd.torch.EmbeddingBagConfig(1 << 16, dim, f"measured_{t}", feature_names=[f"f{t}"]) for t in range(n_tables)]
    collection = embd.torch.EmbeddingBagCollection(make, client=client, optimizer="sgd", seed=3)
    names, lengths = [f"f{t}" for t in range(n_tables)], torch.ones(n_tables * samples, dtype=torch.int64, device=GPU)
    batches = [torch.randint(0, 1 << 16, (n_tables * samples,), device=GPU) for _ in range(8)]

    def step(values):
        sum(rows.sum() for rows in collection(names, values, lengths).values()).backward()
        collection.flush()
    if not client.is_inproc:
        held, known, graph = batches[0].clone(), lengths.cpu(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            sum(rows.sum() for rows in collection(names, held, known).values()).backward()

        def replay(values):
            held.copy_(values)
            graph.replay()
        say(f"EmbeddingBagCollection of {n_tables} tables, step applied, as one CUDA graph", samples, lambda i: replay(batches[i % 8]))
        collection.flush()
    for where in "in the GPU's memory", "by the host":
        say(f"EmbeddingBagCollection of {n_tables} tables, forward, {where}", samples, lambda i: collection(names, batches[i % 8], lengths))
        say(f"EmbeddingBagCollection of {n_tables} tables, step applied, {where}", samples, lambda i: step(batches[i % 8]))
        collection.source.end_lending(batches[0].device)


def measure(client):
    rows, dim = 1 << 20, 64
    table = client.create_table("measured", dim, optimizer="sgd", seed=3)
    for first in range(0, rows, 1 << 16):
        keys = np.arange(first, first + (1 << 16), dtype=np.uint64)
        table.push(keys, np.zeros((keys.size, dim), np.float32))
    ours = embd.torch.Embedding(None, dim, table=table)
    bags = embd.torch.EmbeddingBag(None, dim, mode="sum", client=client, name="measured_bags", optimizer="sgd", seed=3)
    measure_collection(client, dim)
    for first in range(0, rows, 1 << 16):
        bags.table.push(np.arange(first, first + (1 << 16)), np.zeros((1 << 16, dim), np.float32), raw=True)
    their_bags = torch.nn.EmbeddingBag(rows, dim, mode="sum", sparse=True, device=GPU)
    bag_sgd = torch.optim.SGD(their_bags.parameters(), lr=0.01)
    theirs = torch.nn.Embedding(rows, dim, sparse=True, device=GPU)
    sgd = torch.optim.SGD(theirs.parameters(), lr=0.01)

    def step(keys):
        ours(keys).sum().backward()
        ours.flush()

    def their_step(keys):
        sgd.zero_grad()
        theirs(keys).sum().backward()
        sgd.step()

    def bag_step(keys):
        bags(keys.view(-1, 8)).sum().backward()
        bags.flush()

    def their_bag_step(keys):
        bag_sgd.zero_grad()
        their_bags(keys.view(-1, 8)).sum().backward()
        bag_sgd.step()

    def captured(n):
        keys, graph = torch.zeros(n, dtype=torch.int64, device=GPU), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ours(keys).sum().backward()

        def replay(batch):
            keys.copy_(batch)
            graph.replay()
        return replay

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
        if not client.is_inproc:
            say("embd.torch.Embedding, the same as one CUDA graph", n, (lambda replay: lambda i: replay(batches[i % 8]))(captured(n)))
            ours.flush()
        say("embd.torch.EmbeddingBag, bags of 8: step applied", n, lambda i: bag_step(batches[i % 8]))
        say("torch.nn.EmbeddingBag, bags of 8: step with sparse SGD", n, lambda i: their_bag_step(batches[i % 8]))


if __name__ == "__main__":
    status = 0
    if "--measure" not in sys.argv:
        result = unittest.main(module="__main__", exit=False, argv=sys.argv[:1]).result
        status = 0 if result.wasSuccessful() else 1
    if not status and "--tests" not in sys.argv:
        server = clusters.Embd(shards=1)
        with embd.connect(server.addresses[0]) as client:
            measure(client)
        server.stop()
        print("a server in this process:")
        with embd.connect("inproc:?store=cuda", deadline=20) as client:
            measure(client)
    sys.exit(status)
