"""Table.set: a trainer changes its table's fields in its midst, and ends where numpy does in double precision. And
Client.load with `set`: a dump becomes tables of another definition."""
import os
import tempfile
import unittest

import numpy as np

import clusters
import embd
from embd_process import Embd


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


SOURCE = {"optimizer": embd.Optimizer("adagrad", lr=0.5, initial_accumulator=0.25), "combiner": "concat", "seed": 3,
          "initializer": embd.Initializer("uniform", a=-1, b=1)}


class TableCapacity(clusters.ClusterTest):
    shards = 3

    def test_a_bound_of_the_table_is_divided_between_its_shards(self):
        for partition, share in ("hash", 334), ("modulo", 334), ("slot", 400):
            fields = {"partition": partition, "slots": 5 if partition == "slot" else 1, "on_full": "error"}
            table = self.client.create_table(partition, 1, table_capacity=1000, **fields)
            self.assertEqual(table.schema.capacity, share, partition)
        with self.assertRaisesRegex(ValueError, "both given"):
            self.client.create_table("t", 1, table_capacity=10, capacity=10)


class LoadSet(clusters.ClusterTest):
    """A dump of 3 shards is loaded on 2 with fields set; beside it is a table that was created so, and its rows put."""

    shards = 3
    keys = np.arange(400)

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="embd-load-set-")
        self.addCleanup(folder.cleanup)
        self.dump = os.path.join(folder.name, "dump")

    def trained(self, **fields):
        table = self.client.create_table("t", 2, **{**SOURCE, **fields})
        table.put(self.keys, np.sin(np.arange(800)).reshape(400, 2))
        table.push(self.keys[::2], np.ones((200, 2)))
        table.push(self.keys[::3], np.ones((134, 2)))
        self.client.dump(self.dump)
        return table

    def same(self, client, created):
        """The loaded table, and the one that was created and filled, are one: now and after a push."""
        loaded = client.table("t")
        for _ in range(2):
            for a, b in zip(loaded.get(self.keys, states=True), created.get(self.keys, states=True)):
                np.testing.assert_array_equal(a, b)
            for table in loaded, created:
                table.push(self.keys[::5], np.full((80, loaded.dim), 0.25))

    def test_more_columns_another_dtype_and_other_parameters(self):
        old = self.trained()
        rows = old.get(self.keys, states=True)
        with Embd(shards=2) as server, embd.connect(server.addresses[0]) as client:
            client.load(self.dump, set={"dim": 5, "dtype": "bf16", "optimizer.lr": 0.125, "initializer.b": 2, "on_full": "evict_lru",
                                        "capacity": 1000})
            loaded = client.table("t")
            self.assertEqual((loaded.schema.dim, loaded.schema.optimizer.lr, loaded.schema.capacity), (5, 0.125, 1000))
            fields = {**SOURCE, "optimizer": embd.Optimizer("adagrad", lr=0.125, initial_accumulator=0.25),
                      "initializer": embd.Initializer("uniform", a=-1, b=2), "dtype": "bf16", "capacity": 1000, "on_full": "evict_lru"}
            client.create_table("t", 5, **fields)
            created = client.create_table("u", 5, **fields)
            created.push([], np.zeros((0, 5)))
            created.push([], np.zeros((0, 5)))
            first = created.pull(self.keys)
            states = np.full((400, 7), 0.25, np.float32)
            states[:, :2], states[:, 5:] = rows.states, [2, 0]  # used last when they were loaded, at step 2
            created.put(self.keys, np.concatenate([rows.values, first[:, 2:]], axis=1), states)
            self.same(client, created)

    def test_another_optimizer_begins_anew_and_tables_in_use_are_replaced(self):
        old = self.trained(create_on="pull")
        rows = old.get(self.keys)
        created = self.client.create_table("u", 2, **{**SOURCE, "optimizer": embd.Optimizer("adam", lr=0.5), "create_on": "pull"})
        for _ in range(2):
            created.push([], np.zeros((0, 2)))
        created.put(self.keys, rows.values)
        self.client.load(self.dump, replace=True, set={"optimizer": "adam"})
        with embd.connect(self.server.addresses[0]) as client:  # the other one's stream of pushes is forgotten
            self.same(client, client.table("u"))
        self.assertEqual(self.client.table("t").describe().optimizer.kind, "adam")

    def test_new_columns_of_slots_have_the_bound_of_their_slot(self):
        slots, offsets = self.keys % 2, np.arange(401)
        fields = {**SOURCE, "slots": 2, "slot_sizes": [400, 900], "partition": "slot", "initializer": embd.Initializer("uniform_slot")}
        stored = self.keys + 400 * slots
        table = self.client.create_table("t", 2, **fields)
        table.put(stored, np.ones((400, 2)), slots=slots)
        self.client.dump(self.dump)
        with Embd(shards=2) as server, embd.connect(server.addresses[0]) as client:
            client.load(self.dump, set={"dim": 6, "seed": 4})
            first = client.create_table("u", 6, **{**fields, "seed": 4}).pull(self.keys, offsets)
            self.assertTrue(first.any())
            loaded = client.table("t").get(stored, slots=slots).values
            np.testing.assert_array_equal(loaded, np.concatenate([np.ones((400, 2)), first[:, 2:]], axis=1))

    def test_what_cannot_be_set_is_refused_by_name_and_nothing_changes(self):
        self.trained()
        for fields, says in [
                ({"name": "u"}, "'name'.*keeps its name"),
                ({"dim": 1}, "'dim'.*allowed are 2 and more"),
                ({"dim": 4097}, "dim.*4096"),
                ({"slot_sizes": "4,4"}, "slot_sizes.*part of the keys"),
                ({"partition": "slot"}, "partition.*put its rows"),
                ({"optimizer.beta1": 0.5}, "table 't'.*beta1.*adagrad"),
                ({"optimizer": "adam", "optimizer.update": "lazy_global"}, "update.*lazy_global"),
                ({"on_full": "evict_lru"}, "capacity"),
                ({"speed": 1}, "unknown schema field 'speed'"),
                ({"durability": "durable"}, "durability.*no data directory")]:
            with Embd(shards=2) as server, embd.connect(server.addresses[0]) as client:
                with self.assertRaisesRegex(embd.Error, says):
                    client.load(self.dump, set=fields)
                self.assertEqual(client.tables(), [], fields)
        table = self.client.create_table("n", 2, admit_nonfinite=True, optimizer="adagrad")
        for value, state, says in (np.nan, 1, "column 1 of key 399 is nan"), (1, np.inf, "state 0 of key 399 is inf"):
            table.put(self.keys, np.ones((400, 2)), np.ones((400, 2)))
            table.put([399], [[1, value]], [[state, 1]])
            self.client.dump(f"{self.dump}-{value}", table="n")
            with Embd(shards=2) as server, embd.connect(server.addresses[0]) as client:
                with self.assertRaisesRegex(embd.Error, f"'admit_nonfinite' of table 'n'.*{says}"):
                    client.load(f"{self.dump}-{value}", set={"admit_nonfinite": False, "dim": 3})
                self.assertEqual(client.tables(), [])
        with self.assertRaisesRegex(embd.Error, "durability.*keep theirs"):
            self.client.load(self.dump, replace=True, set={"durability": "snapshot"})


if __name__ == "__main__":
    unittest.main()
