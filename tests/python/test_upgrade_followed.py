"""A cluster with followers is upgraded process by process while trainers push: first the followers, then the server that they follow,
whose place one of them takes. No call of a trainer fails, each push is there once, and at the end all have the same. Once with failover
in etcd, and once without it: there the follower is promoted by a start at the server's address.

EMBD_OLD=PATH is the `embd` of another version; without it the test is skipped. EMBD_UPGRADES=n: how many upgrades of each kind; 1
without it. It prints the longest time from one acknowledged push to the next."""
import os
import pathlib
import shutil
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
import test_failover
from game_day import report
from ports import free_ports
from test_failover import KEYS, SECONDS, SHARDS, digest

OLD = os.environ.get("EMBD_OLD", "")
NEW = os.path.join(os.environ["EMBD_BIN"], "embd")
UPGRADES = int(os.environ.get("EMBD_UPGRADES", "1"))
CHANGED = np.arange(1000, 1200)
PASSING = {embd.Status[name] for name in ("DRAINING", "CLOSED", "UNREACHABLE", "LOADING")}


class Changes(threading.Thread):
    """Does to a table what leaves records of many kinds, and keeps what the table has to have."""

    def __init__(self, servers, durability):
        super().__init__(daemon=True)
        self.client, self.stops, self.wrong, self.n = embd.connect(servers, deadline=SECONDS), threading.Event(), None, 0
        self.table = self.create("changed", durability)
        self.rows, self.durability = np.zeros(len(CHANGED)), durability

    def create(self, name, durability):
        return self.client.create_table(name, 3, optimizer=embd.Optimizer("sgd", lr=1.0), durability=durability,
                                        initializer=embd.Initializer("constant", 0.0))

    @staticmethod
    def again(what, *args):
        """What the library sends once, since it has no number; it may be there when it comes again."""
        end = time.monotonic() + SECONDS
        while True:
            try:
                return what(*args)
            except embd.UnknownTableError:
                return None
            except embd.Error as error:
                if error.status not in PASSING or time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def step(self):
        rng = np.random.default_rng(self.n)
        at = rng.choice(len(CHANGED), 50, replace=False)
        self.table.push(CHANGED[at], np.full((50, 3), -2.0, np.float32))
        self.rows[at] += 2
        self.again(self.table.erase, CHANGED[at[:5]])
        self.rows[at[:5]] = 0
        np.testing.assert_array_equal(self.table.pull(CHANGED[at])[:, 0], self.rows[at])
        if self.n % 10 == 0:
            short = self.again(self.create, f"short{self.n}", self.durability)
            short.push(KEYS, np.ones((len(KEYS), 3), np.float32))
            self.again(self.client.drop_table, short.name)
        self.n += 1

    def run(self):
        try:
            while not self.stops.is_set():
                self.step()
        except Exception as error:  # pylint: disable=broad-except # told by the test
            self.wrong = error

    def finish(self):
        self.stops.set()
        self.join(SECONDS + 30)
        assert not self.is_alive(), "the one who changes tables hangs"
        if self.wrong is not None:
            raise self.wrong
        np.testing.assert_array_equal(self.table.pull(CHANGED)[:, 0], self.rows)
        self.client.close()


def longest(trainers):
    return max(float(np.diff(trainer.times).max()) for trainer in trainers)


def version(program):
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=30).stdout.split()[1]
    return f"{said} ({pathlib.Path(program).resolve().parents[3].name})"


class ByFailover(test_failover.Failover):
    program = OLD

    def upgrade(self, name):
        """Ended in order and started again, as a service manager does it."""
        server = self.servers[name]
        self.ended.add(name)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(SECONDS), 0, self.logs())
        self.start(name, program=NEW)

    def test_followers_first_and_then_the_primary_whose_place_one_takes(self):
        check = subprocess.run([OLD, "--config", self.file, "--server", "a", "--data-dir", self.data, "--check"], capture_output=True, text=True, check=False,
                               timeout=30)
        if check.returncode != 0:
            self.skipTest(f"the other version has no failover: {check.stderr.strip()}")
        for _ in range(UPGRADES):
            self.cycle()
            self.doCleanups()
            self.setUp()

    @test_failover.begins_anew
    def cycle(self):
        self.begin("x", "y", "z")
        trainers = self.train(2)
        changes = Changes(self.addresses(), "replicated")
        self.addCleanup(changes.stops.set)
        changes.start()
        for name in ("y", "z"):
            self.upgrade(name)
            self.until(lambda: self.insync() == 2)
            self.go_on_pushing(*trainers)
        self.assertEqual(self.primary(), "x")
        before = longest(trainers)
        self.upgrade("x")
        self.until(lambda: self.primary() in ("y", "z") and self.insync() == 2)
        self.go_on_pushing(*trainers)
        changes.finish()
        self.finish(*trainers)
        report(f"upgrade from {version(OLD)} with failover: followers {before:.2f} s, primary", longest(trainers), 0)


class ByPromotion(unittest.TestCase):
    def setUp(self):
        self.data = tempfile.mkdtemp(prefix="embd-upgrade-")
        self.addCleanup(shutil.rmtree, self.data)
        self.port, self.own = free_ports(SHARDS), free_ports(SHARDS)
        self.servers = []

    def start(self, program, name, port, *flags, **more):
        os.makedirs(os.path.join(self.data, name), exist_ok=True)
        server = clusters.Embd("--http", "off", "--data-dir", os.path.join(self.data, name), *flags, shards=SHARDS,
                               listen=f"127.0.0.1:{port}", program=program, admin=os.path.join(self.data, "admin"), **more)
        self.addCleanup(server.kill)
        self.servers.append(server)
        return server

    def follow(self, program, name, port, leader, *flags):
        return self.start(program, name, port, "--follow", os.path.join(self.data, f"admin/{leader}.sock"), *flags, waits=False)

    def logs(self):
        return "\n".join(server.log() if os.path.exists(server.log_path) else server.last_log for server in self.servers)

    def until(self, condition):
        end = time.monotonic() + SECONDS
        while not condition():
            self.assertLess(time.monotonic(), end, self.logs())
            time.sleep(0.05)

    def end(self, server):
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(SECONDS), 0, self.logs())
        server.kill()

    def go_on(self, trainers):
        before = [trainer.acked for trainer in trainers]
        self.until(lambda: all(t.acked > n + 20 or t.wrong for t, n in zip(trainers, before)))
        self.assertEqual([trainer.wrong for trainer in trainers], [None] * len(trainers), self.logs())

    def has_all(self, follower):
        """It has been connected, and lacks nothing of what there was a moment before."""
        for shard in range(SHARDS):
            follower.wait_log(f" follows shard={shard}", SECONDS)

    def test_the_follower_first_then_the_server_whose_place_it_takes(self):
        for _ in range(UPGRADES):
            self.cycle()
            self.doCleanups()
            self.setUp()

    def cycle(self):
        primary = self.start(OLD, "one", self.port)
        follower = self.follow(OLD, "two", self.own, self.port)
        for shard in range(SHARDS):
            follower.wait_log(f"follow_has_base shard={shard}", SECONDS)
        try:
            trainers = [test_failover.Trainer(primary.addresses[0], "replicated") for _ in range(2)]
        except embd.InvalidError as error:
            self.skipTest(f"the other version has no replicated tables, and its followers lack its last pushes: {error}")
        changes = Changes(primary.addresses[0], "replicated")
        for thread in (*trainers, changes):
            self.addCleanup(thread.stops.set)
            thread.start()
        self.go_on(trainers)
        self.end(follower)
        follower = self.follow(NEW, "two", self.own, self.port)
        self.has_all(follower)
        self.go_on(trainers)
        before = longest(trainers)
        self.end(primary)  # which lets its follower have all
        self.end(follower)
        primary = self.follow(NEW, "two", self.port, self.own, "--promote", "--replicas", "0")
        self.go_on(trainers)
        shutil.rmtree(os.path.join(self.data, "one"))
        follower = self.follow(NEW, "one", self.own, self.port)
        for shard in range(SHARDS):
            follower.wait_log(f"follow_has_base shard={shard}", SECONDS)
        self.go_on(trainers)
        changes.finish()
        for trainer in trainers:
            trainer.end()
            self.assertIsNone(trainer.wrong, self.logs())
        with embd.connect(primary.addresses[0], deadline=SECONDS) as client:
            found = client.table("t").pull(KEYS)
        np.testing.assert_array_equal(found, np.full(found.shape, sum(trainer.acked for trainer in trainers)))
        there = digest(primary)
        self.assertIsNotNone(there)
        self.until(lambda: digest(follower) == there)
        report(f"upgrade from {version(OLD)} by promotion: follower {before:.2f} s, primary", longest(trainers), 0)


if __name__ == "__main__":
    if not OLD:
        print("skipped: EMBD_OLD is not set to the embd of another version")
        sys.exit(77)
    clusters.main()
