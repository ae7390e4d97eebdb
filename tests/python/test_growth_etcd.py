"""Servers become members of a cluster whose map is in etcd, and leave it, while trainers pull and push: no call fails, no push is lost or
applied twice, servers start elsewhere, and whoever dies, etcd too, all servers count with the shards or none does. Skipped where there is
no etcd. EMBD_GROWTH_KILLS=n: how many die; 6 without it. EMBD_GROWTH_SEED=n: which, and when."""
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np

import clusters
import embd
from embd_process import Embd
from etcd_process import ETCD, Etcd, b64
from ports import free_ports
from test_growth import KILLS
from test_rebalance import DIM, EMBCTL, KEYS, Trainer, digests, embctl
from test_retire import Retiring


class Cluster:
    """Servers by name; the file lists the first of them. Each start is on other ports, so etcd alone knows where they are."""

    def __init__(self, etcd, prefix, names, listed, shards=1):
        self.dir = tempfile.mkdtemp(prefix="embd-grown-")
        self.etcd, self.prefix, self.shards, self.running, self.all = etcd, prefix, shards, {}, names
        self.list(listed)

    def path(self, name):
        return os.path.join(self.dir, name)

    def list(self, n):
        self.names = self.all[:n]
        with open(self.path("embd.yaml"), "w", encoding="ascii") as file:
            file.write(f'http: "off"\ncluster:\n  etcd: "etcd://127.0.0.1:{self.etcd.ports[0]}{self.prefix}"\n  etcd_lease: 1\n  servers:\n')
            for name in self.names:
                os.makedirs(self.path(name), exist_ok=True)
                file.write(f'    - {{name: {name}, shards: {self.shards}, data_dir: "{self.path(name)}"}}\n')

    def start(self, name, *flags, **more):
        self.running[name] = Embd("--config", self.path("embd.yaml"), "--server", name, "--listen", "127.0.0.1:0", *flags, listen=None,
                                  shards=self.shards, **more)
        return self.running[name]

    def join(self, name):
        """The server has begun, and is no member."""
        self.list(max(self.all.index(name) + 1, len(self.names)))
        server = self.start(name, "--join", waits=False)
        server.wait_log("ready shards", 60)
        return server

    def kill(self, name):
        self.running.pop(name).kill()

    def address(self, name):
        return self.running[name].addresses[0]

    def map(self):
        return json.loads(self.etcd.get(self.prefix + "/map"))

    def __exit__(self, kind, value, trace):
        for server in self.running.values():
            server.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


@unittest.skipIf(ETCD is None, "etcd is not installed: deploy/deps.sh --tools")
class InEtcd(Retiring):
    @classmethod
    def setUpClass(cls):
        cls.etcd = Etcd(1)

    @classmethod
    def tearDownClass(cls):
        cls.etcd.stop()

    def begin(self, names="abcd", listed=2, **more):
        cluster = Cluster(self.etcd, "/embd/" + self.id().rsplit(".", 1)[1], names, listed, **more)
        self.addCleanup(cluster.__exit__, None, None, None)
        for name in cluster.names:
            cluster.start(name, waits=False)
        self.wait(cluster)
        return cluster

    def wait(self, cluster):
        ran = embctl(cluster.address("a"), "wait", timeout=90)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def until(self, condition, text="it did not come to that"):
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.02)

    def add(self, cluster, name, code=0):
        """Again while it does not know yet where the others are."""
        end = time.monotonic() + 60
        while True:
            ran = embctl(cluster.address("a"), "shard", "add", cluster.address(name), "-o", "json")
            if "try again" not in ran.stderr:
                break
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.assertEqual(ran.returncode, code, ran.stderr)
        return json.loads(ran.stdout)["added"][0] if code == 0 else ran.stderr

    def restart(self, cluster, listed=8):
        """All, elsewhere."""
        names = list(cluster.running)
        for name in names:
            cluster.kill(name)
        cluster.list(listed)
        for name in names:
            if name not in cluster.names:
                cluster.list(len(cluster.all))
            cluster.start(name, waits=False)
        self.wait(cluster)

    def until_on_map(self, cluster, names):
        """The map in etcd has these servers, where they are, and no others."""
        def is_so():
            there = cluster.map()["servers"]
            return {name: [entry["address"] for entry in there[name]] for name in there} == \
                {name: cluster.running[name].addresses for name in names}
        self.until(is_so)

    def until_known(self, cluster, names):
        """Each server tells of the others where they are."""
        expected = [address for name in names for address in cluster.running[name].addresses]

        def knows(name):
            try:
                with embd.connect(cluster.address(name), deadline=60) as client:
                    return list(client.shards) == expected
            except embd.Error:
                return False  # it tells of one that has gone
        for name in names:
            self.until(lambda asked=name: knows(asked))


class Changes(InEtcd):
    def test_two_shards_become_four_and_two_again_and_their_servers_start_elsewhere(self):
        cluster = self.begin()
        client = self.connect(cluster)
        self.counted(client)
        trainers = [Trainer(cluster.address(name), "t", i * KEYS) for i, name in enumerate("ab")]
        for trainer in trainers:
            trainer.start()
        for n, name in enumerate("cd", 3):
            cluster.join(name)
            self.assertNotIn(name, cluster.map()["servers"])
            self.assertEqual(self.add(cluster, name)["shards"], n)
            self.move(cluster)
            for trainer in trainers:
                trainer.until(10)
            self.until_on_map(cluster, "abcd"[:n])
        for name in "cd":  # others know them by their numbers alone
            cluster.kill(name)
            cluster.start(name, waits=False)
            self.until_known(cluster, "abcd")
            for trainer in trainers:
                trainer.until(10)
        for shard, name in ((3, "d"), (2, "c")):
            self.drain(cluster, shard)
            self.assertEqual(self.retire(cluster, shard)["shards"], shard)
            self.until_on_map(cluster, "abcd"[:shard])
            self.until(lambda left=name: self.etcd.get(f"{cluster.prefix}/servers/{left}") is None)
            self.until(lambda left=name: self.is_noted(cluster, left))
            cluster.kill(name)
            for trainer in trainers:
                trainer.until(10)
        for trainer in trainers:
            trainer.end()
            trainer.check(client)
        before = digests(cluster.address("a"))
        self.assertEqual(before[0]["steps"], sum(t.n for t in trainers))
        for listed in (4, 2):
            self.restart(cluster, listed)
            self.assertEqual(digests(cluster.address("a")), before)

    def test_a_number_comes_back_at_a_server_of_another_name(self):
        cluster = self.begin("abc", 3)
        client = self.connect(cluster)
        table = self.counted(client)
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.drain(cluster, 2)
        self.retire(cluster, 2)
        self.until_on_map(cluster, "ab")
        cluster.kill("c")
        # as if it had died before it left the map
        left = [{"address": "127.0.0.1:1", "admin": "", "admin_tcp": "", "shard": 2, "placement": 1}]
        there = cluster.map()
        self.etcd.put(cluster.prefix + "/map", json.dumps({"version": there["version"] + 1, "servers": {**there["servers"], "c": left}}))
        cluster.all = "abx"
        cluster.join("x")
        self.add(cluster, "x")
        self.move(cluster)
        self.until_on_map(cluster, "abx")
        self.until_known(cluster, "abx")
        table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        self.restart(cluster)
        self.until_known(cluster, "abx")
        client = self.connect(cluster)
        self.assertEqual({float(v) for v in client.table("t").pull(np.arange(KEYS)).ravel()}, {2.0})
        self.assertGreater(min(self.rows(client)), KEYS / 5)

    def test_a_server_alone_gets_one_of_two_shards_and_workers_stay_in_step(self):
        cluster = self.begin("ab", 1, shards=2)
        client = self.connect(cluster)
        self.counted(client)
        workers, wrong, begun, keys = 3, [], threading.Semaphore(0), np.arange(500, dtype=np.uint64)

        def work(rank):
            try:
                with embd.connect(cluster.address("a"), deadline=90) as own, \
                        embd.Clock(own, "job", worker=rank, workers=workers, lease=60) as clock:
                    table = own.table("t")
                    for _ in clock.steps(150):
                        table.push(keys, -np.ones((500, DIM), np.float32), round=clock)
                        begun.release()
            except Exception as error:  # pylint: disable=broad-except
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(workers)]
        for thread in threads:
            thread.start()
        begun.acquire()
        cluster.join("b")
        self.add(cluster, "b")
        self.until_on_map(cluster, "ab")
        self.move(cluster)
        self.move(cluster, "--weights", "1,1,0,0")
        for thread in threads:
            thread.join(100)
        self.assertEqual(wrong, [])
        self.retire(cluster, 2)
        self.until_on_map(cluster, "a")
        self.assertEqual({float(v) for v in client.table("t").pull(keys).ravel()}, {150.0})

    def test_without_etcd_servers_are_added_and_leave_too(self):
        """Shard 0's record decides, and the servers hear of it from each other; etcd hears of it afterwards."""
        cluster = self.begin("abcd", 3)
        client = self.connect(cluster)
        table = self.counted(client)
        cluster.join("d")
        self.until_known(cluster, "abc")
        self.drain(cluster, 2)
        self.etcd.kill(0)
        try:
            table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
            self.add(cluster, "d")
            self.move(cluster)
            self.until(lambda: len(client.vshards()) == 4)
            self.until_known(cluster, "abcd")
            self.drain(cluster, 3)
            self.retire(cluster, 3)
            table.push(np.arange(KEYS), -np.ones((KEYS, DIM), np.float32))
        finally:
            self.etcd.start(0)
            self.etcd.wait()
        self.until_on_map(cluster, "abc")
        self.assertEqual({float(v) for v in table.pull(np.arange(KEYS)).ravel()}, {2.0})


class Restored(InEtcd):
    """An etcd whose disk is lost comes back from a backup: it has an earlier map than the servers."""

    def setUp(self):
        self.etcd = Etcd(1)
        self.addCleanup(self.etcd.stop)

    def disk(self):
        return os.path.join(self.etcd.dir, "m0")

    def back_up(self):
        self.etcd.kill(0)
        shutil.copytree(self.disk(), self.disk() + "-copy")
        self.etcd.start(0)
        self.etcd.wait()

    def restore(self, n_revisions):
        """With so many revisions more, as etcdutl's --bump-revision makes them, before anybody asks it."""
        seen = self.revision()
        self.etcd.kill(0)
        shutil.rmtree(self.disk())
        shutil.copytree(self.disk() + "-copy", self.disk())
        ports, self.etcd.ports = self.etcd.ports, [free_ports(1)]
        self.etcd.start(0)
        self.etcd.wait()
        self.assertLess(self.revision(), seen)
        for _ in range(n_revisions):
            self.etcd.put("/other", "value")
        self.assertEqual(self.revision() > seen, n_revisions > 0)
        self.etcd.kill(0)
        self.etcd.ports = ports
        self.etcd.start(0)
        self.etcd.wait()

    def revision(self):
        return int(self.etcd.ask("kv/range", {"key": b64("/ready")})["header"]["revision"])

    def is_back(self, cluster):
        """The map has all of them where they are. Who started behind the backup finds the process before it there, and ends."""
        for name, server in list(cluster.running.items()):
            if server.process.poll() is not None:
                self.assertIn("name_lost", server.log())
                cluster.start(name, waits=False)
        there = cluster.map()["servers"]
        return {name: [entry["address"] for entry in there[name]] for name in there} == \
            {name: server.addresses for name, server in cluster.running.items()}

    def lose(self, n_revisions):
        cluster = self.begin("abc")
        client = self.connect(cluster)
        self.counted(client)
        self.back_up()
        trainer = Trainer(cluster.address("b"), "t", 0)
        trainer.start()
        cluster.join("c")
        self.add(cluster, "c")
        self.move(cluster)
        cluster.kill("b")  # elsewhere now
        cluster.start("b", waits=False)
        self.until_on_map(cluster, "abc")
        trainer.until(10)
        self.restore(n_revisions)
        self.until(lambda: self.is_back(cluster))
        trainer.until(10)
        self.move(cluster, "--weights", "1,2,3")
        trainer.until(10)
        trainer.end()
        trainer.check(self.connect(cluster))
        before = digests(cluster.address("a"))
        self.restart(cluster)
        self.assertEqual(digests(cluster.address("a")), before)

    def test_servers_tell_it_of_what_it_lacks(self):
        self.lose(0)

    def test_also_where_its_revisions_go_on_behind_those_that_they_have_seen(self):
        self.lose(2000)


class Kills(InEtcd):
    def test_whoever_dies_while_a_server_is_added_or_leaves_all_have_one_map(self):
        rng = random.Random(int(os.environ.get("EMBD_GROWTH_SEED", "11")))
        cluster = self.begin("abc")
        client = self.connect(cluster)
        self.counted(client)
        trainer = Trainer(cluster.address("b"), "t", 0)
        trainer.start()
        for kill in range(KILLS):
            trainer.until(10)
            retires = kill % 2 == 1
            words = ["retire", "2"]
            if retires:
                self.drain(cluster, 2)
            else:
                cluster.join("c")
                words = ["add", cluster.address("c")]
            ended = self.kill_one(cluster, rng, words)
            self.settle_on(cluster, retires, ended)
            trainer.until(10)
        trainer.end()
        trainer.check(self.connect(cluster))

    def kill_one(self, cluster, rng, words):
        with subprocess.Popen([EMBCTL, "--servers", cluster.address("a"), "shard", *words], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as running:
            time.sleep(rng.uniform(0, 0.08))
            dies = rng.choice(["a", "b", "c", "etcd"])
            if dies == "etcd":
                self.etcd.kill(0)
            else:
                cluster.kill(dies)
            time.sleep(rng.uniform(0, 0.2))
            if dies == "etcd":
                self.etcd.start(0)
                self.etcd.wait()
            elif dies != "c" or words[0] == "add" or not self.is_noted(cluster, "c"):
                cluster.start(dies, *(["--join"] if dies == "c" else []), waits=False)
            _, why = running.communicate(timeout=90)
            return dies, running.returncode, why.strip()

    def counts(self, cluster):
        """How many shards the members count with. One in doubt asks shard 0, once it has heard where that is."""
        counts = set()
        for name in "ab":
            try:
                with embd.connect(cluster.address(name), deadline=60) as client:
                    counts.add(len(client.vshards()))
            except embd.UnreachableError:  # it has not heard yet where the other one is now
                counts.add(0)
        return counts

    def settle_on(self, cluster, retires, ended):
        """All count alike; then it is as it was asked for, by another try where it is not yet."""
        self.wait(cluster)
        self.until(lambda: self.counts(cluster) in ({2}, {3}), ended)
        counts = self.counts(cluster)
        if retires and counts == {3}:
            self.retire(cluster, 2)
        elif not retires and counts == {2}:
            self.add(cluster, "c")
        if retires:
            self.until(lambda: self.is_noted(cluster, "c"), ended)
            if "c" in cluster.running:
                cluster.kill("c")
            shutil.rmtree(cluster.path("c"))
        else:
            self.move(cluster)
        self.until_known(cluster, "ab" if retires else "abc")
        self.until_on_map(cluster, "ab" if retires else "abc")


if __name__ == "__main__":
    clusters.main()
