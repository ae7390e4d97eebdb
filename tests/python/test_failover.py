"""Failover through leases in etcd: several processes of one name, one of which serves. Whoever is killed, stopped or cut off,
no acknowledged push of a replicated table is lost, none is applied twice, and trainers go on without an exception. Skipped
where there is no etcd. EMBD_FAILOVER_CYCLES=n: how many kills; 4 without it. EMBD_FAILOVER_STOPS=n: how many stops in order; 3.

A host that is busy for as long as a lease makes a primary lose it, as it has to. Then another process serves than the test means:
it begins anew (`begins_anew`), but for what no lease excuses, a push that is lost or doubled. No test measures time against a
bar; SECONDS is when one that hangs ends."""
import base64
import contextlib
import functools
import json
import os
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
STOPS = int(os.environ.get("EMBD_FAILOVER_STOPS", "3"))
SHARDS = 2
LEASE_S = 3
SECONDS = 120
TRIES = 4
KEYS = np.arange(64)
EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")


def digest(server):
    ran = subprocess.run([EMBCTL, "digest", "-s", server.admin_path(0), "-o", "json"], capture_output=True, text=True, timeout=60,
                         check=False)
    return None if ran.returncode else {table["table"]: table for table in json.loads(ran.stdout)["tables"]}


class Lapsed(Exception):
    """A process lost its lease that nobody had killed, stopped or cut off."""


class Wrong(AssertionError):
    """Acknowledged pushes are not there, or are there twice."""


def begins_anew(test):
    """For a test in which it matters who serves."""
    @functools.wraps(test)
    def run(self, *args):
        for _ in range(TRIES - 1):
            try:
                return test(self, *args)
            except Wrong:
                raise
            except (Lapsed, AssertionError, embd.Error) as error:
                if not self.lapsed():
                    raise
                print(f"{self.id()} begins anew, a lease lapsed on this busy host: {str(error)[:200]}")
                self.doCleanups()
                self.setUp()
        return test(self, *args)
    return run


class Trainer(threading.Thread):
    """Pushes 1 to the same keys again and again; counts what was acknowledged, and when."""

    def __init__(self, servers, durability="replicated", keys=KEYS, **options):
        super().__init__(daemon=True)
        self.client, self.keys = embd.connect(servers, deadline=SECONDS, **options), keys
        self.table = self.client.create_table("t", 2, initializer=embd.Initializer("constant", 0.0),
                                              optimizer=embd.Optimizer("sgd", lr=1.0), durability=durability)
        self.stops, self.acked, self.wrong, self.times = threading.Event(), 0, None, []

    def run(self):
        try:
            while not self.stops.is_set():
                self.table.push(self.keys, -np.ones((len(self.keys), 2)))
                self.times.append(time.monotonic())
                self.acked += 1
        except embd.Error as error:
            self.wrong = error

    def end(self):
        self.stops.set()
        self.join(SECONDS + 30)
        assert not self.is_alive(), "the trainer hangs"


class Proxy:
    """To one address of etcd, until it is cut: then nothing comes through, and nobody is told."""

    def __init__(self, port):
        self.server, self.to, self.is_cut, self.is_closed = socket.create_server(("127.0.0.1", 0)), port, False, False
        self.port, self.ends, self.lock = self.server.getsockname()[1], [], threading.Lock()
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def keep(self, end):
        with self.lock:
            self.ends.append(end)
        if self.is_closed:
            self.shut(end)
        return end

    @staticmethod
    def shut(end):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

    def accept(self):
        with contextlib.suppress(OSError):
            while not self.is_closed:
                peer = self.keep(self.server.accept()[0])
                if not self.is_cut:
                    self.pass_on(peer)

    def pass_on(self, peer):
        try:
            other = self.keep(socket.create_connection(("127.0.0.1", self.to)))
        except OSError:  # etcd is not there
            self.shut(peer)
            return
        for a, b in ((peer, other), (other, peer)):
            self.threads.append(threading.Thread(target=self.carry, args=(a, b), daemon=True))
            self.threads[-1].start()

    def carry(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                while self.is_cut and not self.is_closed:
                    time.sleep(0.05)
                b.sendall(data)
        self.shut(a)
        self.shut(b)

    def close(self):
        self.is_closed = True
        self.shut(self.server)
        with self.lock:
            ends = list(self.ends)
        for end in ends:
            self.shut(end)
        for thread in self.threads:
            thread.join()
        for end in (self.server, *self.ends):
            end.close()


class Listener(Proxy):
    """Keeps what passes, too."""

    def __init__(self, port):
        self.passed = {}
        super().__init__(port)

    def carry(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                self.passed[a] = self.passed.get(a, b"") + data
                b.sendall(data)
        self.shut(a)
        self.shut(b)

    def count(self, text):
        return sum(data.count(text.encode()) for data in list(self.passed.values()))


class Failover(unittest.TestCase):
    etcd_members = 1
    settings = ("replicas: 1",)
    lease_s = LEASE_S
    shards = SHARDS

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
        self.prefix = f"/failover/{os.path.basename(self.data)}"
        self.file = os.path.join(self.data, "cluster.yaml")
        self.write_file()
        self.ports, self.servers, self.all, self.ended = {}, {}, [], set()

    def write_file(self, members=None):
        members = members or ",".join(f"127.0.0.1:{port}" for port in self.etcd.ports)
        with open(self.file, "w", encoding="ascii") as file:
            file.write('http: "off"\n' + "".join(f"{line}\n" for line in self.settings) +
                       f'cluster:\n  name: shop\n  etcd: "etcd://{members}{self.prefix}"\n  failover: yes\n'
                       f"  etcd_lease: {self.lease_s}\n  servers:\n    - {{name: a, shards: {self.shards}}}\n")

    program = os.path.join(os.environ["EMBD_BIN"], "embd")

    def start(self, name, file=None, program=None, admin=None):
        path = os.path.join(self.data, name)
        os.makedirs(path, exist_ok=True)
        self.ports.setdefault(name, free_ports(self.shards))
        server = clusters.Embd("--config", file or self.file, "--server", "a", "--data-dir", path,
                               "--listen", f"127.0.0.1:{self.ports[name]}", listen=None, shards=self.shards, waits=False,
                               program=program or self.program, admin=admin)
        self.addCleanup(server.kill)
        self.servers[name] = server
        self.all.append((name, server))
        self.ended.discard(name)
        return server

    def kill(self, name):
        self.ended.add(name)
        self.servers[name].kill()

    def ends(self, name):
        """It has lost its name, and ends."""
        self.ended.add(name)
        self.assertEqual(self.servers[name].wait(SECONDS), 1)
        self.assertIn("name_lost", self.servers[name].log())

    def lapsed(self):
        """Names of processes that lost their leases by themselves. Any other end is an error."""
        out = []
        for name, server in self.servers.items():
            if name in self.ended or server.is_alive():
                continue
            if server.process.returncode != 1 or "name_lost" not in server.log():
                raise Wrong(f"{name} ended by itself, {server.process.returncode}\n{self.logs()}")
            out.append(name)
        return out

    def tend(self):
        names = self.lapsed()
        if names:
            raise Lapsed(f"{names} lost the name")

    def addresses(self):
        return ",".join(server.addresses[0] for server in self.servers.values())

    def until(self, condition, seconds=SECONDS, says=None):
        end = time.monotonic() + seconds
        while not condition():
            self.tend()
            if time.monotonic() > end:
                self.fail(says() if says is not None else self.logs())
            time.sleep(0.02)

    def logs(self):
        """Of all processes that there were."""
        return "\n".join(f"== {name} {server.pid}\n{server.log() if os.path.exists(server.log_path) else server.last_log}"
                         for name, server in self.all)

    def proxied(self, kind=Proxy):
        """A configuration file whose etcd is behind a proxy."""
        proxy = kind(self.etcd.ports[0])
        self.addCleanup(proxy.close)
        path, self.file = self.file, os.path.join(self.data, f"proxied-{proxy.port}.yaml")
        self.write_file(f"127.0.0.1:{proxy.port}")
        path, self.file = self.file, path
        return proxy, path

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
        self.until(lambda: self.primary() == names[0])
        for name in names[1:]:
            self.start(name)
        self.until(lambda: self.insync() == len(names) - 1)

    def train(self, n=1, servers=None, durability="replicated", keys=KEYS, **options):
        trainers = [Trainer(servers or self.addresses(), durability, keys, **options) for _ in range(n)]
        for trainer in trainers:
            self.addCleanup(trainer.stops.set)
            trainer.start()
        self.go_on_pushing(*trainers)
        return trainers

    def durable_table(self):
        """Of a client that only pulls."""
        client = embd.connect(self.addresses(), deadline=SECONDS)
        self.addCleanup(client.close)
        table = client.create_table("durable", 2, durability="durable", optimizer=embd.Optimizer("sgd", lr=1.0),
                                    initializer=embd.Initializer("constant", 0.0))
        table.push(KEYS, -np.ones((len(KEYS), 2)))
        return table

    def go_on_pushing(self, *trainers):
        """Each is acknowledged more."""
        before = [trainer.acked for trainer in trainers]
        self.until(lambda: all(t.acked > n + 20 or t.wrong for t, n in zip(trainers, before)))
        for trainer in trainers:
            self.assertIsNone(trainer.wrong, self.logs())

    def rest(self, trainers):
        """Until for some time nothing has been acknowledged; returns how many pushes were."""
        def count():
            return sum(trainer.acked for trainer in trainers)

        n, since = count(), time.monotonic()
        end = since + SECONDS
        while time.monotonic() < since + 2:
            self.tend()
            self.assertLess(time.monotonic(), end, f"pushes are acknowledged on and on\n{self.logs()}")
            time.sleep(0.05)
            if count() != n:
                n, since = count(), time.monotonic()
        return n

    def finish(self, *trainers):
        """All that was acknowledged is there, and nothing twice; and whoever follows has what the primary has."""
        for trainer in trainers:
            trainer.end()
            self.assertIsNone(trainer.wrong, self.logs())
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            found = client.table("t").pull(KEYS)
        acked = np.zeros_like(found)
        for trainer in trainers:
            acked[trainer.keys] += trainer.acked
        if (found != acked).any():
            raise Wrong(f"acknowledged {acked.tolist()}, there are {found.tolist()}\n{self.logs()}")
        self.compare()

    def compare(self):
        self.until(lambda: self.primary() is not None)
        there = digest(self.servers[self.primary()])
        self.assertIsNotNone(there)
        for server in self.servers.values():
            if server.is_alive():
                self.until(lambda s=server: digest(s) == there, says=lambda s=server: f"{there}, {digest(s)}\n{self.logs()}")


class Kills(Failover):
    def tend(self):
        """It does not matter who serves: a process that lost its name is started again, as a service manager does."""
        for name in self.lapsed():
            print(f"{name} lost its lease by itself")
            self.start(name)

    def test_a_follower_takes_the_place_of_a_primary_that_is_killed(self):
        """And the one that was killed follows when it is started again."""
        self.begin("x", "y", "z")
        trainer, = self.train()
        durable = self.durable_table()
        took, behind = [], []
        for _ in range(CYCLES):
            self.go_on_pushing(trainer)
            self.until(lambda: self.primary() is not None and self.insync() == 2)
            name = self.primary()
            killed = time.monotonic()
            self.kill(name)
            self.until(lambda name=name: self.primary() not in (None, name))
            lapsed, n = time.monotonic(), trainer.acked
            self.go_on_pushing(trainer)
            took.append(trainer.times[n] - killed)
            behind.append(trainer.times[n] - lapsed)
            self.start(name).wait_log("stands_by", SECONDS)
            self.until(lambda: self.insync() == 2)
            durable.pull(KEYS)
        self.finish(trainer)
        self.assertEqual(trainer.table.rollbacks, 0, "a replicated table has lost nothing")
        self.assertGreaterEqual(durable.rollbacks, SHARDS, "nobody waited for a follower before it acknowledged this one")
        print(f"from kill -9 to the next acknowledged push, {CYCLES} kills, lease {self.lease_s} s: median "
              f"{statistics.median(took):.2f} s, longest {max(took):.2f} s; from the end of the lease: median "
              f"{statistics.median(behind):.2f} s, longest {max(behind):.2f} s")


class Stops(Failover):
    @begins_anew
    def test_trainers_leave_a_primary_that_stands_still(self):
        self.begin("x", "y", "z")
        trainers = self.train()
        self.servers["x"].pause()
        self.until(lambda: self.primary() in ("y", "z"))
        self.go_on_pushing(*trainers)
        self.servers["x"].go_on()
        self.ends("x")
        self.start("x")
        self.until(lambda: self.insync() == 2)
        self.finish(*trainers)

    @begins_anew
    def test_a_follower_that_stands_still_is_left_out_and_does_not_take_over(self):
        """The primary waits for it until it has taken it off the list; then that one may lack what was acknowledged."""
        self.begin("x", "y", "z")
        trainers = self.train()
        self.servers["y"].pause()
        self.until(lambda: self.insync() == 1)
        self.go_on_pushing(*trainers)
        self.kill("x")
        self.servers["y"].go_on()
        self.until(lambda: self.primary() in ("y", "z"))
        self.assertEqual(self.primary(), "z")
        self.go_on_pushing(*trainers)
        self.finish(*trainers)

    @begins_anew
    def test_a_follower_alone_that_was_not_in_sync_waits(self):
        """It says so; the one that served last serves again."""
        self.begin("x", "y", "z")
        trainers = self.train()
        self.servers["y"].pause()
        self.until(lambda: self.insync() == 1)
        self.go_on_pushing(*trainers)
        self.kill("x")
        self.kill("z")
        self.servers["y"].go_on()
        self.servers["y"].wait_log("no_primary", SECONDS)
        self.start("x")
        self.until(lambda: self.primary() is not None and self.insync() == 1)
        self.assertEqual(self.primary(), "x")
        self.go_on_pushing(*trainers)
        self.finish(*trainers)

    @begins_anew
    def test_a_primary_that_is_stopped_in_order_gives_the_name_back_at_once(self):
        """Long before its lease would lapse. It names a follower, which waits for no other; the third process goes on without a base;
        and trainers ask again soon, whatever they pause for at most. None is told of a loss."""
        self.lease_s = 10 * SECONDS
        self.write_file()
        self.begin("x", "y", "z")
        trainers = self.train(reconnect_max=10 * SECONDS)
        durable, self.longest, self.named, self.went_on = self.durable_table(), [], 0, 0
        for _ in range(STOPS):
            self.until(lambda: self.insync() == 2)
            self.go_on_pushing(*trainers)
            self.stop_in_order(trainers[0])
            durable.pull(KEYS)
        self.finish(*trainers)
        longest = self.longest
        self.assertGreater(self.named, 0, "no heir took the name as such")  # a busy host may make one too late
        self.assertGreater(self.went_on, 0, "no follower went on without a base")
        self.assertEqual([table.rollbacks for table in (durable, trainers[0].table)], [0, 0])
        print(f"from SIGTERM to the next acknowledged push, {STOPS} stops, load {os.getloadavg()[0]:.0f}: median {statistics.median(longest):.2f} s, "
              f"longest {max(longest):.2f} s")

    def stop_in_order(self, trainer):
        """Of the primary, which then follows."""
        name = self.primary()
        others = [other for other in self.servers if other != name]
        begun = {other: len(self.servers[other].log()) for other in others}
        ended, stopped = self.servers[name], time.monotonic()
        self.ended.add(name)
        self.assertEqual(ended.stop(), 0)
        self.until(lambda: self.primary() in others)
        heir, other = self.primary(), next(one for one in others if one != self.primary())
        self.go_on_pushing(trainer)
        self.until(lambda: self.insync() == 1)  # pushes wait for it
        self.assertIn("handed_over server=a", ended.last_log)
        if " named=yes" in self.servers[heir].log()[begun[heir]:]:
            self.named += 1
            self.assertIn(f" heir={self.entry('epoch')['id']}", ended.last_log)
        said = self.servers[other].log()[begun[other]:]
        self.went_on += all(f"follow_goes_on shard={shard} " in said for shard in range(SHARDS)) and "anew" not in said
        self.start(name).wait_log("stands_by", SECONDS)
        times = np.array(trainer.times)
        self.longest.append(float(np.diff(times[times.searchsorted(stopped) - 1:]).max()))


class Fences(Failover):
    TOOLS = os.environ.get("EMBD_FAULT_TOOLS", os.path.join(os.environ["EMBD_BIN"], "..", "tests", "fault"))

    def is_on_its_map(self, server):
        with contextlib.suppress(embd.Error), embd.connect(server.addresses[0], deadline=SECONDS) as client:
            return client.shards == server.addresses
        return False

    def pulled(self, server):
        """From that server, once it serves."""
        self.until(lambda: self.is_on_its_map(server))
        with embd.connect(server.addresses[0], deadline=SECONDS) as client:
            return client.table("t").pull(KEYS)[0, 0]

    def stop_and_go_on(self, seconds=3):
        """Trainers know the primary alone, and send their first pushes while it is stopped: it must not acknowledge any, though
        it does not hear from etcd that it lost its name. Their table is `durable`, whose pushes wait for no follower."""
        proxy, path = self.proxied()
        x = self.start("x", path)
        self.until(lambda: self.primary() == "x")
        y = self.start("y")
        self.until(lambda: self.insync() == 1)
        before = self.train(1, x.addresses[0], "durable")
        trainers = [Trainer(x.addresses[0], "durable") for _ in range(4)]
        x.pause()
        proxy.is_cut = True
        for trainer in trainers:
            self.addCleanup(trainer.stops.set)
            trainer.start()
        self.until(lambda: self.primary() == "y")
        there = self.pulled(y)
        x.go_on()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not any(trainer.acked for trainer in trainers):
            time.sleep(0.05)
        self.assertTrue(x.is_alive())
        proxy.is_cut = False
        self.ends("x")
        acked, there = self.rest(trainers), self.pulled(y) - there
        self.assertLessEqual(acked, there, f"acknowledged {acked}, there are {there}\n{self.logs()}")
        return before + trainers

    @begins_anew
    def test_a_primary_that_stood_still_acknowledges_nothing_when_it_goes_on(self):
        trainers = self.stop_and_go_on()
        self.start("x").wait_log("kept_aside", SECONDS)  # it follows, and has what it alone had in a directory
        self.until(lambda: self.insync() == 1)
        for trainer in trainers:  # it tells them who serves
            trainer.end()
        self.compare()
        kept = [name for name in os.listdir(os.path.join(self.data, "x")) if name.startswith("aside-1-")]
        self.assertEqual(len(kept), 1)
        self.assertTrue(any(name.startswith("journal") for name in os.listdir(os.path.join(self.data, "x", kept[0]))))

    def test_control_without_the_fence_acknowledged_pushes_are_lost(self):
        self.program = os.path.join(self.TOOLS, "embd-without-fence")
        with self.assertRaisesRegex(AssertionError, "acknowledged .*, there are .*"):
            begins_anew(type(self).stop_and_go_on)(self, SECONDS)

    @begins_anew
    def test_a_primary_that_etcd_cannot_hear_stops_and_a_follower_serves(self):
        proxy, path = self.proxied()
        x = self.start("x", path)
        self.until(lambda: self.primary() == "x")
        for name in "yz":
            self.start(name)
        self.until(lambda: self.insync() == 2)
        trainers = self.train(2)
        for key in KEYS[:4]:  # these use one shard, and have a connection to the other one that rests
            trainers += self.train(keys=KEYS[key:key + 1])
        proxy.is_cut = True
        x.wait_log(" fenced ", SECONDS)
        self.until(lambda: self.primary() not in (None, "x"))
        self.go_on_pushing(*trainers)
        self.assertTrue(x.is_alive())  # and acknowledges nothing
        proxy.is_cut = False
        self.ends("x")
        self.finish(*trainers)

    @begins_anew
    def test_a_follower_that_etcd_cannot_hear_changes_nothing_and_is_not_chosen(self):
        proxy, path = self.proxied()
        self.begin("x")
        self.start("y", path)
        self.start("z")
        self.until(lambda: self.insync() == 2)
        trainers = self.train()
        proxy.is_cut = True
        self.until(lambda: self.etcd.count(f"{self.prefix}/followers/a/") == 1)
        self.assertEqual(self.primary(), "x")
        self.kill("x")
        self.until(lambda: self.primary() in ("y", "z"))
        self.assertEqual(self.primary(), "z")
        proxy.is_cut = False
        self.go_on_pushing(*trainers)
        self.finish(*trainers)

    def come_back(self, program=None):
        """x served, another one took its place and acknowledged more; all are gone, and x comes back alone."""
        self.begin("x", "y", "z")
        trainers = self.train()
        self.kill("x")
        self.until(lambda: self.primary() in ("y", "z"))
        last = self.primary()
        self.go_on_pushing(*trainers)
        self.kill("y")
        self.kill("z")
        self.until(lambda: self.entry("servers") is None)
        x = self.start("x", program=program)
        self.until(lambda: "kept_aside" in x.log() or self.primary() == "x")
        time.sleep(self.lease_s)
        self.assertNotEqual(self.primary(), "x", f"x serves again\n{self.logs()}")
        self.start(last)
        self.until(lambda: self.primary() == last and self.insync() == 1)
        self.finish(*trainers)

    @begins_anew
    def test_who_was_followed_by_another_one_does_not_serve_when_it_comes_back(self):
        self.come_back()

    def test_control_without_epochs_it_does(self):
        with self.assertRaisesRegex(AssertionError, "x serves again"):
            begins_anew(type(self).come_back)(self, os.path.join(self.TOOLS, "embd-without-epochs"))


class Etcd(Failover):
    def restart(self, seconds):
        self.etcd.kill(0)
        time.sleep(seconds)
        self.etcd.start(0)
        self.etcd.wait()

    @begins_anew
    def test_a_map_comes_from_etcd_where_it_has_changed_and_not_in_each_turn(self):
        """Beside the renewals of leases, of a primary and of a follower."""
        key = base64.b64encode(f"{self.prefix}/map".encode()).decode()
        listeners = {}
        for name in "xy":
            listeners[name], path = self.proxied(Listener)
            self.start(name, path)
            self.until(lambda: self.primary() == "x")
        self.until(lambda: self.insync() == 1)

        def heard(name):
            return [listeners[name].count(text) for text in (f'"kvs":[{{"key":"{key}"', '"TTL":')]

        self.until(lambda: all(heard(name)[0] > 0 for name in "xy"))
        before = {name: heard(name) for name in "xy"}
        self.until(lambda: all(heard(name)[1] >= before[name][1] + 5 for name in "xy"))
        self.assertEqual([heard(name)[0] - before[name][0] for name in "xy"], [0, 0])
        self.kill("x")
        self.until(lambda: self.primary() == "y")
        self.until(lambda: heard("y")[0] > before["y"][0])

    @begins_anew
    def test_nobody_takes_over_where_etcd_restarts(self):
        self.lease_s = 5 * LEASE_S
        self.write_file()
        self.begin("x", "y", "z")
        trainers = self.train()
        for _ in range(3):
            self.go_on_pushing(*trainers)
            self.restart(0.5)
        time.sleep(self.lease_s)
        self.go_on_pushing(*trainers)
        self.assertEqual((self.primary(), self.entry("epoch")["epoch"]), ("x", 1))
        self.finish(*trainers)

    @begins_anew
    def test_without_etcd_nothing_is_acknowledged_after_the_lease_until_it_is_there(self):
        self.begin("x", "y", "z")
        trainers = self.train()
        self.etcd.kill(0)
        self.servers["x"].wait_log(" fenced ", SECONDS)
        self.rest(trainers)
        self.etcd.start(0)
        self.etcd.wait()
        self.go_on_pushing(*trainers)
        self.until(lambda: self.primary() == "x" and self.insync() == 2)
        self.finish(*trainers)

    @begins_anew
    def test_all_are_killed_and_start_again(self):
        self.begin("x", "y", "z")
        trainers = self.train()
        for _ in range(2):
            self.go_on_pushing(*trainers)
            for name in self.servers:
                self.kill(name)
            for name in list(self.servers):
                self.start(name)
            self.until(lambda: self.primary() is not None and self.insync() == 2)
        self.go_on_pushing(*trainers)
        self.finish(*trainers)


if __name__ == "__main__":
    clusters.main()
