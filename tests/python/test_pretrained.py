"""Rows of torch.nn and TorchRec in tables, and back: from_pretrained, import_state_dict, export_state_dict."""
import unittest

import numpy as np

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

    def test_a_matrix_becomes_the_master_values_of_narrow_rows(self):
        for optimizer in SGD, embd.Optimizer("adagrad", lr=0.5, initial_accumulator=0.25):
            table = self.client.create_table(f"narrow-{optimizer.kind}", DIM, combiner="concat", optimizer=optimizer, dtype="e4m3",
                                             rounding="master")
            ours = embd.torch.Embedding(ROWS, DIM, table=table)
            embd.torch.import_state_dict(ours, {"weight": self.matrix})
            found = ours.table.get(range(ROWS), states=True)
            self.assertTrue(np.array_equal(found.states[:, -DIM:], self.matrix.numpy()))
            self.assertTrue((found.states[:, :-DIM] == np.float32(0.25)).all())
            self.assertFalse(np.array_equal(found.values, self.matrix.numpy()))

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


KINDS = {  # a table's optimizer, torch's with the same formula, whether that takes sparse gradients
    "sgd": (embd.Optimizer("sgd", lr=0.1), "SGD", {"lr": 0.1}, True),
    "momentum": (embd.Optimizer("momentum", lr=0.1, momentum=0.9, update="global"), "SGD", {"lr": 0.1, "momentum": 0.9}, False),
    "nesterov": (embd.Optimizer("nesterov", lr=0.1, momentum=0.8, update="global"), "SGD",
                 {"lr": 0.1, "momentum": 0.8, "nesterov": True}, False),
    "adagrad": (embd.Optimizer("adagrad", lr=0.1, eps=1e-10, lr_decay=0.01), "Adagrad", {"lr": 0.1, "lr_decay": 0.01}, True),
    "adam": (embd.Optimizer("adam", lr=0.05, beta1=0.8, beta2=0.99, eps=1e-8), "SparseAdam",
             {"lr": 0.05, "betas": (0.8, 0.99), "eps": 1e-8}, True),
    "rmsprop": (embd.Optimizer("rmsprop", lr=0.02, beta2=0.95, eps=1e-8, update="global"), "RMSprop",
                {"lr": 0.02, "alpha": 0.95, "eps": 1e-8}, False),
}


class OptimizerState(clusters.ClusterTest):
    """Rows trained in torch go on here with the state of their optimizer as they would have there, and back."""

    shards = 2

    def setUp(self):
        if torch is None:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        super().setUp()
        torch.manual_seed(3)
        self.matrix = torch.randn(ROWS, DIM)

    def theirs(self, kind):
        _, name, options, is_sparse = KINDS[kind]
        bag = torch.nn.EmbeddingBag.from_pretrained(self.matrix.clone(), freeze=False, mode="sum", sparse=is_sparse)
        return bag, getattr(torch.optim, name)(bag.parameters(), **options)

    def ours(self, kind, name):
        return embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", client=self.client, name=name, optimizer=KINDS[kind][0])

    def train(self, steps, seed, bag, optimizer=None):
        """The same batches, and gradients that depend on the rows."""
        draw = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            keys = torch.randint(0, ROWS, (12,), generator=draw)
            target = torch.randn(4, DIM, generator=draw)
            (bag(keys, torch.tensor([0, 3, 6, 9])) - target).pow(2).sum().backward()
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()
        embd.torch.flush(bag)

    def close(self, ours, theirs):
        torch.testing.assert_close(ours.weight, theirs.weight.detach(), rtol=2e-5, atol=2e-6)

    def test_training_goes_on_here_and_there_again(self):
        for kind in KINDS:
            with self.subTest(kind):
                theirs, optimizer = self.theirs(kind)
                self.train(5, 1, theirs, optimizer)
                ours, bare = self.ours(kind, f"on-{kind}"), self.ours(kind, f"bare-{kind}")
                embd.torch.import_state_dict(ours, theirs.state_dict(), optimizer=optimizer.state_dict(), parameters=["weight"])
                embd.torch.import_state_dict(bare, theirs.state_dict())
                self.train(4, 2, theirs, optimizer)
                self.train(4, 2, ours)
                self.train(4, 2, bare)
                self.close(ours, theirs)
                if kind != "sgd":
                    self.assertFalse(torch.allclose(bare.weight, theirs.weight, rtol=1e-3, atol=1e-4), "state makes no difference")
                again, optimizer = self.theirs(kind)
                again.load_state_dict(embd.torch.export_state_dict(ours))
                optimizer.load_state_dict(embd.torch.export_optimizer_state(ours))
                self.train(3, 3, ours)
                self.train(3, 3, again, optimizer)
                self.close(ours, again)

    def test_fused_states_of_torchrec_go_on(self):
        """FBGEMM's row-wise Adagrad, as its formula says: the state is one number a row."""
        rowwise = embd.Optimizer("rowwise_adagrad", lr=0.1, eps=1e-8)
        config = embd.torch.EmbeddingBagConfig(ROWS, DIM, "items", feature_names=["x"])
        ebc = embd.torch.EmbeddingBagCollection([config], client=self.client, optimizer=rowwise)
        model, name = torch.nn.ModuleDict({"ebc": ebc}), "ebc.embedding_bags.items.weight"
        momentum = torch.rand(ROWS)
        fused = {"state": {name: {"items.momentum1": momentum}}, "param_groups": [{"params": [name], "lr": 0.1}]}
        embd.torch.import_state_dict(model, {name: self.matrix}, optimizer=fused)
        exported = embd.torch.export_optimizer_state(model)
        self.assertTrue(torch.equal(exported["state"][name]["items.momentum1"], momentum))
        self.assertEqual(exported["param_groups"][0]["params"], [name])
        gradient = torch.randn(ROWS, DIM)
        ebc.tables[0].push(range(ROWS), gradient.numpy(), raw=True)
        momentum = momentum + gradient.pow(2).mean(1)
        expected = self.matrix - 0.1 * gradient / (momentum.sqrt() + 1e-8)[:, None]
        torch.testing.assert_close(torch.from_numpy(ebc.tables[0].get(range(ROWS)).values), expected)

    def test_what_does_not_map_is_named_before_a_row_is_written(self):
        theirs, optimizer = self.theirs("adam")
        self.train(2, 1, theirs, optimizer)
        state, ours = optimizer.state_dict(), self.ours("adam", "wrong-adam")

        def changed(**fields):
            return {**state, "param_groups": [{**state["param_groups"][0], **fields}]}

        def stated(**entry):
            return {**state, "state": {0: {**state["state"][0], **entry}}}

        adam, adagrad, local = (self.ours(kind, f"wrong-{kind}2") for kind in ("adam", "adagrad", "sgd"))
        adam.source.tables[0].push(range(3), torch.zeros(3, DIM).numpy(), raw=True)
        for _ in range(2):
            adam.source.tables[0].push([], torch.zeros(0, DIM).numpy(), raw=True)
        momentum = embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", client=self.client, name="local",
                                           optimizer=embd.Optimizer("momentum", lr=0.1))
        wrong = [(ours, changed(betas=(0.9, 0.99)), r"betas is \(0.9, 0.99\); table wrong-adam has beta1 and beta2 0.8, 0.99"),
                 (ours, changed(amsgrad=True), "amsgrad is True"), (ours, changed(amsgrad=False), "Adam steps all rows"),
                 (ours, changed(weight_decay=0.1), "weight_decay is 0.1"),
                 (ours, stated(max_exp_avg_sq=torch.zeros(ROWS, DIM)), "max_exp_avg_sq"),
                 (ours, stated(exp_avg=torch.zeros(ROWS, 1)), r"exp_avg is \(30, 1\); \(30, 4\) is expected"),
                 (ours, stated(exp_avg=torch.full((ROWS, DIM), float("nan"))), "not finite"),
                 (adagrad, state, "torch.optim.Adagrad, sum"), (local, state, "torch.optim.SGD, nothing"),
                 (momentum, state, "update: local; torch.optim.SGD steps as update: global"),
                 (adam, state, "has made 3 steps, the optimizer 2")]
        for module, optimizer_state, says in wrong:
            with self.assertRaisesRegex((ValueError, KeyError), says):
                embd.torch.import_state_dict(module, theirs.state_dict(), optimizer=optimizer_state, parameters=["weight"])
        with self.assertRaisesRegex(ValueError, "pass parameters"):
            embd.torch.import_state_dict(ours, theirs.state_dict(), optimizer=state)
        with self.assertRaisesRegex(KeyError, "no parameter weight; it has other"):
            embd.torch.import_state_dict(ours, theirs.state_dict(), optimizer=state, parameters=["other"])
        with self.assertRaisesRegex(embd.InvalidError, "put step: 1.*has made 3"):
            adam.source.tables[0].put([1], torch.zeros(1, DIM).numpy(), step=1)
        for module in ours, adagrad, local, momentum:
            self.assertFalse(module.source.tables[0].get(range(ROWS)).found.any())


if __name__ == "__main__":
    clusters.main()
