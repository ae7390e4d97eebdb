"""A cluster whose map is in etcd, on three real members: it forms, servers move under load, the leader is killed, leases
run out, names are taken, the map is damaged, etcd is gone. Skipped where there is no etcd."""
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import numpy as np

import clusters
import embd
from etcd_process import ETCD, Etcd, b64

GONE_S = float(os.environ.get("EMBD_TEST_ETCD_GONE_S", "2.5"))  # how long etcd is gone; a minute by hand


class Clusters(unittest.TestCase):
    """Servers a and b of a cluster in etcd."""

    etcd = None

    def write_file(self, prefix, *lines):
        members = ",".join(f"127.0.0.1:{port}" for port in self.etcd.ports)
        self.prefix, self.file = prefix, tempfile.NamedTemporaryFile("w", suffix=".yaml")
        self.addCleanup(self.file.close)
        self.file.write(f'http: "off"\ncluster:\n  name: shop\n  etcd: "etcd://{members}{prefix}"\n  etcd_lease: 1\n' +
                        "".join(f"  {line}\n" for line in lines) +
                        "  servers:\n    - {name: a, shards: 2}\n    - {name: b}\n")
        self.file.flush()

    def server(self, name, *flags, **more):
        server = clusters.Embd("--config", self.file.name, "--server", name, "--listen", "127.0.0.1:0", *flags, listen=None,
                               shards=2 if name == "a" else 1, **more)
        self.addCleanup(server.kill)
        return server

    def etcd_silent(self, server):
        """Its metric."""
        if not hasattr(server, "http"):
            server.http = re.fullmatch(r"embd: http on (\S+)\n", server.process.stdout.readline()).group(1)
        with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=10) as page:
            return int(re.search(r"^embd_etcd_silent (\d)$", page.read().decode(), re.M).group(1))

    def connect(self, server, **options):
        client = embd.connect(server.addresses[0], **{"deadline": 20, **options})
        self.addCleanup(client.close)
        return client

    def until(self, condition, seconds=15):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, "it did not come to that")
            time.sleep(0.02)

    def map(self):
        return json.loads(self.etcd.get(self.prefix + "/map"))

    def calls_work(self, client):
        """Whether every shard answers a push and a pull."""
        try:
            table = client.create_table("t", 2, initializer=embd.Initializer("constant", 0.0))
            table.push(np.arange(64), np.ones((64, 2)))
            return bool((table.pull(np.arange(64)) < 0).all())
        except embd.Error:
            return False


class InEtcd(Clusters):
    @classmethod
    def setUpClass(cls):
        if ETCD is None:
            raise unittest.SkipTest("etcd is not installed: deploy/deps.sh --tools")
        cls.etcd = Etcd()

    @classmethod
    def tearDownClass(cls):
        cls.etcd.stop()

    def setUp(self):
        self.write_file("/embd/" + self.id().rsplit(".", 1)[1])

    def test_a_cluster_forms_and_who_asks_early_waits(self):
        a = self.server("a")
        with self.assertRaisesRegex(embd.Error, "the address of shard 2 is not known yet"):
            embd.connect(a.addresses[0], deadline=0.3)
        threading.Timer(0.3, lambda: started.append(self.server("b"))).start()
        started = []
        client = self.connect(a)
        self.assertEqual(client.shards, a.addresses + started[0].addresses)
        self.assertTrue(self.calls_work(client))
        entry = self.map()["servers"]["b"][0]
        self.assertEqual(entry["address"], started[0].addresses[0])
        self.assertEqual(started[0].stop(), 0)
        self.assertIsNone(self.etcd.get(self.prefix + "/servers/b"))  # given back at once

    def identity(self, directory):
        with open(os.path.join(directory, "identity.json"), encoding="ascii") as file:
            return json.load(file)

    def test_a_server_that_moves_to_another_directory_is_refused(self):
        folder = tempfile.mkdtemp(prefix="embd-moved-")
        self.addCleanup(shutil.rmtree, folder)
        data = {name: os.path.join(folder, name) for name in ("a", "b", "empty")}
        for path in data.values():
            os.mkdir(path)
        a, b = (self.server(name, "--data-dir", data[name]) for name in "ab")
        self.connect(a).create_table("kept", 2, durability="durable")
        self.until(lambda: [s["first_shard"] for s in self.identity(data["a"])["servers"]] == [2])
        b.stop()
        moved = self.server("b", "--data-dir", data["empty"], waits=False)
        moved.wait_log("directory_refused")
        self.assertIn("its data directory is empty, and server 'a' knows one of epoch 1", moved.log())
        moved.stop()
        self.server("b", "--data-dir", data["b"]).stop()
        self.assertEqual(self.identity(data["b"])["epoch"], 2)
        self.server("b", "--data-dir", data["empty"], "--accept-empty").wait_log("directory_accepted")

    def test_clients_follow_a_server_that_moves_while_they_work(self):
        a, b = self.server("a"), self.server("b")
        client, idle = self.connect(a), self.connect(a, own_thread=False)
        before = self.map()["version"]
        table, stops, done, lost = client.create_table("load", 2), threading.Event(), [0], [0]

        def work():
            while not stops.is_set():
                try:
                    table.push(np.arange(100), np.ones((100, 2)), deadline=5)
                    done[0] += 1
                except embd.Error:
                    lost[0] += 1
                    time.sleep(0.01)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            self.until(lambda: done[0] > 10)
            b.kill()
            moved = self.server("b")  # takes the name once the lease has run out
            self.until(lambda: self.map()["servers"]["b"][0]["address"] == moved.addresses[0])
            self.assertGreater(self.map()["version"], before)
            other = self.connect(moved)
            other.create_table("load", 2)  # rows are in memory: the server has come without
            n = done[0]
            self.until(lambda: done[0] > n + 10)
        finally:
            stops.set()
            worker.join()
        self.assertEqual(client.shards[2], moved.addresses[0])
        self.until(lambda: self.calls_work(idle))
        self.assertEqual(idle.shards, a.addresses + moved.addresses)

    def test_a_call_that_waits_for_a_server_that_hangs_goes_on_where_the_shard_moved(self):
        a, b = self.server("a"), self.server("b")
        client = self.connect(a, deadline=60)
        table = client.create_table("t", 2, initializer=embd.Initializer("constant", 0.0))
        table.pull(np.arange(64))
        b.pause()
        pulled = []
        waiting = threading.Thread(target=lambda: pulled.append(table.pull(np.arange(64))))
        waiting.start()
        taker = self.server("b")
        with embd.connect(taker.addresses[0], deadline=20) as other:
            other.create_table("t", 2, initializer=embd.Initializer("constant", 0.0))  # it has come without rows
        waiting.join(50)
        self.assertEqual(len(pulled), 1)
        self.assertEqual(client.shards[2], taker.addresses[0])
        why = [line for line in taker.log().splitlines() if "event=etcd" in line or " etcd " in line]
        self.assertLess(len(why), 4, taker.log())  # one line while the name is taken, one when it is free
        b.go_on()

    def test_a_stop_does_not_wait_for_etcd(self):
        def stop(server):
            start = time.monotonic()
            self.assertEqual(server.stop(), 0)
            return time.monotonic() - start

        took, alone = [], []
        for _ in range(5):
            a = self.server("a")
            self.until(lambda: self.etcd.get(self.prefix + "/servers/a") is not None)
            took.append(stop(a))
            alone.append(stop(clusters.Embd("--http", "off")))
        print(f"stopped in {statistics.median(took):.2f} s, without etcd in {statistics.median(alone):.2f} s")
        self.assertLess(statistics.median(took), statistics.median(alone) + 0.3)  # its thread may sleep for a second

    def test_a_cluster_of_one_process_is_found_by_the_addresses_it_was_given(self):
        a, b = self.server("a"), self.server("b")
        client = embd.connect(",".join(a.addresses[:1] + b.addresses), deadline=20)
        self.addCleanup(client.close)
        a.kill()
        again = self.server("a")
        self.until(lambda: self.calls_work(client))
        self.assertEqual(client.shards, again.addresses + b.addresses)

    def test_the_leader_is_killed_and_servers_still_move(self):
        a, b = self.server("a"), self.server("b")
        client = self.connect(a)
        leader = self.etcd.leader()
        self.etcd.kill(leader)
        try:
            self.assertEqual(b.stop(), 0)
            self.server("b")
            self.until(lambda: self.calls_work(client), 25)
        finally:
            self.etcd.start(leader)
            self.etcd.wait()

    def test_a_server_whose_lease_ran_out_joins_again(self):
        a, b = self.server("a"), self.server("b")
        client = self.connect(a)
        b.pause()
        self.until(lambda: self.etcd.get(self.prefix + "/servers/b") is None)
        b.go_on()
        b.wait_log("lease_lost")
        self.until(lambda: self.etcd.get(self.prefix + "/servers/b") is not None)
        self.assertTrue(self.calls_work(client))

    def test_of_two_processes_of_a_name_the_older_one_ends_when_it_lost_it(self):
        a, b = self.server("a"), self.server("b")
        client = self.connect(a)
        b.pause()
        taker = self.server("b")
        self.until(lambda: self.map()["servers"]["b"][0]["address"] == taker.addresses[0])
        b.go_on()
        self.assertEqual(b.wait(), 0)
        self.assertIn("name_lost", b.log())
        self.until(lambda: self.calls_work(client))
        self.assertTrue(taker.is_alive())

    def test_answers_tell_of_a_newer_map_so_a_server_that_hangs_is_left(self):
        a, b = self.server("a"), self.server("b")
        client = self.connect(a)
        table = client.create_table("t", 2)
        table.pull(np.arange(64))
        b.pause()  # its connections stay, and nothing comes
        taker = self.server("b")
        self.until(lambda: self.map()["servers"]["b"][0]["address"] == taker.addresses[0])
        a.wait_log(f"map version={self.map()['version']}")
        taker.wait_log("map version=")
        told = re.findall(r"map version=(\d+)", taker.log())
        self.assertEqual(told[0], str(self.map()["version"]), "it never told of the map with its predecessor")
        self.connect(taker).create_table("t", 2)
        start = time.monotonic()
        table.pull(np.arange(64), deadline=20)  # asked again where the shard is now
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(client.shards, a.addresses + taker.addresses)

    def test_a_damaged_map_is_left_alone_and_told(self):
        a, b = self.server("a"), self.server("b")
        client = self.connect(a)
        good = self.etcd.get(self.prefix + "/map")
        for text in ("nonsense", "[]", '{"version": 9}', '{"version": 9, "servers": {"a": []}}',
                     '{"version": 9, "servers": {"b": [{"address": "x\\u0001y"}]}}',
                     '{"version": 9, "servers": {"b": [{"address": 7}]}}'):
            self.etcd.put(self.prefix + "/map", text)
            time.sleep(0.2)
            self.assertEqual(self.etcd.get(self.prefix + "/map"), text)
        a.wait_log("the map in etcd")
        self.assertTrue(self.calls_work(client))
        self.etcd.ask("kv/deleterange", {"key": b64(self.prefix + "/map")})
        self.until(lambda: (self.etcd.get(self.prefix + "/map") or "").count("address") == 3)
        self.assertEqual(self.map()["servers"], json.loads(good)["servers"])

    def test_without_etcd_the_data_path_goes_on(self):
        a, b = self.server("a", "--http", "127.0.0.1:0"), self.server("b")
        client = self.connect(a)
        table = client.create_table("t", 2)
        self.connect(b)  # both know where all are
        self.until(lambda: self.etcd_silent(a) == 0)
        for i in range(3):
            self.etcd.kill(i)
        try:
            end, slowest = time.monotonic() + GONE_S, 0.0
            while time.monotonic() < end:
                start = time.monotonic()
                table.push(np.arange(100), np.ones((100, 2)))
                slowest = max(slowest, time.monotonic() - start)
            self.connect(b, deadline=5).ping(0)  # new clients too
            self.assertLess(slowest, 1.0)
            self.until(lambda: self.etcd_silent(a) == 1)
        finally:
            for i in range(3):
                self.etcd.start(i)
            self.etcd.wait()
        a.wait_log("answers again", 20)
        self.until(lambda: self.etcd_silent(a) == 0)
        self.until(lambda: self.etcd.get(self.prefix + "/servers/a") is not None)
        self.assertEqual(a.log().count("why=\"etcd "), 1, "a failure is told once")

    def test_mistakes_are_named(self):
        def check(lines):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write("cluster:\n" + "".join(f"  {line}\n" for line in lines))
                file.flush()
                return clusters.run("--config", file.name, "--check")
        servers = "servers: [{name: a}, {name: b}]"
        self.assertEqual(check(["etcd: etcd://127.0.0.1:2379/shop", servers]).returncode, 0)
        for lines, word in ((["etcd: http://x:1/p", servers], "etcd://"), (["etcd: etcd://x:1", servers], "prefix"),
                            (["etcd: etcd://x/p", servers], "port"), (["etcd: 'etcd://x:1,/p'", servers], "port"),
                            (["etcd: 'etcd://a b:1/p'", servers], "HOST:PORT"), (["etcd: 'etcd://x:1/p q'", servers], "other characters"),
                            (["etcd: etcd://x:1/p"], "servers"), (["etcd: etcd://x:1/p", "servers: [{shards: 2}]"], "name"),
                            (["etcd: etcd://x:1/p", "servers: [{name: a}, {name: a}]"], "duplicate server name"),
                            (["etcd: etcd://x:1/p", "etcd_lease: 0", servers], "etcd_lease"),
                            (["etcd: etcd://x:1/p", "etcd_login: f", servers], "etcd_ca"),
                            (["etcd: etcd://x:1/p", "etcd_ca: f", "etcd_key: f", servers], "go together"),
                            (["etcd: etcd://x:1/p", "etcd_ca: ''", servers], "empty")):
            done = check(lines)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, rf":\d+:\d+: .*{word}")


if __name__ == "__main__":
    clusters.main()
