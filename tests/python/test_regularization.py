"""Clipping, weight decay, limits of rows, and the optimizers that look at whole rows: tables step as PyTorch's own
optimizers do, where PyTorch has one, and as the formulas of FBGEMM and of papers in float64, on one shard and three, and
after a replay of the journal. They are set while a table lives, shown, and refused where they make no sense."""
import os
import shutil
import tempfile
import unittest

import numpy as np

try:
    import torch
except ImportError:
    torch = None

import clusters
import embd
from embd_process import Embd

DIM, STEPS = 5, 30
KEYS = np.arange(24, dtype=np.uint64)
FIRST = embd.Initializer("normal", 0.0, 0.5)


def gradients(step, n=len(KEYS)):
    return np.random.default_rng(step).standard_normal((n, DIM)).astype(np.float32)


def norms(x):
    return np.sqrt((x * x).sum(axis=1, keepdims=True))


class Tables(clusters.ClusterTest):
    def fresh(self, name, kind, **parameters):
        """A table, and the first values of its rows."""
        lr = parameters.pop("lr", 0.05)
        table = self.client.create_table(name, DIM, optimizer=embd.Optimizer(kind, lr=lr, **parameters), initializer=FIRST)
        return table, table.pull(KEYS)


class PyTorch(Tables):
    def setUp(self):
        if torch is None:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        super().setUp()

    def compare(self, name, fields, make, before=lambda rows: None, after=lambda rows: None, rtol=2e-5):
        """`make`: torch's optimizer of a list of rows; `before` and `after` each of its steps."""
        table, first = self.fresh(name, **fields)
        rows = [torch.nn.Parameter(torch.from_numpy(row.copy())) for row in first]
        optimizer = make(rows)
        for t in range(1, STEPS + 1):
            table.push(KEYS, gradients(t))
            for row, gradient in zip(rows, gradients(t)):
                row.grad = torch.from_numpy(gradient.copy())
            before(rows)
            optimizer.step()
            with torch.no_grad():
                after(rows)
        expected = torch.stack(rows).detach().numpy()
        np.testing.assert_allclose(table.pull(KEYS), expected, rtol=rtol, atol=rtol / 10, err_msg=name)

    def test_weight_decay(self):
        self.compare("sgd-l2", {"kind": "sgd", "weight_decay": 0.1},
                     lambda rows: torch.optim.SGD(rows, lr=0.05, weight_decay=0.1))
        self.compare("rmsprop-l2", {"kind": "rmsprop", "eps": 1e-8, "weight_decay": 0.1},
                     lambda rows: torch.optim.RMSprop(rows, lr=0.05, alpha=0.9, eps=1e-8, weight_decay=0.1))
        self.compare("adam-l2", {"kind": "adam", "eps": 1e-12, "weight_decay": 0.1},
                     lambda rows: torch.optim.Adam(rows, lr=0.05, eps=1e-12, weight_decay=0.1))
        self.compare("adagrad-l2", {"kind": "adagrad", "eps": 1e-10, "weight_decay": 0.1},
                     lambda rows: torch.optim.Adagrad(rows, lr=0.05, weight_decay=0.1))

    def test_adamw(self):
        self.compare("adamw", {"kind": "adam", "eps": 1e-12, "weight_decay": 0.2, "decay": "decoupled"},
                     lambda rows: torch.optim.AdamW(rows, lr=0.05, eps=1e-12, weight_decay=0.2))

    def test_amsgrad(self):
        for eps in (1e-8, 0.1):
            self.compare(f"amsgrad-{int(eps * 10)}", {"kind": "amsgrad", "eps": eps},
                         lambda rows, eps=eps: torch.optim.Adam(rows, lr=0.05, eps=eps, amsgrad=True))
        self.compare("amsgradw", {"kind": "amsgrad", "weight_decay": 0.2, "decay": "decoupled", "eps": 1e-8},
                     lambda rows: torch.optim.AdamW(rows, lr=0.05, eps=1e-8, weight_decay=0.2, amsgrad=True))

    def test_adagrad_with_lr_decay(self):
        self.compare("lr-decay", {"kind": "adagrad", "eps": 1e-10, "lr_decay": 0.3, "initial_accumulator": 0.1},
                     lambda rows: torch.optim.Adagrad(rows, lr=0.05, lr_decay=0.3, initial_accumulator_value=0.1))

    def test_clipping(self):
        def by_value(rows):
            torch.nn.utils.clip_grad_value_(rows, 0.5)

        def by_norm(rows):
            for row in rows:  # torch divides by norm + 1e-6
                torch.nn.utils.clip_grad_norm_([row], 1.5)

        def both(rows):
            by_value(rows)
            by_norm(rows)

        def sgd(rows):
            return torch.optim.SGD(rows, lr=0.05)

        self.compare("value", {"kind": "sgd", "clip_value": 0.5}, sgd, by_value)
        self.compare("norm", {"kind": "sgd", "clip_norm": 1.5}, sgd, by_norm)
        self.compare("both", {"kind": "adagrad", "eps": 1e-10, "clip_value": 0.5, "clip_norm": 1.5},
                     lambda rows: torch.optim.Adagrad(rows, lr=0.05), both)

    def test_limits_of_rows(self):
        def renorm(rows):
            for row in rows:
                row.copy_(torch.renorm(row[None], 2, 0, 0.75)[0])

        def clamp(rows):
            for row in rows:
                row.clamp_(-0.1, 0.3)

        def sgd(rows):
            return torch.optim.SGD(rows, lr=0.5)

        self.compare("max-norm", {"kind": "sgd", "lr": 0.5, "max_norm": 0.75}, sgd, after=renorm)
        self.compare("bounds", {"kind": "sgd", "lr": 0.5, "weight_min": -0.1, "weight_max": 0.3}, sgd, after=clamp)


class Formulas(Tables):
    def train(self, table, w, step, some=lambda t: np.arange(len(KEYS))):
        """`step(t, w, g, rows)` makes w of the rows that push t names, in float64."""
        w = w.astype(np.float64)
        for t in range(1, STEPS + 1):
            rows = some(t)
            g = gradients(t, len(rows))
            table.push(KEYS[rows], g)
            w[rows] = step(t, w[rows], g.astype(np.float64), rows)
        np.testing.assert_allclose(table.pull(KEYS), w, rtol=5e-5, atol=5e-6)

    def test_partial_rowwise_adam(self):
        table, w = self.fresh("t", "partial_rowwise_adam", eps=0.01, weight_decay=0.3, decay="decoupled")
        m, v = np.zeros(w.shape), np.zeros((len(w), 1))

        def step(t, w, g, rows):  # FBGEMM's
            m[rows] = 0.9 * m[rows] + 0.1 * g
            v[rows] = 0.999 * v[rows] + 0.001 * (g * g).mean(axis=1, keepdims=True)
            v_hat = v[rows] / (1 - 0.999**t)
            return w - 0.05 * (m[rows] / (1 - 0.9**t) / (np.sqrt(v_hat) + 0.01) + 0.3 * w)

        self.train(table, w, step, lambda t: np.arange(t % 3, len(KEYS), 2))

    def test_lamb(self):
        table, w = self.fresh("t", "lamb", eps=0.01, weight_decay=0.3, decay="decoupled")
        m, v = np.zeros(w.shape), np.zeros(w.shape)

        def step(t, w, g, rows):  # You et al. 2020, algorithm 2, a row as its layer
            m[rows] = 0.9 * m[rows] + 0.1 * g
            v[rows] = 0.999 * v[rows] + 0.001 * g * g
            r = m[rows] / (1 - 0.9**t) / (np.sqrt(v[rows] / (1 - 0.999**t)) + 0.01) + 0.3 * w
            return w - 0.05 * norms(w) / norms(r) * r

        self.train(table, w, step, lambda t: np.arange(t % 3, len(KEYS), 2))

    def test_counter_adagrad(self):
        for decay in ("l2", "decoupled"):
            table, w = self.fresh(decay, "counter_adagrad", eps=0.01, weight_decay=0.02, decay=decay, counter_halflife=4.0)
            v, count, before = (np.zeros((len(w), 1)) for _ in range(3))

            def step(t, w, g, rows, v=v, count=count, before=before, decay=decay):  # FBGEMM's
                delta = np.where(before[rows] == 0, 1, t - before[rows])
                count[rows] = 1 + np.exp(-delta * np.log(2) / 4) * count[rows]
                before[rows] = t
                squared = g + 0.02 * w if decay == "l2" else g
                v[rows] += (squared * squared).mean(axis=1, keepdims=True)
                rate = 0.05 / (np.sqrt(v[rows]) + 0.01)
                return (1 - 4 / count[rows] * 0.02 * (rate if decay == "l2" else 0.05)) * w - rate * g

            self.train(table, w, step, lambda t: np.arange(t % 3, len(KEYS), 2))

    def test_rowwise_adagrad_with_weight_decay_and_max_norm(self):
        table, w = self.fresh("t", "rowwise_adagrad", eps=0.01, weight_decay=0.2, max_norm=1.0)
        v = np.zeros((len(w), 1))

        def step(_, w, g, rows):  # FBGEMM's, weight_decay_mode 1
            g = g + 0.2 * w
            v[rows] += (g * g).mean(axis=1, keepdims=True)
            w = w - 0.05 * g / (np.sqrt(v[rows]) + 0.01)
            return w * np.minimum(1, 1.0 / norms(w))

        self.train(table, w, step)

    def test_rows_that_no_push_names_pay_their_decay_later(self):
        """All rows decay at every push; a row shows it from its next push on (FBGEMM's DECOUPLE_GLOBAL)."""
        table, w = self.fresh("t", "sgd", weight_decay=0.5, decay="decoupled_global")
        last = np.zeros((len(w), 1))

        def step(t, w, g, rows):
            k = np.where(last[rows] == 0, 1, t - last[rows])
            last[rows] = t
            return w * (1 - 0.05 * 0.5) ** k - 0.05 * g

        self.train(table, w, step, lambda t: np.arange(t % 7, len(KEYS), 3))

    def test_one_shard_and_three_and_a_replay_give_the_same_bits(self):
        fields = [("sgd", {"clip_norm": 0.5, "weight_decay": 0.1, "decay": "decoupled_global"}),
                  ("amsgrad", {"clip_value": 0.5, "max_norm": 0.5}), ("lamb", {"weight_min": -0.1, "weight_max": 0.2}),
                  ("counter_adagrad", {"counter_halflife": 3.0, "weight_decay": 0.1})]

        def train(client):
            rows = []
            for kind, more in fields:
                table = client.create_table(kind.replace("_", "-"), DIM, initializer=FIRST, durability="durable",
                                            optimizer=embd.Optimizer(kind, lr=0.05, **more))
                for t in range(1, 8):
                    table.push(KEYS[t % 3::2], gradients(t, len(KEYS[t % 3::2])))
                table.push(KEYS, gradients(9), lr=0.25)
                rows.append(table.pull(KEYS))
            return rows

        found = []
        for shards in (1, 3):
            folder = tempfile.mkdtemp(prefix="embd-regularization-")
            self.addCleanup(shutil.rmtree, folder)
            with Embd("--data-dir", folder, shards=shards) as server:
                with embd.connect(server.addresses[0]) as client:
                    found.append(train(client))
                server.process.kill()
                server.process.wait()
            with Embd("--data-dir", folder, shards=shards) as server:
                with embd.connect(server.addresses[0]) as client:
                    found.append([client.table(kind.replace("_", "-")).pull(KEYS) for kind, _ in fields])
        for other in found[1:]:
            for a, b in zip(found[0], other):
                np.testing.assert_array_equal(a, b)


class Definitions(Tables):
    def test_they_are_shown_and_set_while_the_table_lives(self):
        table = self.client.create_table("t", 2, initializer=embd.Initializer("constant", 1.0), combiner="concat",
                                         optimizer=embd.Optimizer("sgd", lr=1.0, clip_value=0.5))
        self.assertEqual(table.schema.optimizer.clip_value, 0.5)
        self.assertEqual((table.schema.optimizer.decay, table.schema.optimizer.weight_decay), ("l2", 0.0))
        key, ones = np.array([7], np.uint64), np.ones((1, 2), np.float32)
        table.push(key, ones)
        np.testing.assert_array_equal(table.pull(key), 0.5 * ones)
        table.set(optimizer={"clip_value": 0.25, "max_norm": 0.0})
        table.push(key, ones)
        np.testing.assert_array_equal(table.pull(key), 0.25 * ones)
        table.set(optimizer={"clip_value": 0.0, "weight_decay": 1.0})
        self.assertEqual(table.schema.optimizer.weight_decay, 1.0)
        table.push(key, ones)  # g = 1 + 1 * 0.25
        np.testing.assert_array_equal(table.pull(key), -1.0 * ones)
        with self.assertRaisesRegex(embd.Error, "optimizer.decay"):
            table.set(optimizer={"decay": "decoupled"})

    def test_what_makes_no_sense_is_refused(self):
        for fields, text in (
                ({"kind": "sgd", "clip_value": -1.0}, "optimizer.clip_value' is -1, allowed are 0 to"),
                ({"kind": "sgd", "weight_min": 0.5, "weight_max": 0.25}, "weight_min' is 0.5, above optimizer.weight_max, 0.25"),
                ({"kind": "sgd", "lr": 1.0, "weight_decay": 2.0, "decay": "decoupled"}, "times optimizer.lr it is 2, allowed are 0"),
                ({"kind": "sgd", "lr_decay": 0.5}, "lr_decay' is not a parameter"),
                ({"kind": "adam", "update": "global", "clip_norm": 1.0}, "optimizer.update' is 'global'"),
                ({"kind": "amsgrad", "update": "lazy_global"}, "lazy_global"),
                ({"kind": "lamb", "decay": "decoupled_global"}, "lamb does not support"),
                ({"kind": "ftrl", "decay": "decoupled"}, "ftrl computes each w"),
                ({"kind": "counter_adagrad", "counter_halflife": 0.5}, "counter_halflife' is 0.5, allowed are 0 and 1 to")):
            with self.subTest(text), self.assertRaisesRegex((embd.Error, ValueError), text):
                self.client.create_table("no", 2, optimizer=embd.Optimizer(**fields))


class FormulasOnThreeShards(Formulas):
    shards = 3


if __name__ == "__main__":
    clusters.main()
