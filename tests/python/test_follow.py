"""embd.follow: what changes in a table, round after round, is the table at the step that each round names."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import clusters
import embd
from embd_process import Embd


class Receiver:
    """A table by what rounds say."""

    def __init__(self):
        self.rows, self.n_rounds, self.n_all = {}, 0, 0

    def apply(self, round_):
        self.n_rounds += 1
        self.n_all += round_.all
        assert np.unique(round_.keys).size == round_.keys.size, "a key came twice in a round"
        if round_.all:
            self.rows.clear()
        for key in round_.gone.tolist():
            self.rows.pop(key, None)
        self.rows.update(zip(round_.keys.tolist(), round_.rows))
        return round_


def table_of(table):
    """All rows that the servers have."""
    return {int(k): v for batch in table.scan() for k, v in zip(batch.keys, batch.values)}


class Follow(clusters.ClusterTest):
    shards = 3

    def table(self, name="items", **fields):
        return self.client.create_table(name, 8, **{"optimizer": embd.Optimizer("adagrad", lr=0.1), **fields})

    def same(self, receiver, table):
        expected = table_of(table)
        self.assertEqual(receiver.rows.keys(), expected.keys())
        for key, row in expected.items():
            np.testing.assert_array_equal(receiver.rows[key], row)

    def change(self, table, rng, keys=3000):
        """Some pushes and erases; returns nothing that a subscriber is told."""
        for _ in range(rng.integers(1, 6)):
            some = rng.integers(0, keys, rng.integers(1, 400)).astype(np.uint64)
            table.push(some, rng.standard_normal((some.size, 8), dtype=np.float32))
            if rng.random() < 0.5:
                table.erase(rng.integers(0, keys, 50).astype(np.uint64))

    def test_rounds_of_a_random_history_make_the_table(self):
        for n, fields in enumerate([{}, {"capacity": 300, "on_full": "evict_lfu"}, {"admit_after": 3}, {"dtype": "bf16"},
                                    {"optimizer": embd.Optimizer("adam", lr=0.1, update="global")}]):
            with self.subTest(fields):
                table, rng, receiver = self.table(f"random{n}", **fields), np.random.default_rng(n), Receiver()
                self.change(table, rng)
                rounds = embd.follow(self.client, table, interval=0)
                for _ in range(12):
                    got = receiver.apply(next(rounds))
                    self.assertEqual(got.step, table.step)
                    self.same(receiver, table)
                    self.change(table, rng)
                rounds.close()
                self.assertEqual(receiver.n_all, 1)

    def test_a_round_has_what_changed_once_and_nothing_else(self):
        table = self.table()
        table.push(range(1000), np.ones((1000, 8)))
        rounds = embd.follow(self.client, "items", interval=0, since_now=True)
        self.assertEqual((next(rounds).keys.size, next(rounds).keys.size), (0, 0))
        for _ in range(50):
            table.push([5, 6, 7], np.ones((3, 8)))
        table.erase([8, 9])
        got = next(rounds)
        self.assertEqual((sorted(got.keys), sorted(got.gone), got.step, got.all), ([5, 6, 7], [8, 9], 51, False))
        table.push([8], np.ones((1, 8)))
        table.erase([5])
        got = next(rounds)
        self.assertEqual((got.keys.tolist(), got.gone.tolist()), ([8], [5]))
        self.assertEqual(next(rounds).keys.size, 0)
        rounds.close()

    def test_rows_travel_as_f16_and_i8(self):
        table, receivers = self.table(), {}
        values = np.random.default_rng(4).standard_normal((500, 8), dtype=np.float32)
        table.put(range(500), values)
        for dtype, bound in ("f32", 0), ("f16", 2e-3), ("i8", 0.02):
            rounds = embd.follow(self.client, table, interval=0, dtype=dtype)
            got = receivers[dtype] = next(rounds)
            rounds.close()
            order = np.argsort(got.keys)
            np.testing.assert_allclose(got.rows[order], values, atol=bound * 4, rtol=bound)
        self.assertEqual([receivers[d].bytes for d in ("f32", "f16", "i8")], [500 * 40, 500 * 24, 500 * 20])

    def test_rows_change_while_they_are_read(self):
        table, receiver, stop = self.table("large"), Receiver(), threading.Event()
        keys = np.arange(200000, dtype=np.uint64)
        table.put(keys, np.zeros((keys.size, 8)))

        def push():
            with embd.connect(self.server.addresses[0]) as client:
                other, rng = client.table("large"), np.random.default_rng(5)
                while not stop.is_set():
                    some = rng.integers(0, 250000, 2000).astype(np.uint64)
                    other.push(some, np.ones((some.size, 8), np.float32))
                    other.erase(rng.integers(0, 250000, 100).astype(np.uint64))

        pusher = threading.Thread(target=push)
        pusher.start()
        rounds = embd.follow(self.client, table, interval=0)
        for _ in range(10):
            receiver.apply(next(rounds))
        stop.set()
        pusher.join()
        receiver.apply(next(rounds))
        self.same(receiver, table)
        self.assertEqual(receiver.n_all, 1)
        rounds.close()

    def test_slot_tables(self):
        table = self.table("slots", slots=2, slot_sizes=[10, 20], partition="slot", combiner="concat")
        rounds = embd.follow(self.client, table, interval=0)
        next(rounds)
        table.push([3, 4], np.ones((2, 8)))
        got = next(rounds)
        self.assertEqual(sorted(zip(got.slots.tolist(), got.keys.tolist())), [(0, 3), (1, 14)])
        table.erase([3, 4])
        got = next(rounds)
        self.assertEqual(sorted(zip(got.gone_slots.tolist(), got.gone.tolist())), [(0, 3), (1, 14)])
        rounds.close()

    def test_refusals(self):
        lazy = self.table("lazy", optimizer=embd.Optimizer("adam", lr=0.1, update="lazy_global"))
        with self.assertRaisesRegex(embd.UnsupportedError, "change without a push"):
            next(embd.follow(self.client, lazy))
        with self.assertRaises(embd.UnknownTableError):
            embd.follow(self.client, "nowhere")
        for wrong in {"interval": -1}, {"interval": 31}, {"dtype": "f64"}:
            with self.assertRaises(ValueError):
                embd.follow(self.client, lazy, **wrong)

    def test_a_table_has_four_and_the_dead_leave_nothing(self):
        table = self.table()
        table.push(range(100), np.ones((100, 8)))
        clients = [embd.connect(self.server.addresses[0]) for _ in range(4)]
        rounds = [embd.follow(c, "items", interval=0) for c in clients]
        for r in rounds:
            self.assertEqual(next(r).keys.size, 100)
        with self.assertRaisesRegex(embd.FullError, "4 subscriptions"):
            next(embd.follow(self.client, "items"))
        for client in clients:
            client.close()
        for _ in range(30):  # more than a table has
            with embd.connect(self.server.addresses[0]) as client:
                self.assertEqual(next(embd.follow(client, "items")).keys.size, 100)

    def test_a_table_that_is_created_anew_is_read_anew(self):
        table = self.table()
        table.push(range(100), np.ones((100, 8)))
        rounds = embd.follow(self.client, "items", interval=0)
        next(rounds)
        table.push(range(5), np.ones((5, 8)))
        with embd.connect(self.server.addresses[0]) as other:
            other.drop_table("items")
            other.create_table("items", 8, optimizer=embd.Optimizer("adagrad", lr=0.1)).push([7], np.ones((1, 8)))
        got = next(rounds)
        self.assertEqual((got.all, got.keys.tolist()), (True, [7]))
        rounds.close()

    def test_embctl_tail(self):
        self.table().push(range(100), np.ones((100, 8)))
        done = subprocess.run([os.path.join(os.environ["EMBD_BIN"], "embctl"), "-s", self.server.addresses[0], "tail",
                               "--rounds", "2", "--interval", "1", "items"], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.stdout.splitlines(), ["round 1: step 1, all 100 rows, 0 gone, 4000 bytes",
                                                    "round 2: step 1, 0 rows, 0 gone, 0 bytes"], done.stderr)


class Restarts(unittest.TestCase):
    def test_a_server_that_is_killed_is_read_anew_and_snapshots_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Embd("--data-dir", folder, shards=2)
            client = embd.connect(server.addresses[0], deadline=20)
            table = client.create_table("items", 8, optimizer=embd.Optimizer("adagrad", lr=0.1), durability="durable")
            table.push(range(5000), np.ones((5000, 8)))
            receiver, rounds = Receiver(), embd.follow(client, table, interval=0)
            receiver.apply(next(rounds))
            table.push(range(100), np.ones((100, 8)))
            server.kill()
            server.start_again()
            receiver.apply(next(rounds))
            self.assertEqual(receiver.n_all, 2)
            self.assertEqual(receiver.rows.keys(), table_of(table).keys())
            rounds.close()
            client.close()
            server.stop()


if __name__ == "__main__":
    clusters.main()
