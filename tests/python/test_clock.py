"""Trainers in step, as processes: how far ahead anybody got, a worker that dies, one that stops and comes back."""
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import clusters
import embd

# A worker that writes its finished iterations into a table, where the others see them, and says how far behind the
# slowest it ever saw was. Each worker's pace differs from turn to turn.
WORKER = """
import sys, time, numpy as np, embd
address, job, worker, workers, staleness, n = *sys.argv[1:3], *(int(a) for a in sys.argv[3:7])
client = embd.connect(address)
table = client.table("clocks")
clock = embd.Clock(client, job, worker=worker, workers=workers, staleness=None if staleness < 0 else staleness, lease=3)
random, most = np.random.default_rng(worker), 0
for i in range(n):
    clock.wait(30)
    seen = table.pull(np.arange(workers))[:, 0]
    most = max(most, i - int(seen.min()))
    time.sleep(random.random() * 0.004 * (worker + 1))
    table.push_start([worker], [[-1.0]])
    clock.tick()
clock.leave()
print(most)
"""


class Clocks(clusters.ClusterTest):
    shards = 2

    def setUp(self):
        super().setUp()
        self.job = self.id().rsplit(".", 1)[1][:63]  # jobs outlive a test, by their leases
        self.client.create_table("clocks", 1, optimizer=embd.Optimizer("sgd", lr=1.0),
                                 initializer=embd.Initializer("constant", 0.0))

    def worker(self, number, workers, staleness, n=30):
        process = subprocess.Popen([sys.executable, "-B", "-c", WORKER, self.server.addresses[0], self.job,
                                    *(str(a) for a in (number, workers, staleness, n))], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        return process

    def run_all(self, staleness):
        """How far ahead of the slowest each worker has been."""
        processes = [self.worker(number, 3, staleness) for number in range(3)]
        said = [process.communicate(timeout=100)[0] for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0, 0])
        np.testing.assert_array_equal(self.client.table("clocks").pull([0, 1, 2])[:, 0], [30, 30, 30])
        return [int(text) for text in said]

    def test_bulk_synchronous_workers_see_each_others_steps(self):
        self.assertEqual(max(self.run_all(0)), 0)

    def test_stale_synchronous_workers_are_within_their_bound(self):
        self.assertLessEqual(max(self.run_all(2)), 2)

    def test_asynchronous_workers_do_not_wait(self):
        self.run_all(-1)

    def clocks(self, n, **options):
        clients = [embd.connect(self.server.addresses[0]) for _ in range(n)]
        for client in clients:
            self.addCleanup(client.close)
        return [embd.Clock(client, self.job, worker=i, workers=n, **options)
                for i, client in enumerate(clients)]

    def test_a_dead_worker_is_dropped_after_its_lease_and_reported(self):
        dead = self.worker(1, 2, 0, n=10**6)
        alive = embd.Clock(self.client, self.job, worker=0, workers=2, lease=3)
        for _ in range(3):
            alive.wait(20)
            alive.tick()
        os.kill(dead.pid, signal.SIGKILL)
        dead.wait()
        start = time.monotonic()
        alive.tick()
        alive.tick()
        report = alive.wait(20)
        self.assertEqual((report.live, report.dropped), (1, [1]))
        self.assertLess(time.monotonic() - start, 15)

    def test_a_worker_that_does_nothing_lives_and_whom_the_job_waits_for_is_told(self):
        a, b = self.clocks(2, lease=0.5)
        a.renew()
        with self.assertRaisesRegex(embd.DeadlineError, "the job waits for worker 1, which has not joined"):
            a.value = 1
            a.wait(0.1)
        b.renew()
        time.sleep(1.5)
        self.assertEqual(a.renew(), embd.ClockReport(0, 2, []))
        with self.assertRaisesRegex(embd.DeadlineError, r"is at 0, worker 0 at 1 .* waits for worker 1, last seen 0\.\d s ago, at clock 0"):
            a.wait(0.1)
        table = a.client.table("clocks")
        with self.assertRaisesRegex(embd.DeadlineError, "job '.*' waits for worker 1, last seen .* ago, at clock 0"):
            table.push([1], [[1.0]], round=a, deadline=1.0)

    def replaced(self, **options):
        """The clocks of two workers that are at 5, the second of which is another process now."""
        a, b = self.clocks(2, **options)
        for clock in (a, b) * 5:
            clock.tick()
        client = embd.connect(self.server.addresses[0])
        self.addCleanup(client.close)
        return a, b, embd.Clock(client, self.job, worker=1, workers=2, **options)

    def test_another_process_joins_where_the_job_is_and_the_one_before_is_refused(self):
        a, b, again = self.replaced()
        with self.assertRaisesRegex(embd.LateError, "the job passed clock 0 without it and is at") as late:
            again.wait(20)
        self.assertEqual((late.exception.clock, again.value), (5, 5))
        self.assertEqual(again.wait(20), embd.ClockReport(5, 2, []))
        with self.assertRaisesRegex(embd.InvalidError, "another process now"):
            b.tick()

    def test_steps_go_on_where_the_job_is(self):
        a, _, again = self.replaced()
        other = threading.Thread(target=lambda: list(a.steps(8)))
        with self.assertWarnsRegex(embd.WorkerWarning, "it goes on at 5"):
            steps = again.steps(8)
            self.assertEqual(next(steps), 5)
            other.start()
            self.assertEqual([(step, again.value) for step in steps], [(6, 6), (7, 7)])
        other.join(20)
        self.assertEqual(a.value, 8)

    def test_a_late_push_says_so_and_joins_where_the_job_is(self):
        a, _, again = self.replaced()
        again.value = 4
        with self.assertRaises(embd.LateError) as late:
            again.client.table("clocks").push([1], [[1.0]], round=again)
        self.assertEqual((late.exception.clock, again.value), (5, 5))
        calls = [clock.client.table("clocks").push_start([1], [[1.0]], round=clock) for clock in (again, a)]
        for call in calls:
            call.wait()
        self.assertEqual(self.client.table("clocks").pull([1])[0, 0], -1.0)

    def test_an_asynchronous_worker_is_at_its_own_clock(self):
        *_, again = self.replaced(staleness=None)
        self.assertEqual(again.wait(20).slowest, 0)
        again.tick()
        self.assertEqual(again.value, 1)

    def test_a_block_that_fails_leaves_its_job(self):
        a, b = self.clocks(2)
        a.renew()
        with self.assertRaises(ZeroDivisionError):
            with b:
                b.renew()
                raise ZeroDivisionError
        self.assertEqual(a.renew(), embd.ClockReport(0, 1, []))

    def test_nobody_goes_on_before_all_are_there(self):
        a, b = self.clocks(2)
        a.tick()
        self.assertRaises(embd.DeadlineError, a.wait, 0.1)
        waiting = threading.Thread(target=a.wait, args=(20,))
        waiting.start()
        b.tick()
        waiting.join(20)
        self.assertFalse(waiting.is_alive())
        b.leave()
        a.tick()
        self.assertEqual(a.wait(), embd.ClockReport(2, 1, []))

    def rounds(self, table, order, lease=5.0):
        """One push of each worker, begun in this order; the n-th worker pushes 2**n, so that their mean is exact."""
        clocks = self.clocks(len(order), lease=lease)
        started = []
        for worker in order:
            items = clocks[worker].client.table(table)
            started.append(items.push_start([1, 2 + worker], [[2.0 ** worker]] * 2, round=clocks[worker]))
            started[-1].done()
            time.sleep(0.02)
            self.assertEqual([call.done() for call in started], [len(started) == len(order)] * len(started))
        for call in started:
            call.wait()
        return clocks

    def test_pushes_of_a_round_are_one_step_whatever_came_first(self):
        for i, order in enumerate(([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0])):
            name = f"round{i}"
            table = self.client.create_table(name, 1, optimizer=embd.Optimizer("sgd", lr=1.0),
                                             initializer=embd.Initializer("constant", 0.0))
            self.job = f"{name}-job"
            for clock in self.rounds(name, order):
                clock.tick()
                clock.leave()
            np.testing.assert_array_equal(table.pull(range(1, 6))[:, 0], [-15 / 4, -1 / 4, -2 / 4, -4 / 4, -8 / 4])
            steps = [shard.tables[name]["steps"] for shard in self.client.stats()]
            self.assertEqual(steps, [1] * len(steps))

    def test_a_dead_worker_is_dropped_from_rounds_after_its_lease(self):
        self.job = "lone-job"
        a, b = self.rounds("clocks", [0, 1], lease=0.5)
        a.value = b.value = 1
        b.client.close()  # its signs of life end
        start = time.monotonic()
        a.client.table("clocks").push([9], [[4.0]], round=a)  # not divided: it is alone
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(self.client.table("clocks").pull([9])[0, 0], -4.0)
        with self.assertRaisesRegex(embd.InvalidError, "pushed up to 1 already"):
            a.client.table("clocks").push([9], [[4.0]], round=a)
        with self.assertRaisesRegex(embd.InvalidError, "this call has a round; only a push may have one"):
            a.client.table("clocks").pull([9], round=a)

    def test_what_is_out_of_range_is_named(self):
        a, _ = self.clocks(2)
        a.tick()
        for options, word in (({"worker": 2, "workers": 2}, "worker: 2"), ({"worker": 0, "workers": 0}, "workers"),
                              ({"worker": 0, "workers": 1025}, "1025"), ({"worker": 0, "workers": 3}, "has 2"),
                              ({"worker": 0, "workers": 2}, "decreases from 1 to 0"),
                              ({"worker": 0, "workers": 2, "lease": 0.01}, "lease_ms")):
            with self.assertRaisesRegex(embd.InvalidError, word):
                embd.Clock(a.client, self.job, **options).renew()


if __name__ == "__main__":
    clusters.main()
