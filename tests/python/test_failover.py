"""Failover through leases in etcd: several processes of one name, one of which serves. Whoever is killed, stopped or cut off,
no acknowledged push of a replicated table is lost, none is applied twice, and trainers go on without an exception. Skipped
where there is no etcd. EMBD_FAILOVER_CYCLES=n: how many kills; 4 without it."""
import json
import os
import re
import shutil
import socket
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


class Proxy:
    """To one address of etcd, until it is cut: then nothing comes through, and nobody is told."""

    def __init__(self, port):
        self.server, self.to, self.is_cut = socket.create_server(("127.0.0.1", 0)), port, False
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                peer = self.server.accept()[0]
                if self.is_cut:
                    continue
                other = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            for a, b in ((peer, other), (other, peer)):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    def carry(self, a, b):
        try:
            while data := a.recv(1 << 16):
                while self.is_cut:
                    time.sleep(0.05)
                b.sendall(data)
        except OSError:
            pass
        finally:
            a.close()
            b.close()

    def close(self):
        self.is_cut = False
        self.server.close()


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

    program = os.path.join(os.environ["EMBD_BIN"], "embd")

    def start(self, name, file=None):
        path = os.path.join(self.data, name)
        os.makedirs(path, exist_ok=True)
        self.ports.setdefault(name, free_ports(SHARDS))
        server = clusters.Embd("--config", file or self.file, "--server", "a", "--data-dir", path,
                               "--listen", f"127.0.0.1:{self.ports[name]}", listen=None, shards=SHARDS, waits=False,
                               program=self.program)
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


class Stops(Failover):
    def go_on_pushing(self, trainer, seconds=40):
        n = trainer.acked
        self.until(lambda: trainer.acked > n + 20 or trainer.wrong, seconds, says=self.logs)
        self.assertIsNone(trainer.wrong, self.logs())

    def test_trainers_leave_a_primary_that_stands_still(self):
        self.begin("x", "y", "z")
        trainer = Trainer(self.addresses())
        trainer.start()
        self.go_on_pushing(trainer)
        self.servers["x"].pause()
        self.until(lambda: self.primary() in ("y", "z"), says=self.logs)
        self.go_on_pushing(trainer)
        self.servers["x"].go_on()
        self.assertEqual(self.servers["x"].wait(30), 1)
        self.start("x")
        self.until(lambda: self.insync() == 2, says=self.logs)
        trainer.end()
        self.assertIsNone(trainer.wrong, self.logs())
        self.check(trainer)
        self.compare()

    def test_a_follower_that_stands_still_is_left_out_and_does_not_take_over(self):
        """The primary waits for it until it has taken it off the list; then that one may lack what was acknowledged."""
        self.begin("x", "y", "z")
        trainer = Trainer(self.addresses())
        trainer.start()
        self.go_on_pushing(trainer)
        self.servers["y"].pause()
        self.until(lambda: self.insync() == 1, says=self.logs)
        self.go_on_pushing(trainer)
        self.servers["x"].kill()
        self.servers["y"].go_on()
        self.until(lambda: self.primary() == "z", says=self.logs)
        self.go_on_pushing(trainer)
        trainer.end()
        self.check(trainer)
        self.compare()

    def test_a_follower_alone_that_was_not_in_sync_waits(self):
        """It says so; the one that served last serves again."""
        self.begin("x", "y", "z")
        trainer = Trainer(self.addresses())
        trainer.start()
        self.go_on_pushing(trainer)
        self.servers["y"].pause()
        self.until(lambda: self.insync() == 1, says=self.logs)
        self.go_on_pushing(trainer)
        self.servers["x"].kill()
        self.servers["z"].kill()
        self.servers["y"].go_on()
        self.servers["y"].wait_log("no_primary", 20)
        self.start("x")
        self.until(lambda: self.primary() == "x" and self.insync() == 1, says=self.logs)
        self.go_on_pushing(trainer)
        trainer.end()
        self.check(trainer)
        self.compare()

    def test_a_primary_that_is_stopped_in_order_gives_the_name_back_at_once(self):
        self.begin("x", "y", "z")
        trainer = Trainer(self.addresses())
        trainer.start()
        self.go_on_pushing(trainer)
        began = time.monotonic()
        self.assertEqual(self.servers["x"].stop(), 0)
        self.until(lambda: self.primary() in ("y", "z"), says=self.logs)
        self.assertLess(time.monotonic() - began, LEASE_S)
        self.go_on_pushing(trainer)
        trainer.end()
        self.check(trainer)
        self.compare()


class Fences(Failover):
    """With tables of durability `durable`, which need no follower: what two processes acknowledge beside each other is lost."""

    etcd_members = 1
    TOOLS = os.environ.get("EMBD_FAULT_TOOLS", os.path.join(os.environ["EMBD_BIN"], "..", "tests", "fault"))

    def proxied(self):
        """A configuration file whose etcd is behind a proxy."""
        proxy = Proxy(self.etcd.ports[0])
        self.addCleanup(proxy.close)
        path, self.file = self.file, os.path.join(self.data, "proxied.yaml")
        self.write_file(f"127.0.0.1:{proxy.port}")
        path, self.file = self.file, path
        return proxy, path

    def train(self, n, servers, durability, **options):
        trainers = [Trainer(servers, durability, **options) for _ in range(n)]
        for trainer in trainers:
            trainer.start()
        self.until(lambda: all(t.acked > 10 for t in trainers), says=self.logs)
        return trainers

    def stop_and_go_on(self):
        """The trainers know the primary alone, and have pushes on their way while it is stopped."""
        self.begin("x", "y")
        trainers = self.train(4, self.servers["x"].addresses[0], "durable", deadline=12)
        x = self.servers["x"]
        x.pause()
        self.until(lambda: self.primary() == "y", says=self.logs)
        with embd.connect(self.addresses(), deadline=20) as client:  # y serves
            self.assertEqual(client.shards, self.servers["y"].addresses)
            before = client.table("t").pull(KEYS)[0, 0]
        x.go_on()
        self.assertEqual(x.wait(30), 1)
        self.assertIn("name_lost", x.log())
        for trainer in trainers:
            trainer.end()
        acked = sum(t.acked for t in trainers)
        with embd.connect(self.servers["y"].addresses[0], deadline=20) as client:
            after = client.table("t").pull(KEYS)[0, 0]
        self.assertGreaterEqual(after, before)
        self.assertLessEqual(acked, after, f"acknowledged {acked}, there are {after}\n{self.logs()}")
        self.assertLessEqual(after, acked + len(trainers))  # one of each may be unknown
        return x

    def test_a_primary_that_stood_still_acknowledges_nothing_when_it_goes_on(self):
        self.stop_and_go_on()
        self.start("x").wait_log("kept_aside", 30)  # it follows, and has what it alone had in a directory
        self.until(lambda: self.insync() == 1, says=self.logs)
        self.compare()
        kept = [name for name in os.listdir(os.path.join(self.data, "x")) if name.startswith("aside-1-")]
        self.assertEqual(len(kept), 1)
        self.assertTrue(any(name.startswith("journal") for name in os.listdir(os.path.join(self.data, "x", kept[0]))))

    def test_control_without_the_fence_acknowledged_pushes_are_lost(self):
        self.program = os.path.join(self.TOOLS, "embd-without-fence")
        with self.assertRaisesRegex(AssertionError, "acknowledged .* there are"):
            self.stop_and_go_on()

    def test_a_primary_that_etcd_cannot_hear_stops_and_a_follower_serves(self):
        proxy, path = self.proxied()
        self.start("x", path)
        self.until(lambda: self.primary() == "x", says=self.logs)
        for name in "yz":
            self.start(name)
        self.until(lambda: self.insync() == 2, says=self.logs)
        trainers = self.train(2, self.addresses(), "replicated")
        proxy.is_cut = True
        x = self.servers["x"]
        x.wait_log(" fenced ", 20)
        self.until(lambda: self.primary() not in (None, "x"), says=self.logs)
        taken = [t.acked for t in trainers]
        self.until(lambda: all(t.acked > n + 10 or t.wrong for t, n in zip(trainers, taken)), says=self.logs)
        self.assertTrue(x.is_alive())  # and acknowledges nothing
        proxy.is_cut = False
        self.assertEqual(x.wait(30), 1)
        for trainer in trainers:
            trainer.end()
            self.assertIsNone(trainer.wrong, self.logs())
        self.check(*trainers)
        self.compare()

    def test_a_follower_that_etcd_cannot_hear_changes_nothing_and_is_not_chosen(self):
        proxy, path = self.proxied()
        self.begin("x")
        self.start("y", path)
        self.start("z")
        self.until(lambda: self.insync() == 2, says=self.logs)
        trainers = self.train(1, self.addresses(), "replicated")
        proxy.is_cut = True
        time.sleep(LEASE_S + 1)
        self.assertEqual(self.primary(), "x")
        self.servers["x"].kill()
        self.until(lambda: self.primary() == "z", says=self.logs)
        n = trainers[0].acked
        proxy.is_cut = False
        self.until(lambda: trainers[0].acked > n + 10 or trainers[0].wrong, says=self.logs)
        trainers[0].end()
        self.assertIsNone(trainers[0].wrong, self.logs())
        self.check(*trainers)
        self.compare()

    def come_back(self):
        """x served, y took its place and acknowledged more; both are gone, and x comes back alone."""
        self.begin("x", "y")
        trainer = Trainer(self.addresses(), "durable")
        trainer.start()
        self.until(lambda: trainer.acked > 10)
        self.servers["x"].kill()
        n = trainer.acked
        self.until(lambda: trainer.acked > n + 10 or trainer.wrong, says=self.logs)
        self.servers["y"].kill()
        x = self.start("x")
        time.sleep(2 * LEASE_S)
        self.assertIsNone(self.primary(), self.logs())
        self.assertIn("kept_aside", x.log())
        self.start("y")
        self.until(lambda: self.primary() == "y", says=self.logs)
        trainer.end()
        self.assertIsNone(trainer.wrong, self.logs())
        self.check(trainer)
        self.until(lambda: self.insync() == 1, says=self.logs)
        self.compare()

    def test_who_was_followed_by_another_one_does_not_serve_when_it_comes_back(self):
        self.come_back()

    def test_control_without_epochs_it_does(self):
        self.program = os.path.join(self.TOOLS, "embd-without-epochs")
        with self.assertRaises(AssertionError):
            self.come_back()


class Etcd(Failover):
    def restart(self, seconds):
        self.etcd.kill(0)
        time.sleep(seconds)
        self.etcd.start(0)
        self.etcd.wait()

    def test_nobody_takes_over_where_etcd_restarts(self):
        self.begin("x", "y", "z")
        trainer = Trainer(self.addresses())
        trainer.start()
        for _ in range(3):
            self.until(lambda n=trainer.acked: trainer.acked > n + 20 or trainer.wrong, says=self.logs)
            self.restart(0.5)
        time.sleep(LEASE_S)
        trainer.end()
        self.assertIsNone(trainer.wrong, self.logs())
        self.assertEqual((self.primary(), self.entry("epoch")["epoch"]), ("x", 1))
        self.check(trainer)
        self.compare()

    def test_without_etcd_nothing_is_acknowledged_after_the_lease_until_it_is_there(self):
        self.begin("x", "y", "z")
        trainer = Trainer(self.addresses())
        trainer.start()
        self.until(lambda: trainer.acked > 20)
        self.etcd.kill(0)
        self.servers["x"].wait_log(" fenced ", 3 * LEASE_S)
        time.sleep(0.3)
        n = trainer.acked
        time.sleep(2)
        self.assertEqual(trainer.acked, n)
        self.etcd.start(0)
        self.etcd.wait()
        self.until(lambda: trainer.acked > n + 20 or trainer.wrong, 60, says=self.logs)
        trainer.end()
        self.assertIsNone(trainer.wrong, self.logs())
        self.check(trainer)
        self.until(lambda: self.insync() == 2, says=self.logs)
        self.compare()

    def test_all_are_killed_and_start_again(self):
        self.begin("x", "y", "z")
        trainer = Trainer(self.addresses())
        trainer.start()
        for _ in range(2):
            self.until(lambda n=trainer.acked: trainer.acked > n + 20 or trainer.wrong, says=self.logs)
            for server in self.servers.values():
                server.kill()
            for name in list(self.servers):
                self.start(name)
            self.until(lambda: self.primary() is not None and self.insync() == 2, 60, says=self.logs)
        self.until(lambda n=trainer.acked: trainer.acked > n + 20 or trainer.wrong, says=self.logs)
        trainer.end()
        self.assertIsNone(trainer.wrong, self.logs())
        self.check(trainer)
        self.compare()


if __name__ == "__main__":
    clusters.main()
