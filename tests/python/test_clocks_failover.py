"""Workers in step (embd.Clock) on servers with failover, each of a primary and a follower: primaries are killed with -9 while a request
is on its way there, a server becomes a member, keys move, and it leaves. Clocks, numbered pushes and pushes of rounds raise nothing, no worker
is late or dropped, and each step is made once on each shard. Skipped where there is no etcd. EMBD_CLOCKS_KILLS=n: how many kills there are; 3
without it."""
import os
import threading
import time
import warnings

import numpy as np

import clusters
import embd
from test_failover import SECONDS
from test_growth_failover import Changing

KILLS = int(os.environ.get("EMBD_CLOCKS_KILLS", "3"))
WORKERS, STEP_KEYS = 2, 16
KEYS = np.arange(256)


class Ticker(threading.Thread):
    """A job of one worker, which does nothing but tick: when its shard dies, a tick is on its way."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.clock = embd.Clock(embd.connect(servers, deadline=SECONDS), "ticks", worker=0, workers=1, lease=SECONDS)
        self.stops, self.acked, self.wrong = threading.Event(), set(), None

    def run(self):
        try:
            with self.clock:
                while not self.stops.is_set():
                    self.clock.tick()
                    self.acked.add(self.clock.value)
        except embd.Error as error:
            self.wrong = error


class Worker(threading.Thread):
    """In each step it pushes in a round to keys of that step alone, and with a number to the same keys as always."""

    def __init__(self, servers, rank):
        super().__init__(daemon=True)
        self.client = embd.connect(servers, deadline=SECONDS)
        options = {"initializer": embd.Initializer("constant", 0.0), "optimizer": embd.Optimizer("sgd", lr=1.0), "durability": "replicated"}
        self.steps, self.sums = (self.client.create_table(name, 1, **options) for name in ("steps", "sums"))
        self.clock = embd.Clock(self.client, "job", worker=rank, workers=WORKERS, lease=SECONDS)
        self.stops, self.acked, self.wrong, self.numbered = threading.Event(), set(), None, 0

    def run(self):
        try:
            with self.clock, warnings.catch_warnings():
                warnings.simplefilter("error", embd.WorkerWarning)
                for step in self.clock.steps(1 << 30):
                    if self.stops.is_set():
                        break
                    self.step(step)
        except Exception as error:  # pylint: disable=broad-except
            self.wrong = error

    def step(self, step):
        self.steps.push(step * STEP_KEYS + np.arange(STEP_KEYS), -np.ones((STEP_KEYS, 1)), round=self.clock)
        self.acked.add(step)
        self.sums.push(KEYS, -np.ones((len(KEYS), 1)))
        self.numbered += 1


class Clocks(Changing):
    def begin_workers(self):
        self.begin_all()
        self.workers = [Worker(self.addresses(), rank) for rank in range(WORKERS)]
        self.threads = [*self.workers, Ticker(self.addresses())]
        for thread in self.threads:
            self.addCleanup(thread.stops.set)
            thread.start()
        self.go_on()

    def go_on(self):
        """Each is told of more steps."""
        before = [len(thread.acked) for thread in self.threads]
        self.until(lambda: all(len(t.acked) > n + 10 or t.wrong for t, n in zip(self.threads, before)))
        self.assertEqual([thread.wrong for thread in self.threads], [None] * len(before), self.logs())

    def lose_primary(self, server):
        """What is sent to it while it stands still gets no answer."""
        self.until(lambda: self.even({name[0] for name in self.servers}))
        name = self.name_of(server)
        self.servers[name].pause()
        time.sleep(0.3)
        self.kill(name)
        self.until(lambda: self.primary_of(server) is not None)
        self.start(name)
        self.go_on()

    def end(self):
        for thread in self.threads:
            thread.stops.set()
        for thread in self.threads:
            thread.join(SECONDS + 30)
            self.assertFalse(thread.is_alive(), "a worker hangs")
        self.assertEqual([thread.wrong for thread in self.threads], [None] * len(self.threads), self.logs())

    def check(self):  # pylint: disable=arguments-differ
        self.end()
        n = 1 + max(set().union(*(worker.acked for worker in self.workers)))
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            made = client.table("steps").pull(np.arange(n * STEP_KEYS)).reshape(n, STEP_KEYS)
            sums = client.table("sums").pull(KEYS)
            again = sum(shard.shard["pushes_again"] for shard in client.stats())
        self.assertEqual(set(np.unique(sums)), {float(sum(worker.numbered for worker in self.workers))}, self.logs())
        for step in range(n):
            self.assertEqual(set(made[step]), {1.0}, f"step {step}: {made[step]}\n{self.logs()}")
        print(f"{n} steps; {again} pushes that had been made came again to the servers that are there now")

    def test_primaries_die_beside_workers_in_step(self):
        self.begin_workers()
        for i in range(KILLS):
            self.lose_primary("ab"[i % 2])
        self.check()

    def test_servers_come_and_leave_beside_workers_in_step(self):
        """One that becomes a member dies when it has keys."""
        self.begin_workers()
        self.join()
        self.change("shard", "add", self.servers["c1"].addresses[0])
        self.go_on()
        self.change("rebalance")
        self.go_on()
        self.lose_primary("c")
        self.until(lambda: self.even("abc"))
        self.change("rebalance", "--drain", "2")
        self.change("shard", "retire", "2")
        self.go_on()
        self.check()


if __name__ == "__main__":
    clusters.main()
