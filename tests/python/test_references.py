"""Modules of embd.torch that are copied, pickled and saved: they refer to their tables, and take no rows along."""
import copy
import io
import pickle
import unittest

try:
    import torch
    import embd.torch
except ImportError:
    torch = None

import clusters
import embd

ROWS, DIM = 20, 3
SGD1 = embd.Optimizer("sgd", lr=1.0)


class References(clusters.ClusterTest):
    def setUp(self):
        if torch is None:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        super().setUp()
        self.bag = embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", client=self.client, name="bag", optimizer=SGD1)
        self.rows = embd.torch.Embedding(ROWS, DIM, table=self.client.create_table("rows", DIM, optimizer=SGD1))
        self.collection = embd.torch.EmbeddingBagCollection(
            [embd.torch.EmbeddingBagConfig(ROWS, DIM, "many", feature_names=["x"])], client=self.client, optimizer=SGD1)
        self.model = torch.nn.ModuleDict({"bag": self.bag, "rows": self.rows, "many": self.collection,
                                          "dense": torch.nn.Linear(DIM, 1)})

    def outputs(self, model):
        one, offset = torch.tensor([7]), torch.tensor([0])
        pulled = [model["bag"](one, offset), model["rows"](one), model["many"](["x"], one, torch.tensor([1]))["x"]]
        return model["dense"](torch.cat(pulled))

    def steps(self):
        tables = self.client.stats()[0].tables
        return [tables[name]["steps"] for name in ("bag", "rows", "many")]

    def check_copy(self, model):
        """It trains the same rows, and the original sees its steps."""
        self.assertTrue(torch.equal(self.outputs(model), self.outputs(self.model)))
        before, steps = self.bag.weight, self.steps()
        self.outputs(model).sum().backward()
        embd.torch.flush(model)
        self.assertEqual(self.steps(), [n + 1 for n in steps])
        self.assertFalse(torch.equal(self.bag.weight, before))

    def test_a_deep_copy_refers_to_the_same_rows_by_the_same_client(self):
        model = copy.deepcopy(self.model)
        self.assertIs(model["bag"].table.client, self.client)
        self.assertIsNot(model["bag"].source, self.bag.source)
        self.check_copy(model)

    def test_a_pickle_connects_again(self):
        model = pickle.loads(pickle.dumps(self.model))
        clients = {model["bag"].table.client, model["rows"].table.client, model["many"].client}
        self.assertEqual(len(clients), 1)
        self.addCleanup(clients.pop().close)
        self.assertIsNot(model["bag"].table.client, self.client)
        self.check_copy(model)

    def test_a_saved_model_is_loaded(self):
        file = io.BytesIO()
        torch.save(self.model, file)
        file.seek(0)
        modern = {"weights_only": False} if torch.__version__.split(".") >= ["2"] else {}
        model = torch.load(file, **modern)
        self.addCleanup(model["bag"].table.client.close)
        self.check_copy(model)

    def test_a_copy_has_nothing_of_the_originals_training(self):
        embd.torch.optimizer(self.bag).param_groups[0]["lr"] = 0.5
        self.bag.requires_grad_(False)
        self.rows.source.is_holding = True
        model = copy.deepcopy(self.model)
        self.assertFalse(model["bag"](torch.tensor([7]), torch.tensor([0])).requires_grad)
        self.assertIsNone(model["bag"].source.optimizer)
        self.assertFalse(model["rows"].source.is_holding)

    def test_a_pickle_discloses_no_token(self):
        with embd.connect(self.server.addresses[0], token="0123456789abcdef0123456789abcdef") as client:
            with self.assertRaisesRegex(TypeError, "token"):
                pickle.dumps(client)
            self.assertIs(copy.deepcopy(client), client)

    def test_a_table_that_is_gone_or_another_one_is_named(self):
        written = pickle.dumps(self.bag)
        self.client.drop_table("bag")
        with self.assertRaises(embd.UnknownTableError):
            pickle.loads(written)
        self.client.create_table("bag", DIM + 1)
        with self.assertRaisesRegex(ValueError, "bag has 4 columns"):
            pickle.loads(written)

    def test_a_state_dict_names_tables(self):
        state = self.model.state_dict()
        self.assertEqual(state["bag._extra_state"], {"tables": [{"name": "bag", "dim": DIM}]})
        self.assertEqual(state["many._extra_state"], {"tables": [{"name": "many", "dim": DIM}]})
        self.model.load_state_dict(copy.deepcopy(state))
        state["rows._extra_state"] = {"tables": [{"name": "others", "dim": DIM}]}
        with self.assertRaisesRegex(ValueError, "refers to table others of 3 columns, this module to table rows"):
            self.model.load_state_dict(state)

    def test_weight_says_why_there_is_none(self):
        bag = embd.torch.EmbeddingBag(None, DIM, table=self.bag.table)
        with self.assertRaisesRegex(AttributeError, "num_embeddings is None"):
            _ = bag.weight
        self.assertFalse(hasattr(bag, "weight"))
        with self.assertRaisesRegex(AttributeError, "no attribute 'wait'"):
            _ = bag.wait


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    clusters.main()
