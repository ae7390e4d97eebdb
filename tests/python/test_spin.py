"""Where small calls follow each other closely over TCP, client and shard look at their sockets for some microseconds before they
sleep. Where they do not, or EMBD_SPIN_US and local_spin say so, both sleep at once."""
import os
import resource
import time
import unittest

import numpy as np

from test_local import LocalCase, environment

CALLS = 100
PATIENCE_S = 60  # other programs may have the processors


def thread_of(pid, name):
    """Its number."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm") as comm:
            if comm.read().strip() == name:
                return int(task)
    raise AssertionError(f"no thread {name}")


def sleeps(pid, thread):
    """How often a thread of this name gave its processor up to wait."""
    with open(f"/proc/{pid}/task/{thread_of(pid, thread)}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))


class Spinning(LocalCase):
    def table(self, server, spin_us):
        with environment(EMBD_SPIN_US=spin_us):
            client = self.connect(server, "tcp", own_thread=False)
        return client.create_table("t", dim=4)

    def open(self, spin_us, *settings):
        server = self.start(*settings)
        return server, self.table(server, spin_us)

    def asleep(self, server, table, pause_s=0.0):
        """How often the client and the shard slept for CALLS pulls."""
        keys, rows = np.arange(64, dtype=np.uint64), np.empty((64, 4), np.float32)
        client = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        shard = sleeps(server.process.pid, "embd-shard-0")
        for _ in range(CALLS):
            table.pull(keys, out=rows)
            time.sleep(pause_s) if pause_s else None
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - client, sleeps(server.process.pid, "embd-shard-0") - shard

    def find_both_awake(self, server, table, most=CALLS / 3):
        least, end = (CALLS, CALLS), time.monotonic() + PATIENCE_S
        while max(least) > most and time.monotonic() < end:
            least = tuple(map(min, least, self.asleep(server, table)))
        self.assertLessEqual(max(least), most, "client and shard slept so often")

    @unittest.skipIf(os.cpu_count() < 2, "needs a processor for each side")
    def test_calls_that_follow_closely_find_both_awake(self):
        self.find_both_awake(*self.open("1000", "--local-spin", "1000"))

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs a processor for each side")
    def test_and_where_each_is_pinned_to_a_processor_of_its_own(self):
        mine = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, mine)
        shard, client = sorted(mine)[:2]
        os.sched_setaffinity(0, {shard})
        server = self.start("--local-spin", "1000")
        os.sched_setaffinity(0, {client})
        # Neither can leave its processor where another program wants it; without looking nearly every call sleeps.
        self.find_both_awake(server, self.table(server, "1000"), CALLS * 3 / 4)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs a processor for each side")
    def test_and_where_cpus_pins_the_shard(self):
        mine = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, mine)
        client, shard = sorted(mine)[:2]
        server = self.start("--local-spin", "1000", "--cpus", str(shard))
        self.assertEqual(os.sched_getaffinity(thread_of(server.process.pid, "embd-shard-0")), {shard})
        os.sched_setaffinity(0, {client})
        self.find_both_awake(server, self.table(server, "1000"), CALLS * 3 / 4)

    def test_without_it_both_sleep_for_every_call(self):
        server, table = self.open("0", "--local-spin", "0")
        most, end = (0, 0), time.monotonic() + PATIENCE_S
        while min(most) <= CALLS / 2 and time.monotonic() < end:
            most = tuple(map(max, most, self.asleep(server, table)))
        self.assertGreater(min(most), CALLS / 2, "one of them does not sleep")

    def test_calls_that_come_now_and_then_find_the_shard_asleep(self):
        server, table = self.open("0")
        _, shard = self.asleep(server, table, pause_s=0.003)
        self.assertGreater(shard, CALLS / 2)


if __name__ == "__main__":
    unittest.main()
