"""Table.set: a trainer changes its table's fields in its midst, and ends where numpy does in double precision."""
import unittest

import numpy as np

import clusters
import embd


class Adam:
    """One parameter of a whole table: bias correction by the table's pushes, as SEMANTICS.md has it."""

    def __init__(self, rows, lr):
        self.w, self.m, self.v = rows.astype(np.float64), np.zeros_like(rows, np.float64), np.zeros_like(rows, np.float64)
        self.lr, self.beta1, self.beta2, self.eps, self.t = lr, 0.9, 0.999, 1e-7, 0

    def step(self, g):
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * g
        self.v = self.beta2 * self.v + (1 - self.beta2) * g * g
        corrected = self.lr * np.sqrt(1 - self.beta2 ** self.t) / (1 - self.beta1 ** self.t)
        self.w -= corrected * self.m / (np.sqrt(self.v) + self.eps)


class Set(clusters.ClusterTest):
    shards = 3

    def test_a_trainer_that_warms_up_and_decays_ends_where_numpy_does(self):
        keys, goal = np.arange(50), np.linspace(-1, 1, 200).reshape(50, 4)
        table = self.client.create_table("warm", 4, optimizer=embd.Optimizer("adam", lr=0.1), combiner="concat")
        reference = Adam(table.pull(keys), 0.1)
        for step in range(60):
            if step % 5 == 0:
                lr = np.float32(0.1 * min(1, (step + 5) / 20) * 0.97 ** step)
                beta1 = np.float32(0.9 if step < 30 else 0.8)
                steps = table.set(optimizer={"lr": lr, "beta1": beta1})
                self.assertEqual(steps, [step] * 3)
                self.assertEqual((table.schema.optimizer.lr, table.schema.optimizer.beta1), (lr, beta1))
                reference.lr, reference.beta1 = np.float64(lr), np.float64(beta1)
            gradient = (table.pull(keys) - goal).astype(np.float32)
            table.push(keys, gradient)
            reference.step(gradient.astype(np.float64))
        np.testing.assert_allclose(table.pull(keys), reference.w, rtol=0, atol=1e-5)
        self.assertEqual(table.describe(), table.schema)
        with embd.connect(self.server.addresses[0]) as script:
            again = script.create_table("warm", 4, optimizer=embd.Optimizer("adam", lr=0.1), combiner="concat")
            self.assertEqual(again.schema.optimizer.lr, table.schema.optimizer.lr)

    def test_what_cannot_be_set_is_refused_and_nothing_changes(self):
        table = self.client.create_table("fixed", 2)
        before = table.describe()
        for fields, kind, says in [({"dim": 3}, embd.UnsupportedError, "'dim' is fixed"),
                                   ({"optimizer.lr": 1.0, "optimizer.beta1": 0.5}, embd.InvalidError, "not a parameter"),
                                   ({"optimizer": {"lr": float("nan")}}, embd.InvalidError, "expected a finite number"),
                                   ({}, embd.InvalidError, "no field"), ({"optimizer": "adam"}, embd.UnsupportedError, "fixed")]:
            with self.assertRaisesRegex(kind, says):
                table.set(fields)
            self.assertEqual((table.describe(), table.schema), (before, before))
        self.assertEqual(table.set({"optimizer.lr": 0.25}, admit_nonfinite=True), [0] * 3)
        self.assertEqual((table.schema.optimizer.lr, table.schema.admit_nonfinite), (0.25, True))
        with self.assertRaises(embd.UnknownTableError):
            self.client.set_table("none", {"optimizer.lr": 1})

    def test_a_lower_capacity_is_refused_by_all_shards_if_the_rows_of_one_have_not_expired(self):
        table = self.client.create_table("expiring", 2, partition="modulo", capacity=6, on_full="evict_ttl", ttl=3,
                                         combiner="concat")
        keys, ones = np.arange(18), np.ones((18, 2), np.float32)
        table.push(keys, ones)
        for _ in range(3):
            table.push(keys[keys % 3 == 1], ones[:6])  # shard 1 keeps its rows fresh; those of 0 and 2 have expired
        before, rows = table.describe(), table.pull(keys, zero_missing=True)
        for _ in range(2):
            with self.assertRaisesRegex(embd.FullError, "6 rows, and with on_full 'evict_ttl' 0 of them may go"):
                table.set(capacity=3)
            self.assertEqual((table.describe(), table.schema), (before, before))
            self.assertEqual(sum(shard.tables["expiring"]["evicted"] for shard in self.client.stats()), 0)
            np.testing.assert_array_equal(table.pull(keys, zero_missing=True), rows)
        table.push([1], ones[:1])
        for _ in range(2):
            table.push([], ones[:0])
        table.set(capacity=5)  # by now five rows of shard 1 have expired too
        self.assertEqual(int(np.count_nonzero(table.pull(keys, zero_missing=True).any(axis=1))), 15)


if __name__ == "__main__":
    unittest.main()
