"""Pushes with a learning rate of their own: the steps are those of a table with that rate, by formulas in numpy, on one
shard and three, after a replay of the journal, and in rounds of several workers."""
import os
import shutil
import tempfile
import threading
import unittest

import numpy as np

import clusters
import embd
from embd_process import Embd

DIM = 3
KEYS = np.arange(40, dtype=np.uint64)
RATES = [None, 0.5, 0.125, None, 2.0, 0.25, 0.01]


def gradients(step):
    return np.random.default_rng(step).standard_normal((len(KEYS), DIM)).astype(np.float32)


def by_formula(kind, lr, n):
    """The rows after n steps, in float64."""
    w, a, b = (np.zeros((len(KEYS), DIM)) for _ in range(3))
    n_sum = np.zeros_like(w)
    for t in range(1, n + 1):
        g, rate = gradients(t).astype(np.float64), lr if RATES[t % len(RATES)] is None else RATES[t % len(RATES)]
        if kind == "sgd":
            w -= rate * g
        elif kind == "adagrad":
            a += g * g
            w -= rate * g / (np.sqrt(a) + 1e-7)
        elif kind == "adam":
            a, b = 0.9 * a + 0.1 * g, 0.999 * b + 0.001 * g * g
            w -= rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * a / (np.sqrt(b) + 1e-7)
        elif kind == "ftrl":
            b += g - (np.sqrt(n_sum + g * g) - np.sqrt(n_sum)) / rate * w
            n_sum += g * g
            w = -b / ((1.0 + np.sqrt(n_sum)) / rate)
    return w


def fields(kind, lr):
    more = {"adagrad": {"eps": 1e-7}, "adam": {"eps": 1e-7, "beta1": 0.9, "beta2": 0.999},
            "ftrl": {"eps": 0.0, "beta": 1.0}}.get(kind, {})
    return {"optimizer": embd.Optimizer(kind, lr=lr, **more), "initializer": embd.Initializer("constant", 0.0)}


def train(table, first, end, **options):
    for t in range(first, end):
        table.push(KEYS, gradients(t), lr=RATES[t % len(RATES)], **options)


class Rates(clusters.ClusterTest):
    def test_each_step_has_the_rate_of_its_push(self):
        for kind in ("sgd", "adagrad", "adam", "ftrl"):
            with self.subTest(kind):
                table = self.client.create_table(kind, DIM, **fields(kind, 0.1))
                train(table, 1, 15)
                np.testing.assert_allclose(table.pull(KEYS), by_formula(kind, 0.1, 14), rtol=2e-5, atol=2e-6)

    def test_it_is_a_step_of_a_table_with_that_rate(self):
        for kind in ("sgd", "momentum", "nesterov", "adagrad", "rowwise_adagrad", "adam", "rmsprop", "ftrl"):
            one = self.client.create_table(f"{kind}-1", DIM, optimizer=embd.Optimizer(kind, lr=0.5))
            other = self.client.create_table(f"{kind}-2", DIM, optimizer=embd.Optimizer(kind, lr=0.1))
            for t in range(1, 6):
                one.push(KEYS, gradients(t))
                other.push(KEYS, gradients(t), lr=0.5)
            np.testing.assert_array_equal(one.pull(KEYS), other.pull(KEYS))

    def test_tables_of_one_push_have_rates_of_their_own(self):
        tables = [self.client.create_table(name, DIM, **fields("sgd", 1.0)) for name in ("a", "b", "c")]
        ones = np.ones((len(KEYS), DIM), np.float32)
        parts = [embd.Part(table, KEYS, values=ones, lr=lr) for table, lr in zip(tables, (0.5, None, 0.25))]
        self.client.push(parts)
        self.client.push_start(parts).wait()
        for table, value in zip(tables, (-1.0, -2.0, -0.5)):
            np.testing.assert_array_equal(table.pull(KEYS), value * ones)

    def test_no_rate_but_a_finite_one_above_0(self):
        table = self.client.create_table("t", DIM, **fields("sgd", 1.0))
        for bad in (0.0, -0.5, float("nan"), float("inf"), 1e39, 1e-60):
            with self.assertRaisesRegex(ValueError, "lr is"):
                table.push(KEYS, gradients(1), lr=bad)
        self.assertEqual(self.client.stats()[0].tables["t"]["steps"], 0)
        self.assertFalse(table.pull(KEYS).any())

    def workers(self, lrs, job):
        """Each worker pushes ones with its rate; what became of it."""
        table = self.client.create_table(job, DIM, **fields("sgd", 1.0))
        outcome, ones = [None] * len(lrs), np.ones((len(KEYS), DIM), np.float32)

        def work(rank, clock):
            try:
                clock.client.table(job).push(KEYS, ones, lr=lrs[rank], round=clock)
                outcome[rank] = "stepped"
            except embd.Error as error:
                outcome[rank] = error
                clock.leave()  # so that nobody waits for this worker

        clients = [embd.connect(self.server.addresses[0]) for _ in lrs]
        clocks = [embd.Clock(client, job, worker=i, workers=len(lrs)) for i, client in enumerate(clients)]
        threads = [threading.Thread(target=work, args=item) for item in enumerate(clocks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()
        return table, outcome

    def test_a_round_has_one_rate(self):
        table, outcome = self.workers([0.25, 0.25, 0.25], "equal")
        self.assertEqual(outcome, ["stepped"] * 3)
        np.testing.assert_array_equal(table.pull(KEYS), np.full((len(KEYS), DIM), -0.25, np.float32))

    def test_workers_of_a_round_that_differ_are_refused(self):
        table, outcome = self.workers([0.25, 0.5], "different")
        refused = [error for error in outcome if isinstance(error, embd.InvalidError)]
        self.assertTrue(refused, outcome)
        for said in ("'lr'", "0.25", "0.5", "same"):
            self.assertIn(said, str(refused[0]))
        if self.shards == 1:  # which comes first may differ by shard
            self.assertEqual(outcome.count("stepped"), 1)
            rate = 0.25 if outcome[0] == "stepped" else 0.5
            np.testing.assert_array_equal(table.pull(KEYS), np.full((len(KEYS), DIM), -rate, np.float32))

    def test_the_tables_own_rate_is_another_one_too(self):
        _, outcome = self.workers([None, 0.5], "absent")
        refused = [error for error in outcome if isinstance(error, embd.InvalidError)]
        self.assertTrue(refused, outcome)
        self.assertIn("the table's", str(refused[0]))


class RatesOnThreeShards(Rates):
    shards = 3


class Journal(unittest.TestCase):
    def test_a_replay_makes_the_same_bits(self):
        kinds = [("sgd", "local"), ("adam", "lazy_global"), ("adam", "global"), ("momentum", "global"), ("ftrl", "local")]
        for shards in (1, 3):
            folder = tempfile.mkdtemp(prefix="embd-rates-")
            self.addCleanup(shutil.rmtree, folder, True)
            undisturbed, killed = Embd(shards=shards), Embd("--data-dir", folder, shards=shards)
            rows = []
            for server in (undisturbed, killed):
                client = embd.connect(server.addresses[0])
                for i, (kind, update) in enumerate(kinds):
                    table = client.create_table(f"t{i}", DIM, optimizer=embd.Optimizer(kind, lr=0.1, update=update),
                                                durability="durable" if server is killed else "snapshot")
                    for t in range(1, 12):
                        keys = KEYS[t % 3::3]
                        table.push(keys, gradients(t)[: len(keys)], lr=RATES[t % 4])
                if server is killed:
                    client.close()
                    server.kill()
                    server = Embd("--data-dir", folder, shards=shards)
                    client = embd.connect(server.addresses[0])
                rows.append([client.table(f"t{i}").pull(KEYS) for i in range(len(kinds))])
                rows.append([client.table(f"t{i}").push(KEYS, gradients(20)) or client.table(f"t{i}").pull(KEYS)
                             for i in range(len(kinds))])
                client.close()
                self.assertEqual(server.stop(), 0)
            for mine, theirs in zip(rows[0] + rows[1], rows[2] + rows[3]):
                np.testing.assert_array_equal(mine, theirs)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "error")
    clusters.main()
