"""Failover through leases in etcd: several processes of one name, one of which serves. Whoever is killed, stopped or cut off,
no acknowledged push of a replicated table is lost, none is applied twice, and trainers go on without an exception. Skipped
where there is no etcd. EMBD_FAILOVER_CYCLES=n: how many kills; 4 without it."""
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np

import clusters
import embd
import test_etcd
from ports import free_ports

CYCLES = int(os.environ.get("EMBD_FAILOVER_CYCLES", "4"))
SHARDS = 2
LEASE_S = 3
KEYS = np.arange(64)
EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")


def digest(server):
    ran = subprocess.run([EMBCTL, "digest", "-s", server.admin_path(0), "-o", "json"], capture_output=True, text=True, timeout=60,
                         check=False)
    return None if ran.returncode else {table["table"]: table for table in json.loads(ran.stdout)["tables"]}


class Trainer(threading.Thread):
    """Pushes 1 to the same keys again and again; counts what was acknowledged, and when."""

    def __init__(self, servers, durability="replicated", deadline=60, **options):
        super().__init__(daemon=True)
        self.client = embd.connect(servers, deadline=deadline, **options)
        self.table = self.client.create_table("t", 2, initializer=embd.Initializer("constant", 0.0),
                                              optimizer=embd.Optimizer("sgd", lr=1.0), durability=durability)
        self.stops, self.acked, self.wrong, self.times = threading.Event(), 0, None, []

    def run(self):
        try:
            while not self.stops.is_set():
                self.table.push(KEYS, -np.ones((len(KEYS), 2)))
                self.acked += 1
                self.times.append(time.monotonic())
        except embd.Error as error:
            self.wrong = error

    def end(self):
        self.stops.set()
        self.join(90)
        assert not self.is_alive(), "the trainer hangs"


class Failover(unittest.TestCase):
    etcd_members = 1
    settings = ("replicas: 1",)

    @classmethod
    def setUpClass(cls):
        if test_etcd.ETCD is None:
            raise unittest.SkipTest("etcd is not installed: deploy/deps.sh --tools")
        cls.etcd = test_etcd.Etcd(cls.etcd_members)

    @classmethod
    def tearDownClass(cls):
        cls.etcd.stop()

    def setUp(self):
        self.data = tempfile.mkdtemp(prefix="embd-failover-")
        self.addCleanup(shutil.rmtree, self.data)
        self.prefix = "/failover/" + self.id().rsplit(".", 1)[1]
        self.file = os.path.join(self.data, "cluster.yaml")
        self.write_file()
        self.ports, self.servers = {}, {}

    def write_file(self, members=None):
        members = members or ",".join(f"127.0.0.1:{port}" for port in self.etcd.ports)
        with open(self.file, "w", encoding="ascii") as file:
            file.write('http: "off"\n' + "".join(f"{line}\n" for line in self.settings) +
                       f'cluster:\n  name: shop\n  etcd: "etcd://{members}{self.prefix}"\n  failover: yes\n'
                       f"  etcd_lease: {LEASE_S}\n  servers:\n    - {{name: a, shards: {SHARDS}}}\n")

    def start(self, name, file=None):
        path = os.path.join(self.data, name)
        os.makedirs(path, exist_ok=True)
        self.ports.setdefault(name, free_ports(SHARDS))
        server = clusters.Embd("--config", file or self.file, "--server", "a", "--data-dir", path,
                               "--listen", f"127.0.0.1:{self.ports[name]}", listen=None, shards=SHARDS, waits=False)
        self.addCleanup(server.kill)
        self.servers[name] = server
        return server

    def addresses(self):
        return ",".join(server.addresses[0] for server in self.servers.values())

    def until(self, condition, seconds=30, says=lambda: ""):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, says() or "it did not come to that")
            time.sleep(0.02)

    def logs(self):
        return "\n".join(f"== {name}\n{server.log()}" for name, server in self.servers.items() if os.path.exists(server.log_path))

    def entry(self, key):
        text = self.etcd.get(f"{self.prefix}/{key}/a")
        return json.loads(text) if text else None

    def insync(self):
        entry = self.entry("insync")
        return len(entry["ids"]) if entry else 0

    def primary(self):
        """Name of the process that has the name in etcd."""
        entry = self.entry("servers")
        return next((name for name, server in self.servers.items() if entry and server.addresses[0] == entry["address"]), None)

    def begin(self, *names):
        self.start(names[0])
        self.until(lambda: self.primary() == names[0], says=self.logs)
        for name in names[1:]:
            self.start(name)
        self.until(lambda: self.insync() == len(names) - 1, says=self.logs)

    def check(self, *trainers):
        """All that was acknowledged is there, and nothing twice."""
        with embd.connect(self.addresses(), deadline=30) as client:
            rows = client.table("t").pull(KEYS)
        self.assertEqual({float(v) for v in rows.ravel()}, {float(sum(t.acked for t in trainers))})

    def compare(self):
        """Whoever follows has what the primary has."""
        there = digest(self.servers[self.primary()])
        self.assertIsNotNone(there)
        for server in self.servers.values():
            if server.is_alive():
                self.until(lambda s=server: digest(s) == there, says=lambda s=server: f"{there}, {digest(s)}")


class Kills(Failover):
    def test_a_follower_takes_the_place_of_a_primary_that_is_killed(self):
        """And the one that was killed follows when it is started again."""
        self.begin("x", "y", "z")
        trainer = Trainer(self.addresses())
        trainer.start()
        took, behind = [], []
        for _ in range(CYCLES):
            self.until(lambda n=trainer.acked: trainer.acked > n + 20 or trainer.wrong, says=self.logs)
            name = self.primary()
            killed = time.monotonic()
            self.servers[name].kill()
            n = trainer.acked
            self.until(lambda name=name: self.primary() != name, says=self.logs)
            lapsed = time.monotonic()
            self.until(lambda: trainer.acked > n + 20 or trainer.wrong, 60, says=self.logs)
            self.assertIsNone(trainer.wrong, self.logs())
            first = next(at for at in trainer.times if at > killed + 1)
            took.append(first - killed)
            behind.append(first - lapsed)
            self.assertNotEqual(self.primary(), name)
            self.start(name).wait_log("stands_by", 30)
            self.until(lambda: self.insync() == 2, says=self.logs)
        trainer.end()
        self.assertIsNone(trainer.wrong, self.logs())
        self.check(trainer)
        self.compare()
        print(f"from kill -9 to the next acknowledged push, {CYCLES} kills, lease {LEASE_S} s: median "
              f"{statistics.median(took):.2f} s, longest {max(took):.2f} s; from the end of the lease: median "
              f"{statistics.median(behind):.2f} s, longest {max(behind):.2f} s")
        self.assertLess(max(behind), 2)


if __name__ == "__main__":
    clusters.main()
