"""Servers with failover, each of a primary and a follower: one more becomes a member and leaves while trainers push to replicated tables, and
primaries are killed with -9, stopped for a while, or etcd is. All count with its shard or none does, no acknowledged push is lost or doubled, and digests are the same.
Skipped where there is no etcd. EMBD_GROWTH_KILLS=n: how many troubles there are; 4 without it. EMBD_GROWTH_SEED=n: which, and when."""
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import time

import numpy as np

import clusters
import embd
from certificates import Authority, Tokens
from ports import free_ports
from test_failover import EMBCTL, SECONDS, Failover, Wrong
from test_rebalance import embctl

KILLS = int(os.environ.get("EMBD_GROWTH_KILLS", "4"))
KEYS = np.arange(1000)
TOOLS = os.environ.get("EMBD_FAULT_TOOLS", os.path.join(os.environ["EMBD_BIN"], "..", "tests", "fault"))


def digest(address):
    ran = embctl(address, "digest", "-o", "json", timeout=60)
    return None if ran.returncode else json.loads(ran.stdout)["tables"]


class Servers(Failover):
    """A process is named by its server and a number."""

    def write_file(self, members=None):
        self.list("ab")

    def list(self, servers):
        with open(self.file, "w", encoding="ascii") as file:
            file.write('http: "off"\nreplicas: 1\ncluster:\n  name: shop\n'
                       f'  etcd: "etcd://127.0.0.1:{self.etcd.ports[0]}{self.prefix}"\n  failover: yes\n'
                       f'  etcd_lease: {self.lease_s}\n  servers:\n' +
                       "".join(f"    - {{name: {name}, shards: 1}}\n" for name in servers))

    def start(self, name, *flags):  # pylint: disable=arguments-differ
        path = os.path.join(self.data, name)
        os.makedirs(path, exist_ok=True)
        self.ports.setdefault(name, free_ports(1))
        server = clusters.Embd("--config", self.file, "--server", name[0], "--data-dir", path, "--listen",
                               f"127.0.0.1:{self.ports[name]}", *flags, listen=None, waits=False, program=self.program)
        self.addCleanup(server.kill)
        self.servers[name] = server
        self.all.append((name, server))
        self.ended.discard(name)
        return server

    def tend(self):
        """It does not matter who serves."""
        for name in self.lapsed():
            self.start(name)

    def entry_of(self, key, server):
        text = self.etcd.get(f"{self.prefix}/{key}/{server}")
        return json.loads(text) if text else None

    def primary_of(self, server):
        entry = self.entry_of("servers", server)
        return next((name for name, at in self.servers.items()
                     if name[0] == server and name not in self.ended and entry and at.addresses[0] == entry["address"]), None)

    def even(self, servers):
        """Each has a primary with a follower in sync."""
        return all(self.primary_of(server) and len((self.entry_of("insync", server) or {"ids": []})["ids"]) == 1 for server in servers)

    def begin_all(self):
        for name in ("a1", "b1"):
            self.start(name)
        self.until(lambda: self.primary_of("a") and self.primary_of("b"))
        for name in ("a2", "b2"):
            self.start(name)
        self.until(lambda: self.even("ab"))

    def name_of(self, server):
        """Of its primary."""
        found = []
        self.until(lambda: found.append(self.primary_of(server)) or found[-1])
        return found[-1]

    def at(self, server):
        return self.servers[self.name_of(server)].addresses[0]

    def logs(self):
        return f"{super().logs()}\n{self.etcd.get(f'{self.prefix}/map')}"

    def shards(self, servers):
        """How many shards the servers count with."""
        found = set()
        for server in servers:
            try:
                with embd.connect(self.at(server), deadline=SECONDS) as client:
                    found.add(len(client.vshards()))
            except embd.Error as error:  # it has not heard yet where another one is now
                found.add(str(error))
        return found

    def kill_primary(self, server):
        name = self.name_of(server)
        self.kill(name)
        return name

    def check(self, *trainers):
        for trainer in trainers:
            trainer.end()
            self.assertIsNone(trainer.wrong, self.logs())
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            found = client.table("t").pull(KEYS)
        if (found != sum(trainer.acked for trainer in trainers)).any():
            raise Wrong(f"acknowledged {[t.acked for t in trainers]}, there are {np.unique(found)}\n{self.logs()}")


class Fails(Servers):
    def test_each_server_has_a_follower_that_takes_its_place(self):
        rng = random.Random(int(os.environ.get("EMBD_GROWTH_SEED", "11")))
        self.begin_all()
        trainers = self.train(2, keys=KEYS)
        for _ in range(KILLS):
            self.until(lambda: self.even("ab"))
            name = self.kill_primary(rng.choice("ab"))
            self.until(lambda server=name[0]: self.primary_of(server) is not None)
            self.start(name)
            self.go_on_pushing(*trainers)
        self.until(lambda: self.even("ab"))
        self.check(*trainers)


class Replicas(Servers):
    def test_one_that_follows_a_place_in_etcd_follows_whoever_serves(self):
        """Also with narrow rows. Each server's primary dies, its follower takes its place, and dies, too."""
        self.begin_all()
        place = f"etcd://127.0.0.1:{self.etcd.ports[0]}{self.prefix}"
        os.mkdir(os.path.join(self.data, "replica"))
        flags = "--cluster-name", "shop", "--follow", place, "--serve", "yes", "--http", "off"
        replicas = [clusters.Embd(*flags, "--data-dir", os.path.join(self.data, "replica"), shards=2, waits=False),
                    clusters.Embd(*flags, "--serve-dtype", "f32", shards=2, waits=False)]
        for replica in replicas:
            self.addCleanup(replica.kill)
        trainers = self.train(1, keys=KEYS)
        for server in "abab":
            self.until(lambda: self.even("ab"))
            name = self.kill_primary(server)
            self.until(lambda server=server: self.primary_of(server) is not None)
            self.start(name)
            self.go_on_pushing(*trainers)
        trainers[0].end()
        self.assertIsNone(trainers[0].wrong, self.logs())
        for replica in replicas:
            self.until(lambda replica=replica: self.has_all(replica, trainers[0].acked), says=lambda replica=replica: replica.log() + self.logs())

    @staticmethod
    def has_all(replica, value):
        try:
            with embd.connect(replica.addresses[0], deadline=5) as client:
                return (client.table("t").pull(KEYS) == value).all()
        except embd.Error:  # it has no base yet
            return False


class Changing(Servers):
    def change(self, *words, is_done=lambda: False):
        """Again while it is busy, unless an earlier try has done it."""
        end = time.monotonic() + SECONDS
        while True:
            self.tend()
            try:
                ran = embctl(self.at("a"), *words, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                self.fail(f"{words}\n{self.logs()}")
            if ran.returncode == 0 or is_done():
                return
            self.assertLess(time.monotonic(), end, (ran.stderr, self.logs()))
            time.sleep(0.1)

    def join(self):
        self.list("abc")
        self.start("c1", "--join").wait_log("ready shards", SECONDS)
        self.until(lambda: self.primary_of("c") == "c1")
        self.start("c2", "--join")


class Changes(Changing):
    """With TLS and tokens on every way."""

    def list(self, servers):
        if not hasattr(self, "tokens"):
            self.tokens, ca = Tokens(self.data), Authority(self.data, "ca")
            self.tokens.add("own", "admin")
            self.tokens.add("peer", "server")
            self.cert, self.key, self.ca = *ca.issue("server"), ca.path
            os.environ["EMBD_TOKEN_FILE"], os.environ["EMBD_TLS_CA"] = self.tokens.file("own"), ca.path
            for name in ("EMBD_TOKEN_FILE", "EMBD_TLS_CA"):
                self.addCleanup(os.environ.pop, name)
        super().list(servers)
        with open(self.file, "a", encoding="ascii") as file:
            file.write(f"tokens: {self.tokens.path}\nfollow_token: {self.tokens.file('own')}\npeer_token: {self.tokens.file('peer')}\n"
                       f"tls_cert: {self.cert}\ntls_key: {self.key}\npeer_ca: {self.ca}\n")

    def test_a_server_is_added_gets_keys_and_leaves(self):
        self.begin_all()
        trainers = self.train(2, keys=KEYS)
        self.join()
        self.servers["c2"].pause()
        time.sleep(10.5)  # it has no follower until it is a member, and then refuses nothing for that
        self.change("shard", "add", self.servers["c1"].addresses[0])
        time.sleep(1)
        self.servers["c2"].go_on()
        self.go_on_pushing(*trainers)
        self.until(lambda: self.even("abc"))
        self.change("rebalance")
        self.go_on_pushing(*trainers)
        for server in "abc":
            name = self.kill_primary(server)
            self.until(lambda server=name[0]: self.primary_of(server) is not None)
            self.start(name)
            self.go_on_pushing(*trainers)
            self.until(lambda: self.even("abc"))
        self.change("rebalance", "--drain", "2")
        self.go_on_pushing(*trainers)
        self.change("shard", "retire", "2")
        self.go_on_pushing(*trainers)
        self.until(lambda: self.primary_of("c") is None)
        for server in "ab":
            self.until(lambda: self.even("ab"))
            name = self.kill_primary(server)
            self.until(lambda server=name[0]: self.primary_of(server) is not None)
            self.start(name)
            self.go_on_pushing(*trainers)
        self.check(*trainers)


class Waits(Changing):
    def follower_of(self, server):
        return next(process for name, process in self.servers.items() if name[0] == server and name != self.primary_of(server))

    def stopped(self, process):
        process.pause()
        self.addCleanup(process.go_on)
        return process

    def test_a_map_waits_for_followers_in_sync_though_no_table_does(self):
        self.begin_all()
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            client.create_table("t", 4, durability="durable").push(KEYS, np.ones((len(KEYS), 4), np.float32))
        follower = self.stopped(self.follower_of("b"))
        with subprocess.Popen([EMBCTL, "--servers", self.at("a"), "rebalance", "--weights", "1,3"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as job:
            time.sleep(1.5)  # it is silent, and still in sync
            has_ended = job.poll() is not None
            follower.go_on()
            self.assertEqual((job.wait(SECONDS), job.stderr.read()), (0, ""), self.logs())
        self.assertFalse(has_ended)

    def test_who_is_in_doubt_hears_of_a_decision_once_a_follower_of_shard_0_has_it(self):
        self.begin_all()
        first, heir, name = self.servers[self.primary_of("a")], self.follower_of("b"), self.primary_of("b")
        follower = self.stopped(self.follower_of("a"))
        with subprocess.Popen([EMBCTL, "--servers", first.addresses[0], "rebalance", "--weights", "1,3"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as job:
            self.addCleanup(job.kill)
            first.wait_log("placement_moved shard=0", SECONDS)  # shard 0 has decided
            self.kill(name)
            heir.wait_log("replacement_in_doubt", SECONDS)
            time.sleep(1)  # it asks ten times
            self.assertNotIn("replacement_settled", heir.log())
            follower.go_on()
            heir.wait_log("placement=new", SECONDS)
            job.wait(SECONDS)
        self.assertEqual(self.shards("ab"), {2})


class Leaves(Changing):
    lease_s = 10  # etcd stands still for a moment, in which no server loses its name

    def test_a_follower_removes_the_keys_of_a_server_that_left_and_died(self):
        """So that another one may have the name."""
        self.begin_all()
        trainers = self.train(1, keys=KEYS)
        self.join()
        self.change("shard", "add", self.servers["c1"].addresses[0])
        self.until(lambda: self.even("abc"))
        self.etcd.members[0].send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(embctl(self.servers["a1"].addresses[0], "shard", "retire", "2").returncode, 0, self.servers["c1"].log())
            self.kill("c1")
        finally:
            self.etcd.members[0].send_signal(signal.SIGCONT)
        self.until(lambda: self.entry_of("servers", "c") is None and self.entry_of("epoch", "c") is None)
        self.servers["c2"].wait_log("name_removed", SECONDS)
        self.go_on_pushing(*trainers)
        self.check(*trainers)


class Returns(Changing):
    def n_insync(self, server):
        return len((self.entry_of("insync", server) or {"ids": []})["ids"])

    def come_back(self, program=None):
        """c1 was added, served, and another one took its place and acknowledged more. All of c are gone, and c1 comes back alone: nobody
        is there to tell it, but etcd."""
        self.begin_all()
        trainers = self.train(1, keys=KEYS)
        self.join()
        self.change("shard", "add", self.servers["c1"].addresses[0])
        self.start("c3", "--join")
        self.until(lambda: self.even("ab") and self.n_insync("c") == 2)
        self.change("rebalance")
        self.kill("c1")
        self.until(lambda: self.primary_of("c") in ("c2", "c3"))
        last = self.primary_of("c")
        self.go_on_pushing(*trainers)
        for name in ("c2", "c3"):
            self.kill(name)
        self.until(lambda: self.entry_of("servers", "c") is None)
        self.program = program or self.program
        c1 = self.start("c1", "--join")
        self.until(lambda: "kept_aside" in c1.log() or self.primary_of("c") == "c1")
        time.sleep(self.lease_s)
        self.assertIsNone(self.primary_of("c"), f"c1 serves again\n{self.logs()}")
        self.start(last, "--join")
        self.until(lambda: self.primary_of("c") == last and self.n_insync("c") == 1)
        self.go_on_pushing(*trainers)
        self.check(*trainers)

    def test_a_server_that_was_added_and_deposed_does_not_serve_where_it_comes_back_first(self):
        self.come_back()

    def test_control_without_epochs_it_does(self):
        with self.assertRaisesRegex(AssertionError, "c1 serves again"):
            self.come_back(os.path.join(TOOLS, "embd-without-epochs"))


class Troubles(Changing):
    def tend(self):
        for name in self.lapsed():
            self.again_as(name)

    def again_as(self, name):
        if name[0] != "c" or not self.has_left(name):
            self.start(name, *(["--join"] if name[0] == "c" else []))

    def kill_one(self, rng, name):
        self.kill(name)
        time.sleep(rng.uniform(0, 0.3))
        self.again_as(name)

    def stop_one(self, rng, name):
        """It loses its name, unless it goes on in time."""
        server = self.servers[name]
        server.pause()
        time.sleep(rng.uniform(0, 2 * self.lease_s))
        server.go_on()

    def stop_etcd(self, rng, _):
        """Names are lost, unless it goes on in time."""
        self.etcd.members[0].send_signal(signal.SIGSTOP)
        try:
            time.sleep(rng.uniform(0, 1.5 * self.lease_s))
        finally:
            self.etcd.members[0].send_signal(signal.SIGCONT)

    def troubled_while(self, rng, *words):
        """Trouble at some moment of that. Who dies or loses its name comes back where it has not left."""
        with subprocess.Popen([EMBCTL, "--servers", self.at("a"), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            time.sleep(rng.uniform(0, 0.07))
            server = rng.choice("abc")
            if server != "c" or self.primary_of("c") is None:  # it has left
                server = "a" if server == "c" else server
                self.name_of(server)
            name = self.primary_of(server)
            trouble = rng.choice([self.kill_one, self.kill_one, self.stop_one, self.stop_etcd])
            if name is not None:
                trouble(rng, name)
                self.troubles[f"{trouble.__name__} {server}"] += 1
            job.kill()

    def has_left(self, name):
        try:
            with open(os.path.join(self.data, name, "identity.json"), encoding="ascii") as file:
                return bool(json.load(file).get("left"))
        except FileNotFoundError:
            return False

    def settled(self):
        """All members count alike."""
        self.until(lambda: self.shards("ab") in ({2}, {3}), says=lambda: f"{self.shards('ab')} {self.logs()}")
        return self.shards("ab").pop()

    def add(self, rng):
        self.join()
        self.troubled_while(rng, "shard", "add", self.servers["c1"].addresses[0])
        if self.settled() == 2:
            self.again += 1
            self.until(lambda: self.primary_of("c") is not None)
            self.change("shard", "add", self.at("c"), is_done=lambda: self.shards("ab") == {3})
        self.until(lambda: self.even("abc"))

    def move(self, rng, *words):
        self.troubled_while(rng, "rebalance", *words)
        self.until(lambda: self.even("abc"))
        self.change("rebalance", *words)

    def leave(self, rng):
        self.troubled_while(rng, "shard", "retire", "2")
        if self.settled() == 3:
            self.again += 1
            self.change("shard", "retire", "2", is_done=lambda: self.shards("ab") == {2})
        self.until(lambda: self.entry_of("servers", "c") is None and self.entry_of("epoch", "c") is None)
        for name in ("c1", "c2"):
            self.kill(name)
            self.servers.pop(name)
            shutil.rmtree(os.path.join(self.data, name))

    def test_whoever_dies_while_a_server_comes_and_leaves_all_have_one_map(self):
        rng = random.Random(int(os.environ.get("EMBD_GROWTH_SEED", "11")))
        self.troubles, self.again = collections.Counter(), 0
        self.begin_all()
        trainers = self.train(2, keys=KEYS)
        while self.troubles.total() < KILLS:
            for step in (self.add, self.move, lambda rng: self.move(rng, "--drain", "2"), self.leave):
                step(rng)
                self.go_on_pushing(*trainers)
        self.until(lambda: self.even("ab"))
        self.check(*trainers)
        found = digest(self.at("a"))
        for server in "ab":
            self.kill_primary(server)
        self.until(lambda: digest(self.at("a")) == found)
        print(f"{dict(self.troubles)}, {self.again} changes were made by a second try")


if __name__ == "__main__":
    clusters.main()
