"""Rows of torch.nn and TorchRec in tables, and back: from_pretrained, import_state_dict, export_state_dict."""
import unittest

try:
    import torch
    import embd.torch
except ImportError:
    torch = None

import clusters
import embd

ROWS, DIM = 30, 4
SGD = embd.Optimizer("sgd", lr=0.5)


class Pretrained(clusters.ClusterTest):
    shards = 2

    def setUp(self):
        if torch is None:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        super().setUp()
        torch.manual_seed(3)
        self.matrix = torch.randn(ROWS, DIM)

    def home(self, name):
        return {"client": self.client, "name": name, "optimizer": SGD}

    def test_a_bag_has_the_rows_and_is_frozen(self):
        keys, offsets = torch.tensor([1, 2, 2, 29]), torch.tensor([0, 3])
        bag = embd.torch.EmbeddingBag.from_pretrained(self.matrix, mode="sum", **self.home("bag"))
        theirs = torch.nn.EmbeddingBag.from_pretrained(self.matrix, mode="sum")
        out = bag(keys, offsets)
        torch.testing.assert_close(out, theirs(keys, offsets))  # shards add their rows first
        self.assertFalse(out.requires_grad)
        self.assertTrue(torch.equal(bag.weight, self.matrix))

    def test_rows_that_are_not_frozen_train_as_those_of_torch(self):
        keys = torch.tensor([4, 9, 4])
        ours = embd.torch.Embedding.from_pretrained(self.matrix, freeze=False, **self.home("rows"))
        theirs = torch.nn.Embedding.from_pretrained(self.matrix.clone(), freeze=False)
        step = torch.optim.SGD(theirs.parameters(), lr=0.5)
        for _ in range(3):
            for module in ours, theirs:
                module(keys).pow(2).sum().backward()
            step.step()
            step.zero_grad()
            ours.flush()
        torch.testing.assert_close(ours.weight, theirs.weight.detach())

    def test_rows_that_there_were_are_replaced(self):
        embd.torch.Embedding.from_pretrained(self.matrix, **self.home("again"))
        ours = embd.torch.Embedding.from_pretrained(-self.matrix, **self.home("again"))
        self.assertTrue(torch.equal(ours.weight, -self.matrix))

    def test_padding_is_zeros_or_refused(self):
        with self.assertRaisesRegex(ValueError, "row 3 is padding_idx"):
            embd.torch.Embedding.from_pretrained(self.matrix, padding_idx=3, **self.home("padded"))
        self.matrix[3] = 0
        ours = embd.torch.Embedding.from_pretrained(self.matrix, padding_idx=3, **self.home("padded"))
        theirs = torch.nn.Embedding.from_pretrained(self.matrix, padding_idx=3)
        keys = torch.tensor([[3, 1], [0, 3]])
        self.assertTrue(torch.equal(ours(keys), theirs(keys)))
        for wrong in {"max_norm": 1.0}, {"scale_grad_by_freq": True}:
            with self.assertRaises(NotImplementedError):
                embd.torch.Embedding.from_pretrained(self.matrix, **wrong, **self.home("padded"))

    def pair(self):
        """A model of torch.nn, and one of embd.torch with modules of the same names."""
        theirs = torch.nn.ModuleDict({"bag": torch.nn.EmbeddingBag(ROWS, DIM, mode="sum"),
                                      "rows": torch.nn.Embedding(ROWS, DIM, padding_idx=0), "dense": torch.nn.Linear(DIM, 2)})
        ours = torch.nn.ModuleDict({"bag": embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", **self.home("bag")),
                                    "rows": embd.torch.Embedding(ROWS, DIM, padding_idx=0, **self.home("rows")),
                                    "dense": torch.nn.Linear(DIM, 2)})
        return theirs, ours

    def outputs(self, model):
        keys = torch.tensor([0, 5, 29, 5])
        return model["dense"](torch.cat([model["bag"](keys, torch.tensor([0, 1])), model["rows"](keys)]))

    def test_a_checkpoint_of_torch_comes_and_goes(self):
        theirs, ours = self.pair()
        embd.torch.import_state_dict(ours, theirs.state_dict())
        self.assertTrue(torch.equal(self.outputs(ours), self.outputs(theirs)))
        self.outputs(ours).sum().backward()
        embd.torch.flush(ours)
        state = embd.torch.export_state_dict(ours)
        self.assertEqual(set(state), set(theirs.state_dict()))
        theirs.load_state_dict(state)
        self.assertTrue(torch.equal(self.outputs(ours), self.outputs(theirs)))

    def test_a_checkpoint_of_torchrec_has_the_names_of_its_tables(self):
        config = embd.torch.EmbeddingBagConfig(ROWS, DIM, "items", feature_names=["x"])
        model = torch.nn.ModuleDict({"ebc": embd.torch.EmbeddingBagCollection([config], client=self.client, optimizer=SGD)})
        embd.torch.import_state_dict(model, {"ebc.embedding_bags.items.weight": self.matrix})
        self.assertTrue(torch.equal(torch.from_numpy(model["ebc"].tables[0].get(range(ROWS)).values), self.matrix))
        state = embd.torch.export_state_dict(model)
        self.assertEqual(list(state), ["ebc.embedding_bags.items.weight"])
        self.assertTrue(torch.equal(state["ebc.embedding_bags.items.weight"], self.matrix))

    def test_what_does_not_fit_is_named_before_anything_is_written(self):
        theirs, ours = self.pair()
        before = embd.torch.export_state_dict(ours)
        before = {key: value.clone() for key, value in before.items()}
        whole = theirs.state_dict()
        wrong = [({**whole, "rows.weight": whole["rows.weight"][1:]}, ValueError, r"rows.weight is \(29, 4\)"),
                 ({**whole, "rows.weight": whole["rows.weight"] / 0}, ValueError, "rows.weight has values"),
                 ({**whole, "rows.weight": [1]}, TypeError, "rows.weight is a list"),
                 ({key: value for key, value in whole.items() if key != "bag.weight"}, KeyError, "bag.weight"),
                 ({**whole, "another": torch.zeros(1)}, RuntimeError, "another")]
        for state, kind, says in wrong:
            with self.assertRaisesRegex(kind, says):
                embd.torch.import_state_dict(ours, state)
            for key, value in embd.torch.export_state_dict(ours).items():
                if not key.startswith("dense"):
                    self.assertTrue(torch.equal(value, before[key]), key)
        embd.torch.import_state_dict(ours, {"rows.weight": whole["rows.weight"]}, strict=False)
        self.assertTrue(torch.equal(ours["rows"].weight, whole["rows.weight"]))


if __name__ == "__main__":
    clusters.main()
