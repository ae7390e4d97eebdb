"""Synchronous training with a worker that is killed, stopped, asleep, or started again, at every place of its loop: the
others go on within a lease and say who is missing, and n clocks are n steps of every shard, never one more.

A machine may be too busy to let a process that lives give a sign of life within its lease. Then the run is made again,
with a lease twice as long.

EMBD_TRAINERS=all tries every number of workers and shards with every fault at every place, 96 runs instead of 16."""
import json
import os
import signal
import sys
import time
import unittest
import warnings

import numpy as np

import clusters
import embd
from embd_process import Embd

N, AT, KEYS, DIM = 40, 5, 64, 4
LEASE, PACE = 2.0, 0.12
PAUSES = 2.5  # leases: of a worker that stops or sleeps
LONGEST_LEASE = 16.0
BOUND = 120  # seconds: of a run on a slow machine
AT_ONCE = 8
PLACES = ("before the wait", "between wait and push", "between push and tick", "after the tick")
FAULTS = ("killed", "stopped", "asleep")
EMULATED = os.path.join(os.environ["EMBD_BIN"], "embd-cuda-emulated")


class Trainer:
    """One worker, in a process of its own. With `by_hand` its loop is that of wait, push and tick, else steps()."""

    def __init__(self, address, job, rank, workers, lease, fault, place, by_hand):
        self.client = embd.connect(address, deadline=BOUND)
        self.table = self.client.create_table(job, DIM, optimizer=embd.Optimizer("sgd", lr=1.0),
                                              initializer=embd.Initializer("constant", 0), durability="snapshot")
        self.clock = embd.Clock(self.client, job, worker=rank, workers=workers, lease=lease)
        self.fault, self.place, self.by_hand, self.late = fault, place, by_hand, 0
        self.rank, self.pause = rank, lease * PAUSES
        wait, tick = self.clock.wait, self.clock.tick
        self.clock.wait = lambda deadline=None: (self.at(PLACES[0]), wait(deadline))[1]
        self.clock.tick = lambda: (tick(), self.at(PLACES[3], 1))[0]

    def at(self, place, ticks=0):
        if place != self.place or self.clock.value - ticks != AT:
            return
        self.place = None
        if self.fault == "asleep":
            time.sleep(self.pause)
        elif self.fault is not None:
            os.kill(os.getpid(), signal.SIGSTOP if self.fault == "stopped" else signal.SIGKILL)

    def push(self):
        gradients = np.ones((KEYS, DIM), np.float32)
        if self.rank % 2:
            self.table.push_start(np.arange(KEYS), gradients, round=self.clock)
        else:
            self.table.push(np.arange(KEYS), gradients, round=self.clock)

    def step(self):
        time.sleep(PACE)
        self.at(PLACES[1])
        self.push()
        self.at(PLACES[2])

    def run(self):
        with self.clock as clock:
            if not self.by_hand:
                for _ in clock.steps(N):
                    self.step()
            while clock.value < N:
                try:
                    clock.wait()
                    self.step()
                    clock.tick()
                except embd.LateError as error:
                    assert error.clock == clock.value, (error.clock, clock.value)
                    self.late += 1
        return clock.value


def child(out, *arguments):
    """Runs a trainer and never returns; what became of it goes to a pipe."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            trainer = Trainer(*arguments)
            result = {"end": trainer.run(), "late": trainer.late}
        except BaseException as error:  # pylint: disable=broad-except
            result = {"error": repr(error)}
    result["said"] = [str(warning.message) for warning in said]
    os.write(out, json.dumps(result).encode())
    os._exit(0)


class Run:
    """The workers of a job, one of which has a fault."""

    def __init__(self, server, number, workers, fault, place, lease=LEASE):
        self.server, self.workers, self.fault, self.place = server, workers, fault, place
        self.number, self.lease = number, lease
        self.job, self.victim = f"job-{number}-{lease:.0f}", number % workers
        self.by_hand = number % 2 == 0
        self.name = f"{fault} {place}, worker {self.victim} of {workers}, {len(server.addresses)} shards, " \
                    f"{'by hand' if self.by_hand else 'steps()'}"
        self.results, self.pids, self.goes_on, self.end = {}, {}, None, time.monotonic() + BOUND
        for rank in range(workers):
            self.start(rank, fault.split()[0] if rank == self.victim else None)

    def start(self, rank, fault):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(write, self.server.addresses[0], self.job, rank, self.workers, self.lease, fault, self.place,
                  self.by_hand)
        os.close(write)
        self.pids[rank] = pid, read

    def look(self):
        """Lets it go on; whether all have ended."""
        for rank, (pid, read) in list(self.pids.items()):
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if ended and os.WIFSTOPPED(status):
                self.goes_on = time.monotonic() + self.lease * PAUSES
            elif ended:
                self.take(rank, read)
        if self.goes_on is not None and time.monotonic() > self.goes_on:
            os.kill(self.pids[self.victim][0], signal.SIGCONT)
            self.goes_on = None
        if time.monotonic() > self.end:
            self.kill()
        return not self.pids

    def take(self, rank, read):
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read()
        del self.pids[rank]
        if said:
            self.results[rank] = json.loads(said)
        elif self.fault == "killed and started again" and rank == self.victim and rank not in self.results:
            self.results[rank] = {}
            self.start(rank, None)

    def kill(self):
        for pid, read in self.pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(read)
        self.pids = {}

    def steps(self):
        """Of every shard, and the value of every key."""
        with embd.connect(self.server.addresses[0]) as client:
            values = set(client.table(self.job).pull(range(KEYS)).ravel().tolist())
            return [shard.tables[self.job]["steps"] for shard in client.stats()], values

    def again(self):
        """The same with twice the lease, where a worker was dropped that gave signs of life; else None."""
        lives = [rank for rank in range(self.workers) if rank != self.victim or self.fault == "asleep"]
        said = " ".join(text for result in self.results.values() for text in result.get("said", []))
        if self.lease == LONGEST_LEASE or not any(f"worker {rank} of job '{self.job}' was dropped" in said for rank in lives):
            return None
        return Run(self.server, self.number, self.workers, self.fault, self.place, 2 * self.lease)

    def check(self, test):
        lives = [rank for rank in range(self.workers) if rank != self.victim or self.fault != "killed"]
        test.assertEqual(sorted(self.results), lives, "who came to an end in time")
        test.assertEqual([self.results[rank].get("end") for rank in lives], [N] * len(lives), self.results)
        test.assertEqual(self.steps(), ([N] * len(self.server.addresses), {-float(N)}))
        dropped = f"worker {self.victim} of job '{self.job}' was dropped"
        for rank in lives:
            said = " ".join(self.results[rank]["said"])
            if self.fault == "asleep":
                test.assertEqual((said, self.results[rank]["late"]), ("", 0))
            elif rank != self.victim and self.fault != "killed and started again":
                test.assertIn(dropped, said)


class Trainers(unittest.TestCase):
    def run_all(self, wanted):
        """(server, workers, fault, place) each, some at once."""
        waiting, running, done = [(i, *run) for i, run in enumerate(wanted)], [], []
        try:
            while waiting or running:
                while waiting and len(running) < AT_ONCE:
                    number, server, *rest = waiting.pop(0)
                    running.append(Run(server, number, *rest))
                ended = [run for run in running if run.look()]
                running = [run for run in running if run not in ended]
                again = {run: run.again() for run in ended}
                running += filter(None, again.values())
                done += [run for run in ended if again[run] is None]
                time.sleep(0.02)
        finally:
            for run in running:
                run.kill()
        for run in done:
            with self.subTest(run.name):
                run.check(self)

    def server(self, *flags, **options):
        server = Embd("--http", "off", *flags, **options)
        self.addCleanup(server.stop)
        return server

    def test_every_fault_at_every_place(self):
        servers = {shards: self.server(shards=shards) for shards in (1, 3)}
        if os.environ.get("EMBD_TRAINERS") == "all":
            runs = [(servers[shards], workers, fault, place) for shards in servers for workers in (2, 3, 4, 5)
                    for fault in FAULTS for place in PLACES]
        else:
            runs = [(servers[(1, 3)[(i + j) % 2]], 2 + (i + 2 * j) % 4, fault, place)
                    for j, fault in enumerate(FAULTS) for i, place in enumerate(PLACES)]
        runs += [(servers[3], 3, "killed and started again", PLACES[2]), (servers[1], 2, "killed and started again", PLACES[0])]
        if os.path.exists(EMULATED):
            emulated = self.server("--store", "cuda", program=EMULATED, ready_s=60)
            runs += [(emulated, 3, "killed", PLACES[1]), (emulated, 2, "stopped", PLACES[1])]
        self.run_all(runs)


if __name__ == "__main__":
    assert sys.version_info and clusters
    unittest.main()
