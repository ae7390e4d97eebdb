"""The Python client against real servers: what it returns is checked against a few lines of numpy."""
import gc
import math
import os
import pathlib
import pickle
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings

import numpy as np

try:
    import torch
except ImportError:
    torch = None

import clusters
import embd
import overhead

LR = 0.5


def pooled(rows, lengths, combiner="sum", weights=None):
    """What a pull of these single rows returns, in float32 and batch order."""
    out = np.zeros((len(lengths), rows.shape[1]), np.float32)
    at = 0
    for i, n in enumerate(lengths):
        for k in range(at, at + n):
            out[i] += rows[k] if weights is None else np.float32(weights[k]) * rows[k]
        if combiner == "mean" and n > 1:
            out[i] /= np.float32(n)
        at += n
    return out


class SlowDisk(clusters.ClusterTest):
    shards = 4

    def test_a_dump_keeps_its_hold_while_other_shards_are_written(self):
        for name in ("a", "b"):
            self.client.create_table(name, 1).push(np.arange(100), np.ones((100, 1)))
        slow = iter([3.0] * 5)  # shards have to hear from the holder every 10 s
        with tempfile.TemporaryDirectory() as folder:
            report = self.client.dump(os.path.join(folder, "copy"), progress=lambda *_: time.sleep(next(slow, 0)))
        self.assertEqual(report.rows, 200)

    def test_an_export_keeps_its_cut_while_rows_are_written(self):
        keys = np.arange(1000)
        self.client.create_table("wide", 4096, optimizer="sgd").push(keys, np.ones((1000, 4096), np.float32))
        before = self.client.table("wide").pull(keys)
        slow = iter([3.0] * 5)
        pushes = []

        def push():
            with embd.connect(self.server.addresses[0]) as other:
                other.table("wide").push(keys, np.ones((1000, 4096), np.float32))

        def wait(rows_done, *_):  # at most every 0.2 s: as it is slow, after each run of rows
            if rows_done and not pushes:
                pushes.append(threading.Thread(target=push))
                pushes[0].start()
            time.sleep(next(slow, 0) if rows_done else 0.3)

        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "model")
            self.client.export_hugectr("wide", copy, progress=wait)
            self.assertIsNone(next(slow, None), "too few runs of rows to outlast a hold")
            stored, = embd.stored.read(copy)
        pushes[0].join()
        np.testing.assert_array_equal(stored.values[np.argsort(stored.keys)], before)
        self.assertFalse(np.array_equal(self.client.table("wide").pull(keys), before), "the push came after the export")


class Tables(clusters.ClusterTest):
    def test_a_definition_comes_back_as_it_was_given(self):
        table = self.client.create_table(
            "all", 8, slots=3, slot_sizes=[10, 20, 30], partition="slot", combiner="mean", dtype="bf16",
            optimizer=embd.Optimizer("adam", lr=0.25, beta1=0.5, eps=0.125),
            initializer=embd.Initializer("normal", 0.5, 2.0), seed=2**64 - 1, ttl=7, capacity=100,
            on_full="evict_ttl", admit_after=2, create_on="pull", admit_nonfinite=True)
        schema = table.describe()
        self.assertEqual(schema, table.schema)
        self.assertEqual((schema.name, schema.dim, schema.slots, schema.slot_sizes), ("all", 8, 3, [10, 20, 30]))
        self.assertEqual((schema.partition, schema.combiner, schema.dtype), ("slot", "mean", "bf16"))
        self.assertEqual((schema.optimizer.kind, schema.optimizer.lr, schema.optimizer.beta1, schema.optimizer.eps),
                         ("adam", 0.25, 0.5, 0.125))
        self.assertEqual(schema.optimizer.beta2, np.float32(0.999))
        self.assertEqual(schema.initializer, embd.Initializer("normal", 0.5, 2.0))
        self.assertEqual((schema.seed, schema.capacity, schema.on_full, schema.ttl), (2**64 - 1, 100, "evict_ttl", 7))
        self.assertEqual((schema.admit_after, schema.create_on, schema.admit_nonfinite), (2, "pull", True))

    def test_tables_are_listed_opened_and_dropped(self):
        for name in ("b", "a"):
            self.client.create_table(name, 2)
        self.assertEqual(self.client.tables(), ["a", "b"])
        self.assertEqual(self.client.table("a").dim, 2)
        self.client.table("a").drop()
        self.assertEqual(self.client.tables(), ["b"])
        with self.assertRaises(embd.UnknownTableError) as caught:
            self.client.table("a")
        self.assertEqual(caught.exception.server, self.server.addresses[0])

    def test_a_mistake_in_a_definition_is_named(self):
        for fields, word in (({"optimizer": "adamm"}, "adamm"), ({"slots": 0}, "slots"), ({"nothing": 1}, "nothing"),
                             ({"optimizer": embd.Optimizer("sgd", beta1=0.5)}, "beta1")):
            with self.assertRaisesRegex(embd.InvalidError, word):
                self.client.create_table("t", 4, **fields)
        for slots in (1, 3):
            with self.assertRaisesRegex(embd.InvalidError, f"'slots' is {slots}, but slot_sizes has 2"):
                self.client.create_table("t", 4, slots=slots, slot_sizes=[1, 2])
        self.client.create_table("t", 4)
        with self.assertRaisesRegex(embd.ExistsError, "table 't' has dim 4, asked for 5"):
            self.client.create_table("t", 5)

    def test_a_handle_that_was_never_made_is_dropped_without_a_word(self):
        from embd.handle import Handle
        with unittest.mock.patch("sys.unraisablehook") as told:
            del_me = Handle.__new__(Handle)
            del del_me
            gc.collect()
        told.assert_not_called()


class Calls(clusters.ClusterTest):
    def test_every_form_of_a_batch_gives_the_rows_of_its_keys(self):
        keys, lengths = np.array([7, 9, 7, 2**63], np.uint64), [2, 0, 1, 1]
        for combiner in ("sum", "mean"):
            table = self.client.create_table(combiner, 5, combiner=combiner)
            single = table.pull(keys)
            self.assertEqual((single.shape, single.dtype), ((4, 5), np.float32))
            np.testing.assert_array_equal(single[0], single[2])
            expected = pooled(single, lengths, combiner)
            np.testing.assert_allclose(table.pull(keys, lengths=lengths), expected, rtol=1e-6)
            np.testing.assert_array_equal(table.pull(keys, [0, 2, 2, 3, 4], plan="rows"), expected)
            np.testing.assert_array_equal(table.pull(keys, lengths=lengths, raw=True), single)
        np.testing.assert_array_equal(table.pull(keys.reshape(2, 2)), single.reshape(2, 2, 5))
        self.assertEqual(table.pull([]).shape, (0, 5))

    def test_integers_of_any_type_are_keys(self):
        table = self.client.create_table("t", 3)
        expected = table.pull(np.array([2**64 - 1, 5], np.uint64))
        np.testing.assert_array_equal(table.pull(np.array([-1, 5], np.int64)), expected)
        np.testing.assert_array_equal(table.pull(np.array([-1, 5], np.int32)), expected)
        np.testing.assert_array_equal(table.pull(np.array([9, -1, 9, 5, 9], np.int64)[1::2]), expected)
        with self.assertRaisesRegex(TypeError, "float64"):
            table.pull(np.array([1.0, 2.0]))

    def test_a_push_steps_every_key_once(self):
        table = self.client.create_table("t", 4, optimizer=embd.Optimizer("sgd", lr=LR))
        keys, lengths = np.array([3, 4, 3]), [2, 1]
        before = table.pull(keys, raw=True)
        gradient = np.arange(8, dtype=np.float32).reshape(2, 4)
        statuses = np.empty(3, np.uint8)
        table.push(keys, gradient, lengths=lengths, statuses=statuses)
        self.assertEqual(list(statuses), [embd.KeyStatus.INSERTED] * 3)
        after = table.pull(keys, raw=True, statuses=statuses)
        self.assertEqual(list(statuses), [embd.KeyStatus.HIT] * 3)
        lr = np.float32(LR)
        np.testing.assert_array_equal(after[0], before[0] - lr * (gradient[0] + gradient[1]))
        np.testing.assert_array_equal(after[1], before[1] - lr * gradient[0])
        table.push(keys[:1], gradient[:1].astype(np.float64), raw=True)
        np.testing.assert_array_equal(table.pull(keys[:1])[0], after[0] - lr * gradient[0])

    def test_a_numbered_push_is_applied_once(self):
        table = self.client.create_table("t", 2, optimizer=embd.Optimizer("sgd", lr=1.0))
        pusher, statuses = embd.Pusher(self.client), np.empty(1, np.uint8)
        before = table.pull([7])
        for _ in range(3):
            table.push([7], [[1.0, 2.0]], pusher=pusher, sequence=1, statuses=statuses)
        self.assertEqual(statuses[0], embd.KeyStatus.UNREPORTED)
        np.testing.assert_array_equal(table.pull([7]), before - np.float32([[1, 2]]))
        self.assertEqual(embd.Pusher(self.client, pusher.id).last(), (1, 1))
        with self.assertRaises(embd.Error) as raised:
            table.push([7], [[1.0, 2.0]], pusher=pusher, sequence=3)
        self.assertEqual(raised.exception.status, embd.Status.GAP)

    def test_weights_multiply_rows_and_gradients(self):
        table = self.client.create_table("t", 4, optimizer=embd.Optimizer("sgd", lr=LR))
        keys, weights = np.array([1, 2]), np.array([0.5, 2], np.float32)
        rows = table.pull(keys)
        np.testing.assert_array_equal(table.pull(keys, [0, 2], weights=weights, plan="rows"),
                                      pooled(rows, [2], weights=weights))
        table.push(keys, np.ones((1, 4), np.float32), [0, 2], weights=weights)
        np.testing.assert_array_equal(table.pull(keys), rows - np.float32(LR) * weights[:, None])

    def test_several_tables_go_in_one_call(self):
        a = self.client.create_table("a", 2, optimizer=embd.Optimizer("sgd", lr=LR))
        b = self.client.create_table("b", 3, combiner="concat", optimizer=embd.Optimizer("sgd", lr=LR))
        parts = [embd.Part(a, [1, 2], lengths=[2]), embd.Part(b, [1, 2], lengths=[2])]
        before = self.client.pull(parts)
        self.assertEqual([rows.shape for rows in before], [(1, 2), (2, 3)])
        self.client.push([embd.Part(part.table, part.keys, part.offsets, values=np.ones_like(rows))
                          for part, rows in zip(parts, before)])
        after = self.client.pull(parts)
        np.testing.assert_allclose(after[0], before[0] - 2 * LR, rtol=1e-6)
        np.testing.assert_array_equal(after[1], before[1] - np.float32(LR))

    def test_options_of_a_call(self):
        table = self.client.create_table("t", 4)
        np.testing.assert_array_equal(table.pull([1, 2], zero_missing=True), np.zeros((2, 4)))
        full, half = table.pull([1, 2]), table.pull([1, 2], wire="f16")
        np.testing.assert_array_equal(half, full.astype(np.float16).astype(np.float32))
        for wire, most in (("i8", np.float32(127)), ("i4", np.float32(7))):
            full = table.pull([1, 2])
            scale = np.abs(full).max(1, keepdims=True) / most
            np.testing.assert_array_equal(table.pull([1, 2], wire=wire), np.rint(full / scale) * scale)
            grads = np.float32([[most, 0, 1, -most], [0, 0, 0, 0]])  # whole codes, so they travel as they are
            table.push([1, 2], grads, wire=wire)
            after = table.pull([1, 2])
            np.testing.assert_array_equal(after[1], full[1])
            np.testing.assert_allclose(after[0], full[0] - np.float32(table.schema.optimizer.lr) * grads[0], rtol=1e-5)
        with self.assertRaisesRegex(ValueError, "'fast'; it can be auto, pooled, rows"):
            table.pull([1], plan="fast")
        with self.assertRaisesRegex(TypeError, "no option 'plam'"):
            table.pull([1], plam="rows")

    def test_arrays_are_used_in_place(self):
        table = self.client.create_table("t", 4)
        keys, out = np.arange(10, dtype=np.int64), np.empty((10, 4), np.float32)
        self.assertIs(table.pull(keys, out=out), out)
        part = embd.Part(table, keys, values=out)
        self.assertTrue(np.shares_memory(part.keys, keys))
        self.assertTrue(np.shares_memory(part.gradient(), out))
        self.assertTrue(np.shares_memory(part.output(), out))

    def test_arrays_that_do_not_fit_are_refused_before_C_sees_them(self):
        table = self.client.create_table("t", 4)
        good = np.empty((2, 4), np.float32)
        read_only = good.copy()
        read_only.flags.writeable = False
        for call in (lambda: table.pull([1, 2], out=good[:1]),
                     lambda: table.pull([1, 2], out=read_only),
                     lambda: table.pull([1, 2], out=np.empty((2, 8), np.float32)[:, ::2]),
                     lambda: table.push([1, 2], good[:1]),
                     lambda: table.push([1, 2, 3], good, lengths=[1, 1, 1]),
                     lambda: table.pull([1, 2], weights=[1.0]),
                     lambda: table.pull([1, 2], statuses=np.empty(1, np.uint8)),
                     lambda: table.pull([1, 2], lengths=[3, -1]),
                     lambda: table.pull([1, 2], [])):
            self.assertRaises(ValueError, call)
        for call in (lambda: table.pull([1, 2], out=np.empty((2, 4), np.float64)),
                     lambda: table.pull([1, 2], statuses=np.empty(2, np.int32)),
                     lambda: table.pull([1, 2], offsets=[0, 2], lengths=[2]),
                     lambda: self.client.push([embd.Part(table, [1])])):
            self.assertRaises(TypeError, call)
        for offsets in ([0, 1], [1, 2], [0, 3], [0, 2, 1, 2]):
            self.assertRaises(embd.InvalidError, table.pull, [1, 2], offsets)

    def test_the_builder_takes_samples_back(self):
        table = self.client.create_table("t", 2, combiner="sum")
        csr = embd.Csr(4, 4)
        csr.row()
        csr.push(7)
        csr.push(-1, weight=0.5)
        csr.check_point()
        csr.row()
        csr.push(8)
        csr.roll_back()
        rows, = self.client.pull([csr.part(table)], plan="rows")
        single = table.pull([7, -1])
        np.testing.assert_array_equal(rows, pooled(single, [2], weights=[1, 0.5]))
        with self.assertRaisesRegex(embd.Error, "4"):
            for _ in range(5):
                csr.push(1)

    def test_lists_of_lists_become_batches(self):
        keys, lengths = embd.jagged([[1, 2], [], np.array([2**63], np.uint64)])
        self.assertEqual((list(keys), list(lengths)), ([1, 2, 2**63], [2, 0, 1]))

    def test_s3_18_rows_of_a_fixed_number_of_keys_and_coo_tensors_become_csr(self):
        for dense, offsets in ([[1, 2], [3, 4]], [0, 2, 4]), ([[[5], [6]]], [0, 1, 2]), (np.zeros((0, 3), int), [0]):
            keys, found = embd.csr_of(dense)
            self.assertEqual((list(keys), list(found)), (list(np.reshape(dense, -1)), offsets))
        rows, columns, keys = [2, 0, 0, 2, 0], [0, 1, 0, 0, 1], [7, 9, -1, 8, 9]  # of one place both, in their order
        wanted = ([2**64 - 1, 9, 9, 7, 8], [0, 3, 3, 5])
        coo = [type("Scipy", (), {"row": rows, "col": columns, "data": keys, "shape": (3, 2)}),
               type("Tensorflow", (), {"indices": np.stack([rows, columns], 1), "values": np.array(keys), "dense_shape": [3, 2]})]
        if torch is not None:
            coo += [torch.sparse_coo_tensor([rows, columns], keys, (3, 2)),
                    torch.sparse_coo_tensor([[0] * 5, rows, columns], keys, (1, 3, 2))]
        for batch in coo:
            keys, offsets = embd.csr_of(batch)
            self.assertEqual((list(keys), list(offsets)), wanted, batch)
        table = self.client.create_table("coo", 2, combiner="sum")
        np.testing.assert_array_equal(table.pull(*embd.csr_of(coo[-1])), pooled(table.pull([-1, 9, 9, 7, 8], raw=True), [3, 0, 2]))
        for bad in ([1, 2], np.zeros((2, 0), int), 3, type("Far", (), {"row": [3], "col": [0], "data": [1], "shape": (3, 2)}),
                    type("Less", (), {"row": [-1], "col": [0], "data": [1], "shape": (3, 2)}),
                    type("Short", (), {"row": [1, 2], "col": [0, 1], "data": [1], "shape": (3, 2)}),
                    type("Flat", (), {"indices": np.zeros((1, 1), int), "values": np.ones(1, int), "dense_shape": [3]})):
            with self.assertRaises(ValueError, msg=bad):
                embd.csr_of(bad)
        with self.assertRaises(TypeError):
            embd.csr_of([[0.5]])


class CallsOnThreeShards(Calls):
    shards = 3


class Futures(clusters.ClusterTest):
    shards = 2

    def test_started_calls_take_effect_in_their_order(self):
        table = self.client.create_table("t", 4, optimizer=embd.Optimizer("sgd", lr=1))
        keys = np.arange(100)
        before = table.pull(keys)
        calls = []
        for _ in range(10):
            calls.append((table.pull_start(keys), table.push_start(keys, np.ones_like(before))))
        for i, (pull, push) in enumerate(calls):
            np.testing.assert_allclose(pull.wait(), before - i, rtol=0, atol=1e-5)
            self.assertIsNone(push.wait())
        self.assertIs(pull.wait(), pull.wait())

    def test_done_becomes_true(self):
        call = self.client.create_table("t", 4).pull_start(np.arange(1000))
        end = time.monotonic() + 20
        while not call.done():
            self.assertLess(time.monotonic(), end)
        self.assertEqual(call.wait().shape, (1000, 4))

    def test_a_call_that_was_dropped_keeps_its_arrays_until_it_has_ended(self):
        table = self.client.create_table("t", 64)
        for _ in range(50):
            table.pull_start(np.arange(4000))
            gc.collect()
        self.assertEqual(table.pull([1]).shape, (1, 64))

    def test_the_failure_of_a_dropped_call_is_warned_of(self):
        table = self.client.create_table("t", 2)
        call = table.push_start([1], [[np.nan, 0]])
        while not call.done():
            pass
        del call
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table.pull_start([1]).wait()
        self.assertIn("not a finite number", str(caught[0].message))

    def test_a_failure_is_raised_by_every_wait(self):
        call = self.client.create_table("t", 2).push_start([1], [[np.inf, 0]])
        for _ in range(2):
            with self.assertRaises(embd.Error) as caught:
                call.wait()
            self.assertEqual(caught.exception.status, embd.Status.NOT_FINITE)

    def test_closing_ends_what_is_in_flight(self):
        client = embd.connect(self.server.addresses[0])
        table = client.create_table("t", 64)
        calls = [table.pull_start(np.arange(4000)) for _ in range(20)]
        client.close()
        client.close()
        self.assertRaises(embd.ClosedError, calls[-1].wait)
        self.assertRaises(embd.ClosedError, table.pull, [1])
        self.assertEqual(repr(client), "<embd client, closed>")


class Failures(clusters.ClusterTest):
    def test_an_error_names_status_server_and_cause(self):
        table = self.client.create_table("t", 2)
        other = embd.connect(self.server.addresses[0])
        other.drop_table("t")
        other.close()
        with self.assertRaises(embd.UnknownTableError) as caught:
            table.pull([1])
        error = caught.exception
        self.assertEqual((error.status, error.server), (embd.Status.UNKNOWN_TABLE, self.server.addresses[0]))
        self.assertIn("t", error.cause)
        self.assertIsInstance(error, LookupError)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((again.status, again.server, str(again)), (error.status, error.server, str(error)))

    def test_nobody_listens(self):
        with self.assertRaises(ConnectionError) as caught:
            embd.connect("127.0.0.1:1", deadline=0.5)
        self.assertEqual((caught.exception.server, caught.exception.status),
                         ("127.0.0.1:1", embd.Status.UNREACHABLE))
        self.assertRaises(embd.InvalidError, embd.connect, "no address")
        self.assertRaises(TypeError, embd.connect, "127.0.0.1:1", nothing=1)

    def test_a_stopped_server_leaves_other_threads_running_until_the_deadline(self):
        table = self.client.create_table("t", 2)
        raised = []

        def pull():
            try:
                table.pull([1], deadline=1.0)
            except Exception as error:
                raised.append(error)

        self.server.pause()
        try:
            thread = threading.Thread(target=pull)
            thread.start()
            turns = 0
            while thread.is_alive():
                turns += 1
                time.sleep(0.001)
            thread.join()
        finally:
            self.server.go_on()
        self.assertEqual(len(raised), 1)
        self.assertIsInstance(raised[0], embd.DeadlineError)
        self.assertIsInstance(raised[0], TimeoutError)
        self.assertGreater(turns, 100)  # the lock of the interpreter was free meanwhile

    def test_threads_share_a_client(self):
        table = self.client.create_table("t", 4, optimizer=embd.Optimizer("sgd", lr=1))
        before = table.pull([1])

        def work():
            for _ in range(100):
                table.push([1], np.ones((1, 4), np.float32))
                table.pull_start([1]).wait()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_allclose(table.pull([1]), before - 400, atol=1e-3)

    def test_a_forked_child_does_not_speak_on_its_parents_connections(self):
        table = self.client.create_table("t", 4)
        child = os.fork()
        if child == 0:
            try:
                table.pull([1])
            except embd.ClosedError:
                gc.collect()
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(table.pull([1]).shape, (1, 4))


class Operating(clusters.ClusterTest):
    shards = 2

    def setUp(self):
        super().setUp()
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.copy = os.path.join(self.dir.name, "copy")
        self.table = self.client.create_table("t", 3, optimizer="adagrad")
        self.keys = np.array([5, 2**64 - 1, 0, 77], np.uint64)
        self.table.push(self.keys, np.ones((4, 3), np.float32))

    def test_figures(self):
        stats = self.client.stats()
        self.assertEqual(len(stats), 2)
        self.assertEqual(sum(shard.tables["t"]["rows"] for shard in stats), 4)
        self.assertGreater(sum(shard.shard.get("requests", 1) for shard in stats), 0)
        self.assertEqual(self.client.shards, self.server.addresses)
        self.assertLess(self.client.ping(1), 5)

    def test_hot_keys_and_traces(self):
        for _ in range(300):
            self.table.pull(np.full(100, 5))
        shard = max(range(2), key=lambda s: self.client.hot("t", s).samples)
        hot = self.client.hot("t", shard, 3)
        self.assertEqual((hot.keys[0], hot.counts[0] > 0, len(hot.keys) <= 3), (5, True, True))
        traces = self.client.trace(shard)
        self.assertEqual((traces[0].method, len(traces[0].stages)), ("pull", 5))
        self.assertRaises(embd.UnknownTableError, self.client.hot, "u")

    def test_keys_are_erased(self):
        statuses = np.empty(2, np.uint8)
        self.table.erase([5, 6], statuses=statuses)
        self.assertEqual(list(statuses), [embd.KeyStatus.EVICTED, embd.KeyStatus.MISSING])
        for wire in ("f16", "bf16", "i8", "i4"):  # an erase has no values
            self.table.erase([5, 6], wire=wire, statuses=statuses)
            self.assertEqual(list(statuses), [embd.KeyStatus.MISSING] * 2)
        self.table.pull([5, 77], statuses=statuses)
        self.assertEqual(list(statuses), [embd.KeyStatus.MISSING, embd.KeyStatus.HIT])

    def test_a_dump_is_verified_read_and_loaded(self):
        rows = self.table.pull(self.keys)
        seen = []
        report = self.client.dump(self.copy, progress=lambda *what: seen.append(what))
        self.assertEqual(report.rows, 4)
        self.assertEqual(embd.verify(self.copy).rows, 4)
        live, = self.client.digest("t")
        kept, = embd.stored.digest(self.copy)
        self.assertEqual((live.name, live.rows, live.step, live[:5]), ("t", 4, live.step, kept[:5]))
        np.testing.assert_array_equal(live.parts, kept.parts)
        self.assertEqual(np.count_nonzero(live.parts), 4)
        with self.assertRaises(embd.UnknownTableError):
            embd.stored.digest(self.copy, "u")
        stored, = embd.stored.read(self.copy)
        self.assertEqual((stored.kind, stored.name, stored.dim, stored.rows), ("dump", "t", 3, 4))
        self.assertEqual(stored.schema.optimizer.kind, "adagrad")
        order = np.argsort(stored.keys)
        np.testing.assert_array_equal(stored.values[order], rows[np.argsort(self.keys)])
        self.table.drop()
        self.assertEqual(self.client.load(self.copy, "t").rows, 4)
        np.testing.assert_array_equal(self.client.table("t").pull(self.keys), rows)
        with self.assertRaises(embd.ExistsError):
            self.client.dump(self.copy)

    def test_a_table_is_exported_for_numpy(self):
        self.client.dump(self.copy)
        file = os.path.join(self.dir.name, "t.npz")
        embd.stored.to_npz(self.copy, "t", file)
        with np.load(file) as found:
            np.testing.assert_array_equal(found["keys"], np.sort(self.keys))
            np.testing.assert_array_equal(found["values"], self.table.pull(found["keys"]))
        with self.assertRaises(embd.UnknownTableError):
            embd.stored.to_npz(self.copy, "u", file)

    def test_a_table_is_exported_for_safetensors(self):
        try:
            from safetensors.numpy import load_file
        except ImportError:
            self.skipTest("safetensors is not installed")
        self.client.dump(self.copy)
        file = os.path.join(self.dir.name, "t.safetensors")
        embd.stored.to_safetensors(self.copy, "t", file)
        found = load_file(file)
        np.testing.assert_array_equal(found["values"], self.table.pull(found["keys"]))

    def test_a_damaged_dump_is_found(self):
        self.client.dump(self.copy)
        part = next(name for name in sorted(os.listdir(self.copy)) if name.endswith(".part"))
        with open(os.path.join(self.copy, part), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        with self.assertRaisesRegex(embd.CorruptError, part):
            embd.verify(self.copy)

    def test_what_a_progress_function_raises_ends_the_dump(self):
        def stop(*_):
            self.assertRaises(RuntimeError, self.client.ping)  # a callback may not call the client
            raise KeyError("enough")

        with self.assertRaisesRegex(KeyError, "enough"):
            self.client.dump(self.copy, progress=stop)
        self.assertFalse(os.path.exists(self.copy))
        self.assertEqual(self.client.dump(self.copy).rows, 4)

    def test_a_model_folder_of_hugectr_and_back(self):
        rows = self.table.pull(self.keys)
        self.client.export_hugectr("t", self.copy, n_gpus=2)
        self.assertEqual(embd.stored.tables(self.copy)[0].kind, "hugectr")
        self.client.import_hugectr("u", 3, self.copy, schema={"optimizer": "sgd"})
        np.testing.assert_array_equal(self.client.table("u").pull(self.keys), rows)

    def test_snapshots_without_a_directory_are_refused(self):
        with self.assertRaises(embd.Error) as caught:
            self.client.snapshot("monday")
        self.assertEqual(caught.exception.status, embd.Status.UNSUPPORTED)
        self.assertIn("data directory", caught.exception.cause)


class Figures(clusters.ClusterTest):
    shards = 2

    def setUp(self):
        super().setUp()
        self.table = self.client.create_table("t", 3)
        self.table.push(np.arange(100), np.ones((100, 3), np.float32))
        for _ in range(4):
            self.table.pull(np.arange(100))

    def test_they_are_there_a_shard(self):
        self.assertEqual([(f.address, f.is_connected, f.connections, f.pulls.n, f.pushes.n, f.repeats, f.failures, f.unnumbered)
                          for f in self.client.figures()], [(address, True, 1, 4, 1, 0, 0, 0) for address in self.client.shards])
        figures = self.client.figures()[0]
        self.assertEqual(list(figures.pulls.buckets)[:2] + list(figures.pulls.buckets)[-1:], [1e-6, 2e-6, math.inf])
        self.assertEqual(figures.pulls.buckets[math.inf], 4)
        self.assertEqual(sorted(figures.pulls.buckets.values()), list(figures.pulls.buckets.values()))
        self.assertGreaterEqual(figures.pulls.quantile(1) * 4, figures.pulls.sum)
        self.assertGreater(figures.bytes_sent, 1000)

    def test_no_call_is_waited_for_and_a_closed_client_has_none(self):
        with self.client.handle:  # as a call of another thread holds it
            self.assertEqual(len(self.client.figures()), 2)
        self.client.close()
        with self.assertRaises(embd.ClosedError):
            self.client.figures()

    def test_prometheus_gets_them_by_one_line(self):
        try:
            import prometheus_client
        except ImportError:
            self.skipTest("prometheus_client is not installed: deploy/deps.sh --tools")
        import embd.prometheus
        registry = prometheus_client.CollectorRegistry()
        registry.register(embd.prometheus.Collector(self.client, job="train"))
        at = {"shard": "1", "address": self.client.shards[1], "job": "train"}
        figures = self.client.figures()[1]
        for name, value in {"embd_client_connected": 1, "embd_client_connections_total": 1, "embd_client_pull_seconds_count": 4,
                            "embd_client_push_seconds_count": 1, "embd_client_pull_seconds_sum": figures.pulls.sum,
                            "embd_client_bytes_sent_total": figures.bytes_sent, "embd_client_repeats_total": 0}.items():
            self.assertEqual(registry.get_sample_value(name, at), value, name)
        self.assertEqual(registry.get_sample_value("embd_client_pull_seconds_bucket", {**at, "le": "+Inf"}), 4)
        self.assertIsNotNone(registry.get_sample_value("embd_client_pull_seconds_bucket", {**at, "le": "1.048576"}))
        text = prometheus_client.exposition.generate_latest(registry).decode()
        self.assertIn("# TYPE embd_client_pull_seconds histogram", text)
        self.client.close()
        self.assertEqual(prometheus_client.exposition.generate_latest(registry), b"")


class Snapshots(clusters.ClusterTest):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.flags = ("--data-dir", cls.dir.name)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.dir.cleanup()

    def test_a_snapshot_is_written_and_read(self):
        table = self.client.create_table("t", 3)
        table.push([1], np.ones((1, 3), np.float32))
        blobs = {"dense": b"weights\0\1", "step": b""}
        self.assertEqual(self.client.snapshot("monday", blobs).rows, 1)
        folders = [root for root, _, files in os.walk(self.dir.name) if "manifest.json" in files]
        stored, = embd.stored.read(folders[0], first=1)
        np.testing.assert_array_equal(stored.values, table.pull(stored.keys))
        self.assertEqual(embd.stored.blobs(folders[0]), {"dense": 9, "step": 0})
        for name, data in blobs.items():
            self.assertEqual(embd.stored.blob(folders[0], name), data)
        with self.assertRaises(embd.InvalidError):
            embd.stored.blob(folders[0], "nothing")
        self.client.snapshot("tuesday")

    def test_a_snapshot_of_a_job_has_its_tables_and_is_kept_apart(self):
        for name in ("rec-a", "rec-b", "other"):
            self.client.create_table(name, 3).push([1], np.ones((1, 3), np.float32))
        self.client.snapshot("all")
        for step in (1, 2, 3):
            self.client.snapshot(f"rec-{step}", {"step": b"%d" % step}, keep=2, job="rec", tables=["rec-*"])
        folders = {os.path.basename(root): root for root, _, files in os.walk(self.dir.name) if "manifest.json" in files}
        self.assertEqual({name for name in folders if name == "all" or name.startswith("rec-")}, {"all", "rec-2", "rec-3"})
        self.assertEqual([(t.name, t.job) for t in embd.stored.tables(folders["rec-3"])], [("rec-a", "rec"), ("rec-b", "rec")])
        self.assertEqual({t.job for t in embd.stored.tables(folders["all"])}, {None})
        with self.assertRaisesRegex(embd.UnknownTableError, "has no table 'nothing'"):
            self.client.snapshot("rec-4", job="rec", tables=["rec-a", "nothing"])
        with self.assertRaisesRegex(embd.Error, "is of tables rec-\\* of job 'rec', and this snapshot of tables rec-a of job 'rec'"):
            self.client.snapshot("rec-4", base="rec-3", job="rec", tables=["rec-a"])

    def test_how_a_snapshot_went_can_be_asked_and_one_that_is_unfinished_be_ended(self):
        self.client.create_table("t", 3).push([1, 2], np.ones((2, 3), np.float32))
        with self.assertRaisesRegex(embd.InvalidError, "thursday"):
            self.client.snapshot_status("thursday")
        report = self.client.snapshot("wednesday")
        said = self.client.snapshot_status("wednesday")
        self.assertEqual(said, self.client.snapshot_status())
        self.assertEqual((said.name, said.is_running, said.status, said.error), ("wednesday", False, embd.Status.OK, ""))
        self.assertEqual((said.rows, said.phase), (2, "keep"))
        self.assertEqual(said.pause, report.pause_us / 1e6)
        self.assertGreater(said.elapsed, said.pause)
        self.client.snapshot_cancel("wednesday")  # it is complete, and stays
        self.assertTrue(os.path.exists(os.path.join(self.dir.name, "wednesday", "manifest.json")))
        unfinished = os.path.join(self.dir.name, "friday.tmp")  # as a server that was killed leaves it
        os.mkdir(unfinished)
        self.client.snapshot_cancel("friday")
        self.assertFalse(os.path.exists(unfinished))

    def test_drain_ends_the_server(self):
        with clusters.Embd() as server:
            with embd.connect(server.addresses[0]) as client:
                client.drain()
            self.assertEqual(server.wait(), 0)


class Coverage(unittest.TestCase):
    def test_every_function_of_the_header_is_reached(self):
        from embd._native import lib
        sources = "".join(path.read_text() for path in pathlib.Path(embd.__file__).parent.rglob("*.py"))
        functions = [name for name in dir(lib) if name.startswith("embd_") and not name.startswith("embd_python_")]
        missing = [name for name in functions if f"lib.{name}" not in sources and not name.endswith("_name")]
        missing = [name for name in missing if not name.endswith("_init_sized")]  # structs.begin finds them
        # Definitions go through embd_schema_set, which knows the defaults; names come from the enums themselves.
        missing = [name for name in missing if name not in ("embd_optimizer_init", "embd_schema_check")]
        self.assertGreater(len(functions), 40)
        if missing:
            self.skipTest(f"new in embd.h and not in the Python package yet: {', '.join(missing)}")


class Overhead(clusters.ClusterTest):
    def test_python_adds_at_most_50_us_of_processor_time_to_a_call(self):
        _, _, added = overhead.measure(self.server.addresses[0], False, time.thread_time)
        self.assertLess(added, 50)


if __name__ == "__main__":
    clusters.main()
