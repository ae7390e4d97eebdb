"""Memory of a GPU that is lent to several shards of a host: each takes its own keys, and rows and steps are those of pulls and pushes
through the host, bit for bit, also while keys move, shards come, and servers die. The servers' GPUs are emulated (EMBD_TRIED)."""
import os
import threading
import time
import unittest

import numpy as np

import clusters
import embd
import test_device
import wire
from embd._native import ffi, lib
from embd.device import GATE_DONE, GATE_READY
from listed import Growing
from test_device import DIM, EMULATED, GATE_FAILED, ROWS_AT, Gate, Memory, run, server
from test_process import wait_for_requests
from test_rebalance import digests, embctl, is_busy, rebalance

KEYS = 400
PARTITIONS = "hash", "modulo"


class Emulated(Growing):
    """Servers of one shard each. Those of `host` have no GPU."""

    host = ""

    def start(self, name, *flags, **more):
        if name in self.host:
            return super().start(name, "--store", "host", *flags, **more)
        return super().start(name, "--store", "cuda", *flags, program=EMULATED, **more)


class Shards(unittest.TestCase):
    """A cluster, a client that lends memory, and one that goes through the host."""

    def one_process(self, shards):
        self.server = server(shards=shards)
        self.addCleanup(self.server.stop)
        self.connect(self.server.addresses[0])

    def processes(self, names="ab", listed=None, host=""):
        self.cluster = Emulated(names, listed or len(names))
        self.cluster.host = host
        self.addCleanup(self.cluster.__exit__, None, None, None)
        for name in self.cluster.names:
            self.cluster.start(name, waits=False)
        self.assertEqual(embctl(self.cluster.address("a"), "wait").returncode, 0)
        self.connect(self.cluster.address("a"))

    def connect(self, address):
        self.address = address
        self.client, self.other = (embd.connect(address, deadline=30) for _ in range(2))
        for client in self.client, self.other:
            self.addCleanup(client.close)
        self.memory = Memory()

    def restart(self, name, host=""):
        self.cluster.end(name)
        self.cluster.host = host
        self.cluster.start(name, waits=False)
        self.assertEqual(embctl(self.address, "wait").returncode, 0)

    def steps_of(self, table):
        with embd.connect(self.address, deadline=30) as client:
            return [shard.tables[table.name]["steps"] for shard in client.stats()]

    def tables(self, partition="hash", **fields):
        """The lender's table, and the other client's."""
        fields = {"optimizer": "adagrad", "durability": "snapshot", **fields}
        name = f"{partition}_{fields['optimizer']}_{fields['durability']}"
        return [client.create_table(f"{whose}_{name}", DIM, initializer="constant", partition=partition, **fields)
                for client, whose in ((self.client, "ours"), (self.other, "theirs"))]

    def fill(self, dice, n):
        self.memory.keys(n)[:] = dice.integers(0, KEYS, n)
        self.memory.rows(n)[:] = dice.standard_normal((n, DIM))
        return self.memory.keys(n).copy(), self.memory.rows(n).copy()

    def turn(self, lent, tables, dice, n=300):
        """A push and a pull of both tables."""
        keys, gradient = self.fill(dice, n)
        lent.push(tables[0], n, 0, ROWS_AT)
        tables[1].push(keys, gradient)
        self.pull(lent, tables, n)

    def pull(self, lent, tables, n):
        lent.pull(tables[0], n, 0, ROWS_AT)
        np.testing.assert_array_equal(self.memory.rows(n), tables[1].pull(self.memory.keys(n).copy()))

    def check(self, tables):
        """The same keys with the same bits, seen by a client that knows nothing of lent memory."""
        with embd.connect(self.address, deadline=30) as client:
            ours, theirs = (client.table(table.name) for table in tables)
            np.testing.assert_array_equal(*(table.pull(np.arange(KEYS), zero_missing=True) for table in (ours, theirs)))
            self.assertEqual(*([shard.tables[table.name][what] for shard in client.stats() for what in ("rows", "steps")]
                               for table in (ours, theirs)))


class Calls(Shards):
    def steps(self):
        lent, dice = self.memory.lend(self.client), np.random.default_rng(5)
        self.assertFalse(lent.takes_turns)
        for partition in PARTITIONS:
            for fields in {}, {"optimizer": "adam"}, {"dtype": "f16", "optimizer": "sgd"}:
                tables = self.tables(partition, **fields)
                for n in 300, 1, 301, 0:
                    self.turn(lent, tables, dice, n)
                keys, gradient = self.fill(dice, 200)
                lent.push(tables[0], 200, 0, ROWS_AT, lr=0.5)
                tables[1].push(keys, gradient, lr=0.5)
                lent.pull(tables[0], 200, 0, ROWS_AT, dtype="f16")
                np.testing.assert_array_equal(self.memory.rows(200, np.float16), tables[1].pull(keys).astype(np.float16))
                self.check(tables)

    def test_rows_and_steps_with_shards_of_one_process(self):
        for shards in 2, 3:
            self.one_process(shards)
            self.steps()

    def test_rows_and_steps_with_processes(self):
        self.processes("abc")
        self.steps()
        lent, dice = self.memory.lend(self.client), np.random.default_rng(6)
        for partition in PARTITIONS:
            tables = self.tables(partition, durability="durable")
            for n in 300, 7:
                self.turn(lent, tables, dice, n)
            self.check(tables)

    def test_a_push_that_one_shard_refuses_says_so(self):
        self.one_process(2)
        lent, (table, _) = self.memory.lend(self.client), self.tables("modulo")
        self.memory.keys(50)[:] = np.arange(50)
        self.memory.rows(50)[:] = 1
        self.memory.rows(50)[7] = np.inf
        with self.assertRaisesRegex(embd.Error, f"{self.server.addresses[1]}.*not finite.*; applied by shard 0; refused by shard 1"):
            lent.push(table, 50, 0, ROWS_AT)
        self.assertEqual([shard.tables[table.name]["steps"] for shard in self.client.stats()], [1, 0])

    def test_closing_gives_it_back_to_all(self):
        self.one_process(3)
        for _ in range(20):  # a connection has 16
            self.memory.lend(self.client).close()

    def test_a_gpu_that_takes_turns_is_told(self):
        self.one_process(2)
        self.assertTrue(Memory(b"\1" * 16).lend(self.client).takes_turns)

    def test_a_shard_that_takes_none_is_named_and_nothing_stays_lent(self):
        self.processes("ab", host="b")
        for _ in range(20):
            with self.assertRaisesRegex(embd.UnsupportedError, "all of 2 shards, and shard 1 does not take it"):
                self.memory.lend(self.client)


class Gated(Shards):
    def start(self, start, table, number, n=50, **options):
        return start(table, n, 0, ROWS_AT, self.gate.words, number, **options)

    def begin(self, names=None, **fields):
        self.processes(names) if names else self.one_process(2)
        self.lent, self.gate = self.memory.lend(self.client), Gate(self.client, len(self.client.shards))
        self.assertTrue(self.client.is_shared(self.gate.words))
        self.memory.keys(50)[:] = np.arange(50)
        self.memory.rows(50)[:] = 1
        return self.tables(**fields)

    def test_a_call_waits_for_its_stream_at_each_shard(self):
        tables = self.begin()
        push, pull = self.start(self.lent.push_start, tables[0], 1), self.start(self.lent.pull_start, tables[0], 2)
        self.assertEqual((push.shards, pull.shards), (2, 2))
        self.gate.each(GATE_READY)[0] = 1
        self.gate.wait(1, 1)
        self.assertFalse(push.done())
        self.assertEqual(self.gate.each(GATE_DONE)[1], 0)
        self.gate.reach(1)
        push.wait()
        self.assertFalse(pull.done())
        self.memory.rows(50)[:] = 7
        self.gate.reach(2)
        self.gate.wait(2)
        pull.wait()
        tables[1].push(np.arange(50), np.ones((50, DIM), np.float32))
        np.testing.assert_array_equal(self.memory.rows(50), tables[1].pull(np.arange(50)))
        self.check(tables)

    def test_gates_for_all_shards_are_needed(self):
        table, _ = self.begin()
        self.gate.words = self.gate.words[:32]
        with self.assertRaisesRegex(embd.InvalidError, "n_gates is 1, and the cluster has 2"):
            self.start(self.lent.pull_start, table, 1)
        self.assertEqual(self.gate.words[GATE_DONE // 4], 0)

    def test_a_program_that_knows_one_gate_alone_is_sent_to_its_other_way(self):
        table, _ = self.begin()
        out = ffi.new("embd_device_call **")
        with self.client.handle as c:
            gate = ffi.new("embd_device_gate *", (ffi.cast("void *", self.gate.words.ctypes.data), 1, 0))
            part = self.lent._part(table, 50, 0, ROWS_AT, "f32")
            for start in lib.embd_device_pull_start, lib.embd_device_push_start:
                self.assertEqual(start(c, part, gate, out), embd.Status.UNSUPPORTED)

    def test_a_push_that_fails_does_not_have_one_of_another_table_made_in_part(self):
        first = self.begin(partition="modulo")[0]
        second = self.client.create_table("second", DIM, optimizer="sgd", initializer="constant", partition="modulo")
        bad = Memory()
        bad_lent = bad.lend(self.client)
        bad.keys(50)[:] = np.arange(50)
        bad.rows(50)[1] = np.inf
        self.gate.reach(2)
        for number, table in (1, first), (2, second):
            self.start(self.lent.pull_start, table, number).wait()
        self.memory.rows(50)[:] = 1
        pushes = [self.start(bad_lent.push_start, first, 3, needs=1), self.start(self.lent.push_start, second, 4, needs=2)]
        self.gate.each(GATE_READY)[1] = 4
        end = time.monotonic() + 20
        while self.gate.each(GATE_DONE)[1] < 4:
            self.assertLess(time.monotonic(), end)
        self.gate.reach(4)
        self.gate.wait(4)
        with self.assertRaisesRegex(embd.Error, "not finite.*; applied by shard 0; refused by shard 1"):
            pushes[0].wait()
        pushes[1].wait()
        self.assertEqual([[shard.tables[table.name]["steps"] for shard in self.client.stats()] for table in (first, second)],
                         [[1, 0], [1, 1]])

    def test_a_shard_that_dies_lets_the_stream_go_on_and_what_needs_the_call_is_made_by_none(self):
        table, _ = self.begin("ab")
        pull = self.start(self.lent.pull_start, table, 1)
        self.cluster.kill("b")
        self.gate.reach(1)
        self.gate.wait(1)
        self.cluster.start("b", waits=False)
        push = self.start(self.lent.push_start, table, 2, needs=1)
        self.gate.reach(2)
        self.gate.wait(2)
        for call in pull, push:
            with self.assertRaises(embd.Error):
                call.wait()
        self.assertGreaterEqual(self.gate.each(GATE_FAILED).min(), 1)
        with embd.connect(self.address, deadline=30) as client:
            self.assertEqual(client.stats()[0].tables[table.name]["steps"], 0)

    def test_a_shard_that_dies_while_its_call_waits_says_what_became_of_a_push(self):
        table, _ = self.begin("ab")
        push = self.start(self.lent.push_start, table, 1)
        self.gate.each(GATE_READY)[0] = 1
        self.gate.wait(1, 1)
        self.cluster.kill("b")
        self.gate.wait(1)
        with self.assertRaisesRegex(embd.Error, "applied by shard 0; unknown of shard 1"):
            push.wait()
        self.assertEqual(self.gate.each(GATE_FAILED).max(), 0)  # of pulls alone: nothing needs a push

    def test_calls_by_an_earlier_map_are_refused_by_all_and_the_next_ones_go_by_the_new_map(self):
        tables = self.begin("ab", durability="durable")
        calls = [self.start(self.lent.push_start, tables[0], 1), self.start(self.lent.pull_start, tables[0], 2)]
        rebalance(self.address, "--weights", "1,3")
        self.gate.reach(2)
        self.gate.wait(2)
        for call in calls:
            with self.assertRaises(embd.Error) as caught:
                call.wait()
            self.assertEqual(caught.exception.status, embd.Status.MOVED)
            self.assertIn("the call was not made", str(caught.exception))
        push = self.start(self.lent.push_start, tables[0], 3)
        self.gate.reach(3)
        push.wait()
        tables[1].push(np.arange(50), np.ones((50, DIM), np.float32))
        self.check(tables)


    def test_a_shard_that_was_started_again_is_lent_the_memory_before_any_shard_has_the_push(self):
        table, _ = self.begin("ab", durability="durable")
        self.gate.reach(2)
        for number in 1, 2:
            self.start(self.lent.push_start, table, number).wait()
            if number == 1:
                self.restart("b")
                self.until_lost(1)
        self.assertEqual(self.steps_of(table), [2, 2])

    def until_lost(self, shard):
        until = time.monotonic() + 30
        while self.client.figures()[shard].is_connected:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def halve(self, restarts):
        """Shard 0 has a push, and shard 1 lacks it while keys are to move."""
        tables = self.begin("ab", durability="durable")
        self.gate.reach(1)
        self.start(self.lent.push_start, tables[0], 1).wait()
        push = self.start(self.lent.push_start, tables[0], 2)
        self.gate.each(GATE_READY)[0] = 2
        self.gate.wait(2, 1)
        if restarts:
            self.cluster.kill("a")
            self.cluster.start("a", waits=False)
            self.assertEqual(embctl(self.address, "wait").returncode, 0)
        ran = []

        def move():
            while not ran or (is_busy(ran[-1]) and "half sent" not in ran[-1].stderr):
                ran.append(embctl(self.address, "rebalance", "--weights", "1,3"))
        mover = threading.Thread(target=move)
        mover.start()
        self.cluster.running["b"].wait_log("hold_taken", 30)
        mover.join(0.5)
        self.assertTrue(mover.is_alive())
        self.gate.reach(2)
        push.wait()
        mover.join()
        self.assertEqual(ran[-1].returncode, 0, ran[-1].stderr)
        for _ in range(2):
            tables[1].push(np.arange(50), np.ones((50, DIM), np.float32))
        self.check(tables)

    def test_keys_do_not_move_while_one_shard_has_a_push_and_another_one_lacks_it(self):
        self.halve(False)

    def test_nor_if_the_one_that_has_it_was_started_again(self):
        self.halve(True)


class Nodes(Shards):
    def test_each_run_goes_to_all_shards(self):
        self.one_process(2)
        nodes = self.client.again(own_thread=False)
        self.addCleanup(nodes.close)
        ours, theirs = self.tables(optimizer="sgd")
        lent, dice = self.memory.lend(nodes), np.random.default_rng(8)
        pull = lent.pull_node(nodes.table(ours.name), 60, 0, ROWS_AT)
        push = lent.push_node(nodes.table(ours.name), 60, 0, ROWS_AT, pull)
        for _ in range(4):
            keys, _ = self.fill(dice, 60)
            run(pull)
            np.testing.assert_array_equal(self.memory.rows(60), theirs.pull(keys))
            gradient = self.memory.rows(60)[:] = dice.standard_normal((60, DIM))
            run(push)
            theirs.push(keys, gradient.astype(np.float32))
            pull.check()
            push.check()
        self.check((ours, theirs))


class Changes(Shards):
    """Keys that move, shards that come and go, servers that are started again."""

    def test_a_shard_that_is_started_again_is_lent_the_memory_again(self):
        self.processes("ab")
        lent, tables, dice = self.memory.lend(self.client), self.tables(durability="durable"), np.random.default_rng(9)
        for name in "ba":
            self.turn(lent, tables, dice)
            self.cluster.end(name)
            self.cluster.start(name, waits=False)
            self.pull(lent, tables, 300)
        self.turn(lent, tables, dice)
        self.check(tables)

    def unnoticed(self, again):
        """A table and memory lent by a client whose thread does not see shard 1 end, which `again` starts anew."""
        self.processes("ab")
        client = self.client.again(own_thread=False)
        self.addCleanup(client.close)
        ours, _ = self.tables(optimizer="sgd", durability="durable")
        lent, table = self.memory.lend(client), client.table(ours.name)
        self.memory.keys(50)[:] = np.arange(50)
        self.memory.rows(50)[:] = 1
        lent.push(table, 50, 0, ROWS_AT)
        self.restart("b", **again)
        return lent, table

    def test_a_push_to_a_shard_that_was_started_again_is_sent_there_again(self):
        lent, table = self.unnoticed({})
        lent.push(table, 50, 0, ROWS_AT)
        self.assertEqual(self.steps_of(table), [2, 2])

    def test_a_push_that_a_shard_refuses_since_it_ends_goes_to_the_one_in_its_place(self):
        self.processes("ab")
        lent, tables = self.memory.lend(self.client), self.tables(durability="durable")
        keys, gradient = self.fill(np.random.default_rng(13), 300)
        server, socket = self.cluster.running["b"], self.cluster.address("b").rsplit(":", 1)[1] + ".sock"
        with wire.Wire(os.path.join(self.cluster.path("admin"), socket)) as admin:
            admin.call("hold", {"timeout_ms": 60000})
            pushing = threading.Thread(target=lent.push, args=(tables[0], 300, 0, ROWS_AT))
            pushing.start()
            wait_for_requests(admin, 1)
            server.terminate()
            server.wait_log("draining")
        server.wait()
        self.restart("b")
        pushing.join()
        tables[1].push(keys, gradient)
        self.check(tables)

    def test_a_push_that_only_some_shards_still_take_is_not_said_to_be_undone(self):
        lent, table = self.unnoticed({"host": "b"})
        with self.assertRaisesRegex(embd.Error, "; applied by shard 0; .* shard 1 .*; it stays applied in part") as caught:
            lent.push(table, 50, 0, ROWS_AT)
        self.assertEqual(caught.exception.status, embd.Status.MOVED)
        self.assertEqual(self.steps_of(table), [2, 1])
        with self.assertRaises(embd.UnsupportedError):
            lent.push(table, 50, 0, ROWS_AT)
        self.assertEqual(self.steps_of(table), [2, 1])

    def test_keys_that_moved_between_calls(self):
        self.processes("ab")
        lent, dice = self.memory.lend(self.client), np.random.default_rng(10)
        tables = [self.tables(partition, durability="durable") for partition in PARTITIONS]
        for words in ("rebalance", "--weights", "1,3"), ("shard", "move", "--vshards", "900-1023", "--to", "0"), \
                ("rebalance", "--drain", "1"), ("rebalance", "--weights", "1,1"):
            for pair in tables:
                self.turn(lent, pair, dice)
            self.move(*words)
        for pair in tables:
            self.turn(lent, pair, dice)
            self.check(pair)

    def move(self, *words):
        if words[0] == "rebalance":
            rebalance(self.address, *words[1:])
        else:
            self.assertEqual(embctl(self.address, *words).returncode, 0)

    def test_keys_that_move_during_calls(self):
        self.processes("abc")
        lent, dice = self.memory.lend(self.client), np.random.default_rng(11)
        tables = self.tables(durability="durable")
        ends = threading.Event()

        def move():
            for weights in "1,2,3", "3,0,1", "1,1,1":
                rebalance(self.address, "--weights", weights)
            ends.set()
        thread = threading.Thread(target=move)
        thread.start()
        while not ends.is_set():
            self.turn(lent, tables, dice, 50)
        thread.join()
        self.turn(lent, tables, dice)
        self.check(tables)
        seen = {table["table"]: {**table, "table": ""} for table in digests(self.address)}
        self.assertEqual(*(seen[table.name] for table in tables))

    def grow(self, name):
        self.cluster.join(name)
        ran = embctl(self.address, "shard", "add", self.cluster.address(name))
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_a_cluster_that_grows_and_shrinks(self):
        self.processes("abc", listed=1)
        lent, dice = self.memory.lend(self.client), np.random.default_rng(12)
        tables = self.tables(durability="durable")
        for shards, name in (2, "b"), (3, "c"):
            self.turn(lent, tables, dice)
            self.grow(name)
            self.turn(lent, tables, dice)
            rebalance(self.address, "--weights", ",".join("1" * shards))
            self.turn(lent, tables, dice)
            self.assertEqual(len(self.client.shards), shards)
        rebalance(self.address, "--drain", "2")
        ran = embctl(self.address, "shard", "retire", "2")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.cluster.kill("c")
        self.turn(lent, tables, dice)
        self.assertEqual(len(self.client.shards), 2)
        self.check(tables)

    def test_calls_of_streams_in_a_cluster_that_grows(self):
        self.processes("ab", listed=1)
        lent, gate = self.memory.lend(self.client), Gate(self.client, 2)
        ours, theirs = self.tables(durability="durable")
        self.memory.keys(50)[:] = np.arange(50)
        self.memory.rows(50)[:] = 1
        gate.reach(10)

        def push(number):
            call = lent.push_start(ours, 50, 0, ROWS_AT, gate.words, number)
            gate.wait(number, call.shards)
            call.wait()
            theirs.push(np.arange(50), np.ones((50, DIM), np.float32))
            return call.shards
        self.assertEqual(push(1), 1)
        self.grow("b")
        with self.assertRaises(embd.Error) as caught:
            push(2)
        self.assertEqual(caught.exception.status, embd.Status.MOVED)
        self.assertEqual(push(3), 2)
        self.check((ours, theirs))

    def leave(self):
        """Shard 1 leaves, once it was started again and answers by another connection."""
        self.restart("b")
        rebalance(self.address, "--drain", "1")
        ran = embctl(self.address, "shard", "retire", "1")
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_lending_follows_a_cluster_that_has_shrunk(self):
        self.processes("ab")
        self.tables(durability="durable")
        self.leave()
        self.memory.lend(self.client)
        self.assertEqual(len(self.client.shards), 1)

    def test_calls_of_streams_follow_a_cluster_that_has_shrunk(self):
        self.processes("ab")
        lent, gate = self.memory.lend(self.client), Gate(self.client, 2)
        ours, theirs = self.tables(durability="durable")
        self.fill(np.random.default_rng(14), 50)
        gate.reach(10)
        self.leave()
        call = lent.pull_start(ours, 50, 0, ROWS_AT, gate.words, 1)
        self.assertEqual(call.shards, 1)
        call.wait()
        np.testing.assert_array_equal(self.memory.rows(50), theirs.pull(self.memory.keys(50).copy()))


if test_device.torch is not None:
    class Torch(test_device.Torch):
        """Modules on memory that two shards take."""

        shards = 2

    class TorchBlocking(Torch):
        in_order = False


if __name__ == "__main__":
    clusters.main()
