"""embd.torch against torch.nn: outputs, gradients and training trajectories of the same model, with the optimizer
of torch.optim that has embd's formula (for Adam that is SparseAdam: touched rows only, eps beside sqrt(v)).

A gradient is seen as a step of SGD with lr 1. Where values are small whole numbers every sum is exact, and the
two have to agree to the last bit; elsewhere within a few units of float32."""
import gc
import itertools
import unittest
import warnings

import numpy as np

try:
    import torch
    from embd.torch import bags as bags_of_rows
except ImportError:
    torch = None

import clusters
import embd

ROWS, DIM = 50, 6
SGD1 = embd.Optimizer("sgd", lr=1.0)


def whole(*shape, low=-4, high=5):
    return torch.from_numpy(RANDOM.integers(low, high, shape).astype(np.float32))


def bags(n_bags=7, most=5, rows=ROWS):
    """(indices, offsets without the last, lengths); some bags are empty."""
    lengths = RANDOM.integers(0, most, n_bags)
    keys = torch.from_numpy(RANDOM.integers(0, rows, lengths.sum()))
    return keys, torch.from_numpy(np.append(0, np.cumsum(lengths))[:-1]), torch.from_numpy(lengths)


RANDOM = np.random.default_rng(1)


class TorchTest(clusters.ClusterTest):
    tolerance = {"rtol": 1e-5, "atol": 1e-6}

    def setUp(self):
        if torch is None:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        super().setUp()
        self.numbers = itertools.count()

    def bag(self, mode="sum", optimizer=SGD1, rows=ROWS, initializer=None, **options):
        return embd.torch.EmbeddingBag(rows, DIM, mode=mode, client=self.client, name=f"t{next(self.numbers)}",
                                       optimizer=optimizer, **({"initializer": initializer} if initializer else {}),
                                       **options)

    def twin(self, bag, **options):
        """torch.nn's module with the same rows."""
        return torch.nn.EmbeddingBag(bag.num_embeddings, DIM, mode=bag.mode, padding_idx=bag.padding_idx,
                                     _weight=bag.weight.clone(), **options)

    def same(self, a, b, exactly=False):
        if exactly:
            self.assertTrue(torch.equal(a, b), f"{a} is not {b}")
        else:
            torch.testing.assert_close(a, b, **self.tolerance)


class Modules(TorchTest):
    def test_the_signatures_begin_with_those_of_torch_nn(self):
        import inspect
        for ours, theirs in ((embd.torch.EmbeddingBag, torch.nn.EmbeddingBag),
                             (embd.torch.Embedding, torch.nn.Embedding)):
            for method in ("__init__", "forward"):
                mine = list(inspect.signature(getattr(ours, method)).parameters)
                nn = [name for name in inspect.signature(getattr(theirs, method)).parameters if name != "_freeze"]
                self.assertEqual(mine[:len(nn)], nn)

    def test_outputs_and_gradients_are_those_of_torch_nn(self):
        for mode, padding, last in itertools.product(("sum", "mean"), (None, 3, -1), (False, True)):
            with self.subTest(mode=mode, padding=padding, last=last):
                bag = self.bag(mode, padding_idx=padding, include_last_offset=last)
                twin = self.twin(bag, include_last_offset=last)
                keys, offsets, _ = bags()
                if last:
                    offsets = torch.cat([offsets, torch.tensor([len(keys)])])
                self.compare_one_step(bag, twin, (keys, offsets))

    def compare_one_step(self, bag, twin, inputs, exactly=False):
        mine, theirs = bag(*inputs), twin(*inputs)
        self.same(mine, theirs, exactly)
        gradient = whole(*mine.shape)
        mine.backward(gradient)
        theirs.backward(gradient)
        self.same(bag.weight, twin.weight.detach() - twin.weight.grad, exactly)

    def test_whole_numbers_agree_to_the_last_bit(self):
        for _ in range(5):
            bag = self.bag("sum", initializer=embd.Initializer("constant", 0.0))
            self.table_of(bag).push(np.arange(ROWS), whole(ROWS, DIM).numpy(), raw=True)
            keys, offsets, _ = bags(40, 30)
            self.compare_one_step(bag, self.twin(bag), (keys, offsets), exactly=True)
            weights = whole(len(keys))
            self.compare_one_step(bag, self.twin(bag), (keys, offsets, weights), exactly=True)

    @staticmethod
    def table_of(bag):
        return bag.table

    def test_two_dimensional_input(self):
        bag = self.bag("mean", padding_idx=0)
        self.compare_one_step(bag, self.twin(bag), (torch.from_numpy(RANDOM.integers(0, 4, (5, 3))),))

    def test_weights_of_samples_and_their_gradient(self):
        for padding in (None, 2):
            bag = self.bag("sum", padding_idx=padding)
            twin = self.twin(bag)
            keys, offsets, _ = bags(rows=5)
            mine = torch.rand(len(keys), requires_grad=True)
            theirs = mine.detach().clone().requires_grad_()
            a, b = bag(keys, offsets, mine), twin(keys, offsets, theirs)
            self.same(a, b)
            gradient = whole(*a.shape)
            a.backward(gradient)
            b.backward(gradient)
            self.same(mine.grad, theirs.grad)
            self.same(bag.weight, twin.weight.detach() - twin.weight.grad)

    def test_a_table_that_combines_otherwise_gives_the_same(self):
        table = self.client.create_table("rows", DIM, combiner="concat", optimizer=SGD1)
        for mode in ("sum", "mean"):
            bag = embd.torch.EmbeddingBag(ROWS, DIM, mode=mode, table=table)
            self.compare_one_step(bag, self.twin(bag), bags()[:2])

    def test_embedding(self):
        layer = embd.torch.Embedding(ROWS, DIM, padding_idx=1, client=self.client, name="e", optimizer=SGD1)
        with torch.no_grad():
            twin = torch.nn.Embedding(ROWS, DIM, padding_idx=1, _weight=layer.weight.clone())
            twin.weight[1] = 0
        keys = torch.from_numpy(RANDOM.integers(0, 5, (4, 3)))
        mine, theirs = layer(keys), twin(keys)
        self.same(mine, theirs, exactly=True)
        gradient = whole(*mine.shape)
        mine.backward(gradient)
        theirs.backward(gradient)
        others = torch.arange(ROWS) != 1
        self.same(layer.weight[others], (twin.weight.detach() - twin.weight.grad)[others])
        self.assertEqual(layer(torch.zeros((2, 0), dtype=torch.int64)).shape, (2, 0, DIM))

    def test_rows_are_handed_over_where_device_says(self):
        keys = torch.arange(6).reshape(3, 2)
        given = {"client": self.client, "device": "meta"}  # a device that every PyTorch has
        config = embd.torch.EmbeddingBagConfig(ROWS, DIM, "placed", feature_names=["x"])
        for out in (embd.torch.Embedding(ROWS, DIM, name="rows", **given)(keys),
                    embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", name="bags", **given)(keys),
                    embd.torch.EmbeddingBagCollection([config], **given)(["x"], keys.reshape(-1), torch.full((3,), 2))["x"]):
            self.assertEqual(out.device.type, "meta")
            self.assertEqual(out.shape[-1], DIM)

    def test_a_ticket_is_used_twice(self):
        rows = embd.torch.Embedding(ROWS, DIM, client=self.client, name="twice")
        ticket = rows.prefetch(torch.arange(ROWS))
        first, second = rows(ticket), rows(ticket)
        self.assertIsNot(first, second)
        self.assertTrue(torch.equal(first, second))
        (first * 1 + second * 2).sum().backward()

    def test_nothing_is_pushed_in_evaluation(self):
        bag = self.bag()
        before = bag.weight
        keys, offsets, _ = bags()
        with torch.no_grad():
            self.assertFalse(bag(keys, offsets).requires_grad)
        bag.eval()
        self.assertFalse(bag(keys, offsets).requires_grad)
        self.same(bag.weight, before, exactly=True)
        self.assertEqual(list(bag.parameters()), [])

    def test_empty_batches(self):
        for mode in ("sum", "mean"):
            bag = self.bag(mode)
            none = torch.zeros(0, dtype=torch.int64)
            out = bag(none, torch.zeros(3, dtype=torch.int64))
            self.same(out, torch.zeros(3, DIM), exactly=True)
            out.sum().backward()
            self.assertEqual(bag(none, none).shape, (0, DIM))

    def test_any_64_bit_integer_is_a_row_where_no_number_is_given(self):
        bag = self.bag(rows=None)
        keys = torch.tensor([-1, 2**62])
        out = bag(keys, torch.tensor([0, 1]))
        out.backward(torch.ones(2, DIM))
        self.same(bag(keys, torch.tensor([0, 1])), out.detach() - 1)
        self.assertRaises(AttributeError, lambda: bag.weight)

    def test_what_cannot_be_is_refused(self):
        for options in ({"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"mode": "max"}, {"_weight": torch.ones(2)}):
            self.assertRaises(NotImplementedError, self.bag, **options)
        bag = self.bag()
        keys, offsets = torch.tensor([1, 2]), torch.tensor([0])
        for call in (lambda: bag(keys), lambda: bag(keys, torch.tensor([1])), lambda: bag(keys[None], offsets),
                     lambda: bag(keys, offsets, torch.ones(3)), lambda: bag(keys[None, None])):
            self.assertRaises(ValueError, call)
        self.assertRaises(TypeError, bag, keys.float(), offsets)
        self.assertRaises(IndexError, bag, torch.tensor([ROWS]), offsets)
        self.assertRaises(IndexError, bag, torch.tensor([-1]), offsets)
        self.assertRaises(embd.InvalidError, bag, keys, torch.tensor([0, 2, 1]))
        self.assertRaises(NotImplementedError, self.bag("mean"), keys, offsets, torch.ones(2))
        self.assertRaises(TypeError, embd.torch.EmbeddingBag, 5, 3, client=self.client)

    def test_a_push_that_fails_is_raised_by_flush(self):
        bag = self.bag()
        bag(torch.tensor([1]), torch.tensor([0])).backward(torch.full((1, DIM), float("nan")))
        with self.assertRaises(embd.Error) as caught:
            bag.flush()
        self.assertEqual(caught.exception.status, embd.Status.NOT_FINITE)
        bag.flush()

    def test_scores_go_with_the_gradient(self):
        kept = {"optimizer": SGD1, "on_full": "evict_score", "capacity": ROWS}
        fields = {"client": self.client, "padding_idx": 0, **kept}
        concat = self.client.create_table("combined", DIM, combiner="concat", **kept)
        keys = torch.tensor([3, 3, 0, 5, 7])
        scores = torch.tensor([1.0, 4.0, 9.0, 2.0, -torch.inf])
        score_of = [4.0, 2.0, 0.0]  # of the keys 3, 5, 7; the largest counts
        for name, module, offsets in (
                ("rows", embd.torch.Embedding(ROWS, DIM, name="rows", **fields), ()),
                ("bags", embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", name="bags", **fields), (torch.tensor([0, 2]),)),
                ("combined", embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", table=concat, padding_idx=0),
                 (torch.tensor([0, 2]),))):
            with self.subTest(name):
                with embd.torch.accumulate(module):
                    module(keys, *offsets, scores=scores).sum().backward()
                    module(keys[4:], *(o[:1] for o in offsets)).sum().backward()
                module.flush()
                states = module.table.get(np.array([3, 5, 7], np.uint64), states=True).states
                np.testing.assert_array_equal(states[:, -1], np.float32(score_of))
                with self.assertRaisesRegex(ValueError, r"scores are \(4,\), input is \(5,\)"):
                    module(keys, *offsets, scores=scores[1:])
        with self.assertRaisesRegex(ValueError, "scores need 'evict_score'"):
            self.bag()(keys, torch.tensor([0]), scores=scores)

    def test_half_precision_leaves_the_module(self):
        bag = self.bag(dtype=torch.float16)
        out = bag(torch.tensor([1]), torch.tensor([0]))
        self.assertEqual(out.dtype, torch.float16)
        before = bag.weight[1]
        out.backward(torch.ones(1, DIM, dtype=torch.float16))
        self.same(bag.weight[1], before - 1, exactly=True)

    def test_tickets_that_nobody_uses_harm_nothing(self):
        bag = self.bag()
        for _ in range(20):
            bag.prefetch(*bags()[:2])
        gc.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(bag(*bags()[:2]).shape, (7, DIM))


class ModulesOnThreeShards(Modules):
    shards = 3


class BagsOfRows(TorchTest):
    """What a GPU does with single rows in the place of servers that pool: embd/torch/bags.py. On the CPU here."""

    def test_pooled_rows_and_gradients_have_the_bits_of_servers(self):
        rng = np.random.default_rng(7)
        for mode, weighted, padding in ("sum", False, None), ("sum", True, 3), ("mean", False, None), ("mean", False, 3):
            with self.subTest(mode=mode, weighted=weighted, padding=padding):
                name = f"bags_{mode}_{weighted}_{padding}".lower()
                pooled, single = (self.client.create_table(f"{name}_{i}", 5, combiner=mode, seed=4,
                                                           optimizer=embd.Optimizer("adagrad", lr=0.1)) for i in range(2))
                for _ in range(4):
                    offsets = np.concatenate([[0], np.sort(rng.integers(0, 400, 60)), [400]])
                    keys = torch.from_numpy(rng.integers(0, 120, 400))
                    weights = torch.from_numpy(rng.standard_normal(400, dtype=np.float32)) if weighted else None
                    made = bags_of_rows.made(keys, torch.from_numpy(offsets), weights, True, padding)
                    kept, ends = made.keys.numpy(), made.ends.numpy()
                    factors = None if made.weights is None else made.weights.numpy()
                    rows = torch.from_numpy(single.pull(kept, raw=True)).requires_grad_()
                    out = bags_of_rows.pool(rows, made, mode)
                    np.testing.assert_array_equal(out.detach().numpy(), pooled.pull(kept, ends, weights=factors))
                    gradient = rng.standard_normal(out.shape, dtype=np.float32)
                    out.backward(torch.from_numpy(gradient))
                    single.push(kept, rows.grad.numpy(), raw=True)
                    pooled.push(kept, gradient, ends, weights=factors)
                np.testing.assert_array_equal(single.pull(np.arange(120), raw=True), pooled.pull(np.arange(120), raw=True))

    def test_offsets_in_disorder_are_seen(self):
        for offsets, last, expected in [([0, 2, 2], False, True), ([0, 2, 4], True, True), ([0, 2], True, False), ([1, 2], False, False),
                                        ([0, 3, 2], False, False), ([0, 5], False, False), ([], False, False)]:
            self.assertEqual(bags_of_rows.are_in_order(torch.tensor(offsets, dtype=torch.int64), 4, last), expected, offsets)


class Trajectories(TorchTest):
    """Twenty steps of a small model; its dense layer is trained here, with the same optimizer on both sides."""

    tolerance = {"rtol": 1e-4, "atol": 1e-5}

    def steps(self, optimizer, make, sparse, mode="mean"):
        bag = self.bag(mode, optimizer)
        twin = self.twin(bag, sparse=sparse)
        torch.manual_seed(1)
        mine, theirs = torch.nn.Linear(DIM, 1), torch.nn.Linear(DIM, 1)
        theirs.load_state_dict(mine.state_dict())
        for_mine = torch.optim.SGD(mine.parameters(), lr=0.05)
        for_theirs = [torch.optim.SGD(theirs.parameters(), lr=0.05), make(twin.parameters())]
        for _ in range(20):
            keys, offsets, _ = bags(16)
            target = whole(16, 1, low=0, high=2)
            for module, dense, optimizers in ((bag, mine, [for_mine]), (twin, theirs, for_theirs)):
                for each in optimizers:
                    each.zero_grad()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(dense(module(keys, offsets)), target)
                loss.backward()
                for each in optimizers:
                    each.step()
        self.same(bag.weight, twin.weight.detach())
        self.same(mine.weight.detach(), theirs.weight.detach())

    def test_sgd(self):
        self.steps(embd.Optimizer("sgd", lr=0.5), lambda p: torch.optim.SGD(p, lr=0.5), False)

    def test_adagrad(self):
        self.steps(embd.Optimizer("adagrad", lr=0.1, eps=1e-7),
                   lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-7), False, "sum")

    def test_adam(self):
        self.steps(embd.Optimizer("adam", lr=0.01, eps=1e-7),
                   lambda p: torch.optim.SparseAdam(list(p), lr=0.01, eps=1e-7), True)

    def test_accumulated_passes_are_one_step(self):
        for optimizer in (SGD1, embd.Optimizer("adagrad", lr=0.1, eps=1e-7)):
            bag = self.bag("sum", optimizer)
            twin = self.twin(bag)
            theirs = torch.optim.SGD(twin.parameters(), lr=1.0) if optimizer is SGD1 else \
                torch.optim.Adagrad(twin.parameters(), lr=0.1, eps=1e-7)
            with embd.torch.accumulate(torch.nn.Sequential(bag)):
                for pass_ in range(3):
                    keys, offsets, _ = bags()
                    weights = torch.rand(len(keys), requires_grad=pass_ == 1) if pass_ else None
                    gradient = whole(7, DIM)
                    for module in (bag, twin):
                        module(keys, offsets, weights).backward(gradient)
            theirs.step()
            self.same(bag.weight, twin.weight.detach())

    def test_synchronous_workers_train_as_one_with_the_mean_gradient(self):
        name, workers = f"t{next(self.numbers)}", 2
        batches = [[bags() for _ in range(workers)] for _ in range(4)]
        clients = [embd.connect(self.server.addresses[0], own_thread=True) for _ in range(workers)]
        for client in clients:
            self.addCleanup(client.close)
        ours = [embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", client=client, name=name, optimizer=embd.Optimizer("sgd", lr=0.05))
                for client in clients]
        clocks = [embd.Clock(client, "torch", worker=w, workers=workers) for w, client in enumerate(clients)]
        twin = self.twin(ours[0])
        sgd = torch.optim.SGD(twin.parameters(), lr=0.05)
        for bag, clock in zip(ours, clocks):
            embd.torch.synchronous(bag, clock)
        for batch in batches:
            sgd.zero_grad()
            for w in reversed(range(workers)):
                keys, offsets, _ = batch[w]
                ours[w](keys, offsets).square().sum().backward()
                (twin(keys, offsets).square().sum() / workers).backward()
            sgd.step()
            for bag, clock in zip(ours, clocks):
                embd.torch.flush(bag)
                clock.tick()
        self.same(ours[0].weight, twin.weight)
        self.assertEqual(self.client.stats()[0].tables[name]["steps"], len(batches))

    def test_a_block_that_fails_pushes_nothing(self):
        bag = self.bag()
        before = bag.weight
        with self.assertRaises(KeyError), embd.torch.accumulate(bag):
            bag(torch.tensor([1]), torch.tensor([0])).sum().backward()
            raise KeyError
        self.same(bag.weight, before, exactly=True)


class TrajectoriesOnThreeShards(Trajectories):
    shards = 3


class Collections(TorchTest):
    shards = 3

    def collection(self):
        return embd.torch.EmbeddingBagCollection([
            embd.torch.EmbeddingBagConfig(6, 4, "words", feature_names=["title", "body"]),
            embd.torch.EmbeddingBagConfig(None, 3, "users", feature_names=["user"], pooling="MEAN")],
            client=self.client, optimizer=SGD1)

    def test_a_hundred_tables_are_one_pull_and_one_push_of_each_shard(self):
        collection = embd.torch.EmbeddingBagCollection(
            [embd.torch.EmbeddingBagConfig(None, 2, f"hundred{i}", feature_names=[f"f{i}"]) for i in range(100)],
            client=self.client, optimizer=SGD1)
        before = [shard.shard for shard in self.client.stats()]
        keys = torch.arange(3000) % 30
        out = collection([f"f{i}" for i in range(100)], keys, torch.full((3000,), 1))
        sum(rows.sum() for rows in out.values()).backward()
        after = [shard.shard for shard in self.client.stats()]
        self.assertEqual([(b["requests_pull"] - a["requests_pull"], b["requests_push"] - a["requests_push"])
                          for a, b in zip(before, after)], [(1, 1)] * 3)
        self.assertEqual({of_table["steps"] for shard in self.client.stats()
                          for name, of_table in shard.tables.items() if name.startswith("hundred")}, {1})

    def test_features_are_pulled_and_stepped_together(self):
        collection = self.collection()
        features, lengths = ["user", "body", "title"], torch.tensor([1, 2, 0, 0, 3, 1, 1, 1, 1])
        values = torch.from_numpy(RANDOM.integers(0, 6, 10))
        words = torch.nn.EmbeddingBag(6, 4, mode="sum",
                                      _weight=torch.from_numpy(collection.tables[0].pull(np.arange(6), raw=True)))
        users = torch.nn.EmbeddingBag(6, 3, mode="mean",
                                      _weight=torch.from_numpy(collection.tables[1].pull(np.arange(6), raw=True)))
        out = collection(features, values, lengths)
        self.assertEqual(list(out), ["title", "body", "user"])
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        expected = {}
        for i, (feature, bag) in enumerate(zip(features, (users, words, words))):
            first, last = ends[3 * i], ends[3 * i + 3]
            expected[feature] = bag(values[first:last], ends[3 * i:3 * i + 3] - first)
            self.same(out[feature], expected[feature])
        weight = {feature: whole(*rows.shape) for feature, rows in out.items()}
        for rows in (out, expected):
            sum((rows[feature] * weight[feature]).sum() for feature in features).backward()
        collection.flush()
        for bag, table in ((words, collection.tables[0]), (users, collection.tables[1])):
            self.same(torch.from_numpy(table.pull(np.arange(6), raw=True)), bag.weight.detach() - bag.weight.grad)

    def test_anything_with_the_methods_of_a_keyed_jagged_tensor_will_do(self):
        class Jagged:
            def keys(self):
                return ["user", "title", "body"]

            def values(self):
                return torch.tensor([1, 2, 3])

            def lengths(self):
                return torch.tensor([1, 1, 1])

        out = self.collection()(Jagged())
        self.assertEqual([tuple(rows.shape) for rows in out.values()], [(1, 4), (1, 4), (1, 3)])

    def test_mistakes_are_named(self):
        collection = self.collection()
        values = torch.tensor([1, 2, 3])
        with self.assertRaisesRegex(KeyError, "body"):
            collection(["user", "title"], values[:2], torch.tensor([1, 1]))
        with self.assertRaisesRegex(ValueError, "sum to 4"):
            collection(["user", "title", "body"], values, torch.tensor([1, 1, 2]))
        with self.assertRaisesRegex(ValueError, "whole number"):
            collection(["user", "title", "body"], values, torch.tensor([1, 1]))

    def test_features_that_take_no_part_in_the_loss_are_not_stepped(self):
        collection = self.collection()
        users = collection.tables[1]
        before = users.pull([1], raw=True)
        out = collection(["user", "title", "body"], torch.tensor([1, 1, 1]), torch.tensor([1, 1, 1]))
        out["title"].sum().backward()
        collection.flush()
        np.testing.assert_array_equal(users.pull([1], raw=True), before)


class Prefetch(TorchTest):
    def test_the_next_batch_is_asked_for_before_the_step_of_this_one(self):
        bag = self.bag("sum")
        start = bag.weight
        batches = [(torch.tensor([1]), torch.tensor([0]))] * 4
        seen = []
        for batch, ticket in embd.torch.ahead(batches, lambda b: bag.prefetch(*b)):
            self.assertIs(batch, batches[0])
            out = bag(ticket)
            seen.append(out.detach()[0])
            out.backward(torch.ones(1, DIM))
        for i, rows in enumerate(seen):
            self.same(rows, start[1] - max(0, i - 1))
        self.same(bag.weight[1], start[1] - 4)


@unittest.skipUnless(hasattr(getattr(torch, "library", None), "custom_op"), "this PyTorch has no custom operators")
class Compiled(TorchTest):
    def test_a_compiled_model_is_one_graph_and_steps_as_the_model_does(self):
        for padding, last in itertools.product((None, 3), (False, True)):
            bag = self.bag("sum", padding_idx=padding, include_last_offset=last)
            twin = self.twin(bag, include_last_offset=last)
            torch.manual_seed(1)
            mine, theirs = torch.nn.Linear(DIM, 1), torch.nn.Linear(DIM, 1)
            theirs.load_state_dict(mine.state_dict())

            def model(keys, offsets):
                return torch.sigmoid(mine(torch.relu(bag(keys, offsets)))).sum()

            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            for _ in range(3):
                keys, offsets, _ = bags()
                if last:
                    offsets = torch.cat([offsets, torch.tensor([len(keys)])])
                twin.zero_grad()
                loss = torch.sigmoid(theirs(torch.relu(twin(keys, offsets)))).sum()
                loss.backward()
                again = compiled(keys, offsets)
                self.same(again, loss)
                again.backward()
                with torch.no_grad():
                    twin.weight -= twin.weight.grad
                self.same(bag.weight, twin.weight.detach())

    def test_the_operators_keep_the_rules_of_operators(self):
        bag = self.bag("sum")
        keys, offsets, _ = bags()
        torch.library.opcheck(embd.torch.op.bags, (bag.source.anchor, keys, offsets, None, bag._operand),
                              test_utils=("test_schema", "test_faketensor", "test_autograd_registration"))


@unittest.skipIf(torch is None, "PyTorch is not installed: deploy/deps.sh --torch")
class Import(unittest.TestCase):
    def test_the_package_alone_does_not_import_torch(self):
        import subprocess
        import sys
        code = "import sys, embd; sys.exit('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-B", "-c", code], check=False).returncode, 0)


if torch is not None:
    import embd.torch

if __name__ == "__main__":
    clusters.main()
