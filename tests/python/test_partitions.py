"""Failover through leases in etcd, between hosts that are cut off from each other, from etcd and from trainers, in both directions or in
one, while processes are killed and lose power: all that was acknowledged of a replicated table is there, once, and all processes have the
same tables. Each process has a network namespace of its own (hosts.py), and a disk of its own whose power can be cut where there are loop
devices. Skipped where there are neither namespaces nor etcd.

Nothing waits for a time: each cycle begins when two followers are in sync, and at most one process loses what it has not synced.
EMBD_PARTITION_CYCLES=n: how many cycles; 4 without it. EMBD_PARTITION_SEED=n. EMBD_PARTITION_SECONDS=n: no cycle begins later."""
import collections
import os
import random
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import clusters

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
os.environ.setdefault("EMBD_FAULT_TOOLS", os.path.join(os.environ["EMBD_BIN"], "..", "tests", "fault"))
import embd  # noqa: E402
import etcd_process  # noqa: E402
import hosts  # noqa: E402
import test_power  # noqa: E402
from certificates import Authority, Tokens  # noqa: E402
from ports import free_ports  # noqa: E402
from test_failover import KEYS, SECONDS, SHARDS, Failover, Trainer, Wrong, digest  # noqa: E402

CYCLES = int(os.environ.get("EMBD_PARTITION_CYCLES", "4"))
SEED = int(os.environ.get("EMBD_PARTITION_SEED", "1"))
LAST = time.monotonic() + float(os.environ.get("EMBD_PARTITION_SECONDS", "inf"))
COMPARED = 5  # cycles from one comparison of all tables to the next
NAMES = "xyz"
CUTS = [("hosts",), ("etcd",), ("trainers",), ("hosts", "etcd"), ("hosts", "trainers"), ("etcd", "trainers"), ("hosts", "etcd", "trainers")]
WAYS = [("to", "from"), ("to", "from"), ("to",), ("from",)]


class InHub(etcd_process.Etcd):
    host = hosts.HUB


class Paced(Trainer):
    """Rests while `rest` is held, between two pushes."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.rest = threading.Lock()

    def run(self):
        try:
            while not self.stops.is_set():
                with self.rest:
                    self.table.push(self.keys, -np.ones((len(self.keys), 2)))
                    self.acked += 1
                time.sleep(0.005)  # so that who wants it to rest gets the lock
        except embd.Error as error:
            self.wrong = error


class Partitions(Failover):
    @classmethod
    def setUpClass(cls):
        if etcd_process.ETCD is None:
            raise unittest.SkipTest("etcd is not installed: deploy/deps.sh --tools")
        cls.etcd, cls.cuts_power = InHub(1), test_power.can_cut()
        cls.hosts = {name: hosts.Host(i + 1) for i, name in enumerate(NAMES)}

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        for host in cls.hosts.values():
            host.close()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        tokens, ca = Tokens(folder.name), Authority(folder.name, "ca")
        tokens.add("own", "admin")
        cert, key = ca.issue("server", ",".join(f"IP:{host.address}" for host in self.hosts.values()))
        os.environ["EMBD_TOKEN_FILE"], os.environ["EMBD_TLS_CA"] = tokens.file("own"), ca.path
        self.settings = ("replicas: 1", f"tokens: {tokens.path}", f"follow_token: {tokens.file('own')}", f"tls_cert: {cert}",
                         f"tls_key: {key}", f"peer_ca: {ca.path}", 'local_socket: "off"')
        super().setUp()
        self.without_etcd, self.waiting = set(), set()
        self.port, self.rng, self.disks, self.said = free_ports(2 * SHARDS), random.Random(SEED), {}, collections.Counter()
        for name in NAMES if self.cuts_power else "":
            self.disks[name] = test_power.Disk()
            self.addCleanup(self.disks[name].remove)
        self.addCleanup(hosts.heal)

    def write_file(self, members=None):
        super().write_file(f"{hosts.HUB}:{self.etcd.ports[0]}")

    def start(self, name, *_):
        host, path = self.hosts[name], self.disks[name].root if name in self.disks else os.path.join(self.data, name)
        data = os.path.join(path, "data")
        os.makedirs(data, exist_ok=True)
        program = os.path.join(self.data, name + ".sh")
        with open(program, "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o700)) as file:
            file.write(f"#!/bin/sh\nexec {' '.join(host.within())} {self.program} \"$@\"\n")
        server = clusters.Embd("--config", self.file, "--server", "a", "--data-dir", data, "--listen", f"{host.address}:{self.port}",
                               "--admin-listen", f"{host.address}:{self.port + SHARDS}", listen=None, shards=SHARDS, waits=False,
                               program=program)
        self.addCleanup(server.kill)
        self.servers[name] = server
        self.all.append((name, server))
        self.ended.discard(name)
        return server

    def tend(self):
        """As a service manager does, where a process has lost its name."""
        for name in self.lapsed():
            self.said["processes that lost their name"] += 1
            self.start_again(name)

    def start_again(self, name):
        """One that does not reach etcd ends after a while."""
        if name in self.without_etcd:
            self.ended.add(name)
            self.waiting.add(name)
        else:
            self.start(name)

    # What goes wrong.

    def cut(self, name, kinds, ways):
        host = self.hosts[name]
        if "hosts" in kinds:
            host.cut_hosts(ways)
        if "etcd" in kinds:
            host.cut_port_of_hub(ways, self.etcd.ports[0])
            self.without_etcd.add(name)
        if "trainers" in kinds:
            host.cut_own_ports(ways, self.port, SHARDS)
        self.said["cut off from " + " and ".join(kinds) + ("" if len(ways) == 2 else ", one way")] += 1

    def lose_power(self, name):
        """Or it is killed, where no power can be cut. What it had not synced is gone."""
        self.ended.add(name)
        if name not in self.disks:
            self.servers[name].kill()
            return
        self.disks[name].cut()
        self.servers[name].kill()
        self.disks[name].unmount()
        self.disks[name].mount()

    def heal(self):
        hosts.heal()
        self.without_etcd.clear()
        while self.waiting:
            self.start(self.waiting.pop())

    def hold(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tend()
            time.sleep(0.05)

    def in_sync(self):
        return self.primary() is not None and self.insync() == 2

    def cycle(self):
        self.until(self.in_sync)
        primary, what = self.primary(), self.rng.random()
        victim = primary if self.rng.random() < 0.6 else self.rng.choice([name for name in NAMES if name != primary])
        if what < 0.8:
            self.cut(victim, self.rng.choice(CUTS), self.rng.choice(WAYS))
            self.said["primaries cut off"] += victim == primary
            self.hold(self.rng.uniform(0.1, 2.5 * self.lease_s))
        if what > 0.6:
            self.until(lambda: self.primary() is not None)
            dies = self.rng.choice(NAMES)
            self.said["power cuts" if self.disks else "kills"] += 1
            self.said["of primaries"] += dies == self.primary()
            self.lose_power(dies)
            self.hold(self.rng.uniform(0, 1.5 * self.lease_s))
            self.start_again(dies)
        before = self.primary()
        self.heal()
        self.until(self.in_sync)
        self.said["other primaries"] += self.primary() != primary
        self.said["before it healed"] += before not in (None, primary)

    def is_right(self, trainers):
        """What was acknowledged, while nobody pushes."""
        for trainer in trainers:
            self.assertTrue(trainer.rest.acquire(timeout=SECONDS + 30), self.logs())
        try:
            self.check(trainers)
        finally:
            for trainer in trainers:
                trainer.rest.release()

    def check(self, trainers):
        for trainer in trainers:
            self.assertIsNone(trainer.wrong, self.logs())
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            found = client.table("t").pull(KEYS)
        acked = sum(trainer.acked for trainer in trainers)
        if (found != acked).any():
            raise Wrong(f"acknowledged {acked}, there are {found.tolist()}, seed {SEED}\n{self.logs()}")
        self.until(self.in_sync)
        there = digest(self.servers[self.primary()])
        self.assertIsNotNone(there)
        for name in NAMES:
            self.until(lambda name=name: digest(self.servers[name]) == there, says=lambda: f"{name}, {there}, seed {SEED}\n{self.logs()}")

    def test_no_acknowledged_push_is_lost_where_hosts_are_cut_off_and_lose_power(self):
        self.begin(*NAMES)
        trainers = [Paced(self.addresses()) for _ in range(2)]
        for trainer in trainers:
            self.addCleanup(trainer.stops.set)
            trainer.start()
        for number in range(CYCLES):
            if time.monotonic() > LAST:
                break
            self.go_on_pushing(*trainers)
            self.cycle()
            self.said["cycles"] += 1
            if number % COMPARED == COMPARED - 1:
                self.is_right(trainers)
                print(dict(self.said), sum(trainer.acked for trainer in trainers), flush=True)
        self.go_on_pushing(*trainers)
        self.is_right(trainers)
        for trainer in trainers:
            trainer.end()
            self.assertEqual(trainer.table.rollbacks, 0, "a replicated table has lost nothing")
        print(f"seed {SEED}: {dict(self.said)}; {sum(trainer.acked for trainer in trainers)} pushes acknowledged")


if __name__ == "__main__":
    if not hosts.become_hub():
        print("skipped: no network namespaces: needs unshare, nsenter, ip and iptables, and root or namespaces of users")
        sys.exit(77)
    clusters.main()
