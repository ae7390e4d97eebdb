"""embd.torch's collections against TorchRec's own, on the same rows: outputs, their types, and steps of SGD.

TorchRec is used where `deploy/deps.sh --torchrec` has installed it. Without it the conversion of its types is tested with
classes that have their methods, and what needs TorchRec itself is skipped, visibly."""
import os
import sys

PYTHON = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "embd", "torchrec", "bin",
                      "python")
if os.path.exists(PYTHON) and os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(PYTHON))):
    os.execv(PYTHON, [PYTHON, "-W", "ignore", *sys.argv])

import dataclasses  # noqa: E402
import functools  # noqa: E402
import logging  # noqa: E402
import types  # noqa: E402
import unittest  # noqa: E402

import numpy as np  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

import clusters  # noqa: E402
import embd  # noqa: E402

SGD1 = embd.Optimizer("sgd", lr=1.0)


def stand_in():
    """A module with the part of torchrec.sparse.jagged_tensor that embd.torch calls."""
    class KeyedJaggedTensor:
        def __init__(self, keys, values, weights=None, lengths=None):
            self.all = keys, values, weights, lengths

        def keys(self):
            return self.all[0]

        def values(self):
            return self.all[1]

        def weights_or_none(self):
            return self.all[2]

        def lengths(self):
            return self.all[3]

        def variable_stride_per_key(self):
            return False

        def inverse_indices_or_none(self):
            return None

    class KeyedTensor:
        def __init__(self, keys, length_per_key, values):
            ends = np.cumsum([0, *length_per_key])
            self.names, self.matrix = keys, values
            self.parts = {key: values[:, ends[i]:ends[i + 1]] for i, key in enumerate(keys)}

        def keys(self):
            return self.names

        def values(self):
            return self.matrix

        def __getitem__(self, key):
            return self.parts[key]

    class JaggedTensor:
        def __init__(self, values, weights=None, lengths=None):
            self.all = values, weights, lengths

        def values(self):
            return self.all[0]

        def weights(self):
            return self.all[1]

        def lengths(self):
            return self.all[2]

    module = types.ModuleType("torchrec.sparse.jagged_tensor")
    module.KeyedJaggedTensor, module.KeyedTensor, module.JaggedTensor = KeyedJaggedTensor, KeyedTensor, JaggedTensor
    sys.modules[module.__name__] = module
    return module


def real():
    """TorchRec, and its module of jagged tensors; or (None, a stand-in)."""
    logging.disable(logging.WARNING)
    try:
        import torchrec
        return torchrec, sys.modules["torchrec.sparse.jagged_tensor"]
    except ImportError:
        return None, stand_in()
    finally:
        logging.disable(logging.NOTSET)


class TorchRecTest(clusters.ClusterTest):
    shards = 3

    @classmethod
    def setUpClass(cls):
        if torch is None:
            raise unittest.SkipTest("PyTorch is not installed: deploy/deps.sh --torch")
        import embd.torch
        cls.torchrec, cls.jagged = real()
        super().setUpClass()

    def batch(self, weights=None):
        """user: 1 and 2 and 0 values; body: 0, 3, 1; title: 1, 1, 1."""
        return self.jagged.KeyedJaggedTensor(
            keys=["user", "body", "title"], values=torch.tensor([5, 1, 1, 0, 3, 3, 2, 4, 4, 0]), weights=weights,
            lengths=torch.tensor([1, 2, 0, 0, 3, 1, 1, 1, 1]))

    def bag_configs(self, own=True):
        make = embd.torch.EmbeddingBagConfig if own else self.torchrec.EmbeddingBagConfig
        pooling = "MEAN" if own else self.torchrec.PoolingType.MEAN
        return [make(name="words", num_embeddings=6, embedding_dim=4, feature_names=["title", "body"]),
                make(name="users", num_embeddings=6, embedding_dim=3, feature_names=["user"], pooling=pooling)]

    def rows(self, collection):
        return [torch.from_numpy(table.pull(np.arange(6), raw=True)) for table in collection.tables]


class Types(TorchRecTest):
    def test_a_keyed_jagged_tensor_in_is_a_keyed_tensor_out(self):
        collection = embd.torch.EmbeddingBagCollection(self.bag_configs(), client=self.client, optimizer=SGD1)
        out = collection(self.batch())
        self.assertIsInstance(out, self.jagged.KeyedTensor)
        self.assertEqual(list(out.keys()), ["title", "body", "user"])
        self.assertEqual(tuple(out.values().shape), (3, 11))
        words, users = self.rows(collection)
        np.testing.assert_allclose(out["title"].detach(), words[[4, 4, 0]])
        np.testing.assert_allclose(out["body"].detach()[1], words[[0, 3, 3]].sum(0), rtol=1e-6)
        np.testing.assert_allclose(out["user"].detach()[1], users[[1, 1]].mean(0), rtol=1e-6)
        out.values().sum().backward()
        collection.flush()
        expected = users.clone()
        expected[[5, 1]] -= 1
        torch.testing.assert_close(self.rows(collection)[1], expected)

    def test_rows_one_by_one_are_jagged_tensors(self):
        collection = embd.torch.EmbeddingCollection(
            [embd.torch.EmbeddingConfig(6, 4, "words", feature_names=["title", "body"]),
             embd.torch.EmbeddingConfig(6, 4, "user")], need_indices=True, client=self.client, optimizer=SGD1)
        out = collection(self.batch())
        self.assertEqual(list(out), ["title", "body", "user"])
        self.assertIsInstance(out["body"], self.jagged.JaggedTensor)
        self.assertEqual(out["body"].lengths().tolist(), [0, 3, 1])
        self.assertEqual(out["body"].weights().tolist(), [0, 3, 3, 2])
        words, _ = self.rows(collection)
        np.testing.assert_array_equal(out["body"].values().detach(), words[[0, 3, 3, 2]])
        out["body"].values().sum().backward()
        collection.flush()
        words[[0, 2]] -= 1
        words[3] -= 2
        torch.testing.assert_close(self.rows(collection)[0], words)

    def test_without_types_of_torchrec_results_are_tensors(self):
        collection = embd.torch.EmbeddingCollection([embd.torch.EmbeddingConfig(None, 4, "user")], client=self.client)
        out = collection(["user"], torch.tensor([-1, 2**62, 3]), torch.tensor([1, 2]))
        self.assertEqual(tuple(out["user"].shape), (3, 4))

    def test_weights_count_where_the_collection_is_weighted(self):
        config = embd.torch.EmbeddingBagConfig(6, 4, "words", feature_names=["title"])
        weights = torch.arange(10.0)
        plain = embd.torch.EmbeddingBagCollection([config], client=self.client)
        weighted = embd.torch.EmbeddingBagCollection([config], is_weighted=True, client=self.client)
        batch, rows = self.batch(weights), self.rows(plain)[0]
        np.testing.assert_array_equal(plain(batch)["title"].detach(), rows[[4, 4, 0]])
        np.testing.assert_allclose(weighted(batch)["title"].detach(), rows[[4, 4, 0]] * weights[7:10, None], rtol=1e-6)
        with self.assertRaisesRegex(ValueError, "no weights"):
            weighted(self.batch())
        with self.assertRaisesRegex(ValueError, "is_weighted is False"):
            plain(["title"], torch.tensor([1]), torch.tensor([1]), weights[:1])
        with self.assertRaisesRegex(ValueError, "no weights"):
            weighted(["title"], torch.tensor([1]), torch.tensor([1]))

    def test_a_feature_of_two_tables_has_two_names(self):
        collection = embd.torch.EmbeddingBagCollection(
            [embd.torch.EmbeddingBagConfig(6, 4, "a", feature_names=["user", "title"]),
             embd.torch.EmbeddingBagConfig(6, 2, "b", feature_names=["user"])], client=self.client)
        out = collection(self.batch())
        self.assertEqual(list(out.keys()), ["user@a", "title", "user@b"])
        self.assertEqual(tuple(out["user@b"].shape), (3, 2))

    def test_what_cannot_be_is_refused_by_name(self):
        make = embd.torch.EmbeddingBagConfig

        def collection(*configs):
            return embd.torch.EmbeddingBagCollection(configs, client=self.client)

        with self.assertRaisesRegex(NotImplementedError, "pooling is 'NONE'"):
            collection(make(6, 4, "a", pooling="NONE"))
        with self.assertRaisesRegex(NotImplementedError, "data_type is 'INT8'"):
            collection(make(6, 4, "a", data_type="INT8"))
        with self.assertRaisesRegex(ValueError, "one name: a"):
            collection(make(6, 4, "a"), make(6, 4, "a"))
        with self.assertRaisesRegex(ValueError, r"one embedding_dim, here \[4, 5\]"):
            embd.torch.EmbeddingCollection([make(6, 4, "a"), make(6, 5, "b")], client=self.client)
        self.assertEqual(self.client.tables(), [])

        @dataclasses.dataclass
        class Later(make):
            prunes: bool = False
            init_fn: object = None

        with self.assertRaisesRegex(NotImplementedError, "prunes is True"):
            collection(Later(6, 4, "a", prunes=True))
        with self.assertRaisesRegex(NotImplementedError, "init_fn.*initializer="):
            collection(Later(6, 4, "a", init_fn=torch.nn.init.zeros_))
        uniform = functools.partial(torch.nn.init.uniform_, a=1.0, b=2.0)
        made = collection(Later(6, 4, "a", init_fn=uniform)).tables[0].schema.initializer
        self.assertEqual((made.kind, made.a, made.b), ("uniform", 1.0, 2.0))
        with self.assertRaisesRegex(IndexError, "indices are 6 to 6, num_embeddings is 6"):
            collection(make(6, 4, "b"))(["b"], torch.tensor([6]), torch.tensor([1]))

    def test_first_values_and_types_follow_the_config(self):
        make = embd.torch.EmbeddingBagConfig
        tables = embd.torch.EmbeddingBagCollection(
            [make(100, 4, "a"), make(100, 4, "b", weight_init_min=-2.0, weight_init_max=1.0, data_type="BF16"),
             make(100, 4, "c", initializer=embd.Initializer("constant", 3.0), optimizer=embd.Optimizer("adam"),
                  fields={"capacity": 7})], client=self.client, optimizer=SGD1, capacity=5).tables
        a, b, c = (table.schema for table in tables)
        self.assertAlmostEqual(a.initializer.b, 0.1, 6)
        self.assertEqual((b.initializer.a, b.initializer.b, b.dtype, b.optimizer.lr), (-2.0, 1.0, "bf16", 1.0))
        self.assertEqual((c.initializer.kind, c.optimizer.kind, c.capacity, a.capacity), ("constant", "adam", 7, 5))


class AgainstTorchRec(TorchRecTest):
    """The real thing."""

    def setUp(self):
        if self.torchrec is None:
            self.skipTest("TorchRec is not installed: deploy/deps.sh --torchrec")
        super().setUp()

    def pair(self, is_weighted=False):
        """embd's collection and TorchRec's, of the same configs and with the same rows."""
        configs = self.bag_configs(own=False)
        if is_weighted:
            configs = configs[:1]
        ours = embd.torch.EmbeddingBagCollection(configs, is_weighted, client=self.client, optimizer=SGD1)
        twin = self.torchrec.EmbeddingBagCollection(tables=configs, is_weighted=is_weighted)
        for table, rows in zip(configs, self.rows(ours)):
            twin.embedding_bags[table.name].weight.data.copy_(rows)
        return ours, twin

    def test_outputs_and_steps_are_those_of_torchrec(self):
        for is_weighted in (False, True):
            ours, twin = self.pair(is_weighted)
            step = torch.optim.SGD(twin.parameters(), lr=1.0)
            for seed in range(5):
                torch.manual_seed(seed)
                batch = self.batch(torch.rand(10) if is_weighted else None)
                a, b = ours(batch), twin(batch)
                self.assertIs(type(a), type(b))
                self.assertEqual(list(a.keys()), list(b.keys()))
                self.assertEqual(a.length_per_key(), b.length_per_key())
                torch.testing.assert_close(a.values(), b.values())
                weight = torch.rand_like(a.values())
                step.zero_grad()
                for out in (a, b):
                    (out.values() * weight).sum().backward()
                step.step()
            ours.flush()
            for table, rows in zip(ours.tables, self.rows(ours)):
                torch.testing.assert_close(rows, twin.embedding_bags[table.name].weight.detach())

    def test_rows_one_by_one_are_those_of_torchrec(self):
        make = self.torchrec.EmbeddingConfig
        configs = [make(name="words", num_embeddings=6, embedding_dim=4, feature_names=["title", "body"]),
                   make(name="others", num_embeddings=6, embedding_dim=4, feature_names=["user", "body"])]
        ours = embd.torch.EmbeddingCollection(configs, client=self.client, optimizer=SGD1)
        twin = self.torchrec.EmbeddingCollection(tables=configs)
        for table, rows in zip(configs, self.rows(ours)):
            twin.embeddings[table.name].weight.data.copy_(rows)
        a, b = ours(self.batch()), twin(self.batch())
        self.assertEqual(list(a), list(b))
        self.assertEqual(ours.embedding_names_by_table(), twin.embedding_names_by_table())
        for name in a:
            torch.testing.assert_close(a[name].values(), b[name].values())
            self.assertEqual(a[name].lengths().tolist(), b[name].lengths().tolist())

    def test_first_values_are_drawn_between_the_same_bounds(self):
        config = self.torchrec.EmbeddingBagConfig(name="a", num_embeddings=100, embedding_dim=4)
        table, = embd.torch.EmbeddingBagCollection([config], client=self.client).tables
        made = table.schema.initializer
        np.testing.assert_allclose((made.a, made.b), (config.get_weight_init_min(), config.get_weight_init_max()), 1e-6)

    def test_batches_with_several_numbers_of_samples_are_refused(self):
        ours, _ = self.pair()
        batch = self.jagged.KeyedJaggedTensor(keys=["user", "body", "title"], values=torch.tensor([1, 2, 3, 4]),
                                              lengths=torch.tensor([1, 1, 1, 1]), stride_per_key_per_rank=[[1], [2], [1]])
        with self.assertRaisesRegex(NotImplementedError, "stride_per_key"):
            ours(batch)


if __name__ == "__main__":
    clusters.main()
