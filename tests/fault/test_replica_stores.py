"""A replica has a store and memory of its own: rows in the memory of the host for a server with GPUs, and on a GPU for a server without
one (emulated here). What it promises is the same, also while readers keep the GPU busy. With less memory than its server has, it says so."""
import os
import re
import resource
import threading
import time
import unittest

import test_replicas  # as modules, so that their tests do not run here again
import test_replicas_anew
import wire
from test_follow import BIN, Follow, embctl, wait_for
from test_replicas import PLACES, Trainer, pull

EMULATED = os.path.join(BIN, "embd-cuda-emulated")


class Stores(Follow):
    on_gpu = ""  # who of the two has its rows on a GPU

    def start(self, data, port, *flags, **options):
        is_gpu = data == self.on_gpu
        self.program = EMULATED if is_gpu else os.path.join(BIN, "embd")
        return super().start(data, port, *(["--store", "cuda"] if is_gpu else []), *flags, **options)


class OfAServerWithGpus(Stores, test_replicas.Replica):
    on_gpu = "primary"
    test_every_pull = test_replicas.Replicas.test_every_pull_is_the_table_at_a_position_and_never_an_earlier_one
    test_the_lag = test_replicas.Replicas.test_what_was_acknowledged_before_the_lag_that_an_answer_tells_is_there


class OnGpus(Stores, test_replicas.Replica):
    on_gpu, wide = "follower", 1024  # the emulator takes its time for each key
    test_every_pull = test_replicas.Replicas.test_every_pull_is_the_table_at_a_position_and_never_an_earlier_one
    test_the_lag = test_replicas.Replicas.test_what_was_acknowledged_before_the_lag_that_an_answer_tells_is_there
    test_no_row = test_replicas.Replicas.test_pulls_on_it_make_no_row_and_count_no_candidate
    test_half_sent_answers = test_replicas.Replicas.test_half_sent_answers_outlive_a_follower_that_begins_anew


class Reader(threading.Thread):
    """Has one pull under way all the time."""

    def __init__(self, replica, table):
        super().__init__(daemon=True)
        self.replica, self.table, self.stops, self.n, self.wrong = replica, table, threading.Event(), 0, None

    def run(self):
        with wire.connect(self.replica, timeout=60) as peer:
            while not self.stops.is_set():
                try:
                    pull(peer, self.table, PLACES * 32)
                    self.n += 1
                except wire.RpcError as e:
                    self.wrong = e
                    return

    def end(self):
        self.stops.set()
        self.join(60)


class BusyGpus(Stores, test_replicas_anew.Anew):
    on_gpu, wide = "follower", 1024

    def setUp(self):
        super().setUp()
        os.environ["EMBD_STAND_IN_POLLS"] = "2000"  # a call of the device takes as many turns of the shard, or looks
        self.addCleanup(os.environ.pop, "EMBD_STAND_IN_POLLS")

    # Its answers are made as a whole: none waits for room. The others have nothing to do with a store.
    test_beginning_anew_waits_for_answers_that_have_no_room = None
    test_an_older_base_is_not_shown_and_not_called_fresh = None
    test_a_dump_of_a_replica_ends_with_a_table_that_goes = None

    def readers(self, replica, table, n=4):
        readers = [Reader(replica, table) for _ in range(n)]
        for reader in readers:
            reader.start()
            self.addCleanup(reader.end)
        return readers

    def test_records_come_while_pulls_are_always_under_way(self):
        primary, replica, table = self.both()
        readers = self.readers(replica, table)
        wait_for(lambda: all(reader.n > 1 for reader in readers), replica.log)
        trainer = Trainer(primary, table, 200)
        trainer.start()
        trainer.join(60)
        with wire.connect(primary) as peer:
            there = pull(peer, table, PLACES)[1]
            wire.create(peer, "b", durability="buffered")  # a record that needs the tables alone
        with wire.connect(replica) as peer:
            wait_for(lambda: pull(peer, table, PLACES)[1] == there, replica.log)
            wait_for(lambda: "b" in [t["name"] for t in peer.call("tables")[0]["tables"]], replica.log)
        self.assertTrue(all(reader.wrong is None and reader.is_alive() for reader in readers))
        for reader in readers:
            reader.end()
        self.compare(primary, replica)

    def test_it_begins_anew_while_pulls_are_under_way(self):
        primary, replica, table, between = self.with_base()
        readers = self.readers(replica, table)
        wait_for(lambda: all(reader.n > 1 for reader in readers), replica.log)
        between.says_gone = True
        replica.wait_log("follow_begins_anew", 20)
        between.passes.set()
        wait_for(lambda: all(not reader.is_alive() for reader in readers), replica.log)
        self.assertEqual({reader.wrong.number for reader in readers}, {wire.LOADING})
        self.compare(primary, replica)
        self.assertEqual(replica.log().count("follow_has_base"), 2)
        with wire.connect(replica) as peer:
            wait_for(lambda: self.refused(peer, table) is None, replica.log)
            self.assertEqual(pull(peer, table, [1])[1], [2.0])

    def test_it_is_promoted_while_pulls_are_under_way(self):
        primary, replica, table = self.both()
        readers = self.readers(replica, table)
        wait_for(lambda: all(reader.n > 1 for reader in readers), replica.log)
        primary.kill()
        ran = embctl(replica, "promote")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        with wire.connect(replica) as peer:
            wire.push(peer, table, [1], [-2.0] * 4)
            self.assertEqual(pull(peer, table, [1, 2])[1], [2.0, 1.0])
        self.assertTrue(all(reader.wrong is None for reader in readers))


class Memory(test_replicas.Replica):
    EACH, DIM = 2000, 64

    def push(self, primary, pushes):
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", dim=self.DIM, durability="buffered")
            for i in pushes:
                wire.push(peer, table, range(i * self.EACH, (i + 1) * self.EACH), [-2.0] * self.DIM * self.EACH)

    def test_row_memory_of_its_own_refuses_nothing_and_the_log_says_so(self):
        primary, replica = self.start_primary(), self.start_replica("--row-memory", "4M")
        self.push(primary, range(20))
        self.assertEqual(self.compare(primary, replica)["a"]["rows"], 20 * self.EACH)
        wait_for(lambda: "row_memory_low" in replica.log(), replica.log)
        self.assertIn("a follower refuses none of them", replica.log())
        self.assertNotIn("pushes without room", replica.log())
        replica.kill()
        replica = self.start_replica("--row-memory", "4M")
        self.compare(primary, replica)

    def test_without_memory_it_falls_behind_or_ends_and_goes_on_with_more(self):
        primary, replica = self.start_primary(), self.start_replica()
        self.push(primary, range(1))
        self.compare(primary, replica)
        with open(f"/proc/{replica.pid}/status", encoding="ascii") as status:
            text = status.read()
        size, data = (int(re.search(rf"{name}:\s+(\d+)", text)[1]) << 10 for name in ("VmSize", "VmData"))
        if size > 1 << 40:
            self.skipTest("a sanitizer has memory of its own")
        resource.prlimit(replica.pid, resource.RLIMIT_DATA, (data + (24 << 20), resource.RLIM_INFINITY))
        self.push(primary, range(80))
        wait_for(lambda: "no memory" in replica.log() or not replica.is_alive(), replica.log)
        time.sleep(1)
        if not replica.is_alive():
            self.assertIn(replica.wait(), (1, 74), replica.log())
            self.assertRegex(replica.log(), r'record_not_applied|follow_failed why="no memory')
        self.assertNotIn("follow_begins_anew", replica.log())
        replica.kill()
        replica = self.start_replica()
        self.assertEqual(self.compare(primary, replica)["a"]["rows"], 80 * self.EACH)
        self.assertNotIn("follow_begins_anew", replica.log())


if __name__ == "__main__":
    unittest.main()
