"""Clients with `readers` spread pulls over a server and its replica. Whatever becomes of the replica, their pulls go on."""
import os
import shutil
import tempfile
import threading
import time
import unittest

import numpy as np

import clusters
import embd
import wire
from embd_process import Embd
from ports import free_ports

SHARDS, KEYS = 2, np.arange(1, 2001, dtype=np.uint64)


def pulled(server):
    """Keys that the server's shards have answered in pulls."""
    n = 0
    for shard in range(SHARDS):
        with wire.Wire(server.admin_path(shard)) as peer:
            n += peer.call("stats", {})[0]["stats"]["keys_pulled"]
    return n


class Readers(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="embd-readers-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        for name in ("primary", "replica"):
            os.mkdir(os.path.join(self.dir, name))
        self.ports = free_ports(SHARDS), free_ports(SHARDS)
        self.primary = self.start("primary", self.ports[0])
        self.replica = self.start_replica()
        with self.connect() as client:
            table = client.create_table("t", 4, combiner="concat", optimizer=embd.Optimizer("sgd", lr=0.5),
                                        initializer=embd.Initializer("constant", 1.0), durability="buffered")
            table.push(KEYS, np.zeros((len(KEYS), 4), np.float32))

    def start(self, name, port, *flags, **options):
        server = Embd("--http", "off", "--data-dir", os.path.join(self.dir, name), *flags, shards=SHARDS,
                      listen=f"127.0.0.1:{port}", **options)
        self.addCleanup(server.kill)
        return server

    def start_replica(self):
        return self.start("replica", self.ports[1], "--follow", self.primary.admin_path(0), "--serve", "yes", waits=False)

    def connect(self, **options):
        return embd.connect(f"127.0.0.1:{self.ports[0]}", **options)

    def with_readers(self, **options):
        return self.connect(readers=f"127.0.0.1:{self.ports[1]}", **options)

    def wait_for_replica(self, table):
        """Until it answers pulls."""
        before, end = pulled(self.replica), time.monotonic() + 20
        while pulled(self.replica) == before:
            self.assertLess(time.monotonic(), end, self.replica.log())
            table.pull(KEYS)
            time.sleep(0.05)

    def test_pulls_are_spread_and_pushes_go_to_the_server(self):
        with self.with_readers(max_behind=5) as client:
            table = client.table("t")
            self.wait_for_replica(table)
            before = pulled(self.primary), pulled(self.replica)
            for _ in range(20):
                self.assertTrue((table.pull(KEYS) == 1.0).all())
            after = pulled(self.primary), pulled(self.replica)
            for there, now in zip(before, after):
                self.assertEqual(now - there, 10 * len(KEYS))
            table.push(KEYS, np.full((len(KEYS), 4), -2, np.float32))
            end = time.monotonic() + 10
            while not all((table.pull(KEYS) == 2.0).all() for _ in range(4)):
                self.assertLess(time.monotonic(), end)

    def test_killed_stopped_and_started_again_it_raises_nothing(self):
        stop, errors, n = threading.Event(), [], [0, 0]

        def read(i):
            try:
                with self.with_readers(max_behind=10, deadline=20) as client:
                    table = client.table("t")
                    while not stop.is_set():
                        rows = table.pull(KEYS)
                        assert len(set(rows.ravel())) <= 2, rows  # shards differ by a push
                        n[i] += 1
            except Exception as e:  # noqa: BLE001
                errors.append(e)
        readers = [threading.Thread(target=read, args=(i,)) for i in range(2)]
        for reader in readers:
            reader.start()
        with self.connect() as client:
            table = client.table("t")
            for i in range(5):
                table.push(KEYS, np.full((len(KEYS), 4), -2, np.float32))
                time.sleep(0.4)
                if i % 2:
                    self.replica.pause()
                    time.sleep(2.5)
                self.replica.kill()
                time.sleep(0.4)
                self.replica = self.start_replica()
            before = list(n)
            with self.with_readers() as other:
                self.wait_for_replica(other.table("t"))
            time.sleep(0.5)
        stop.set()
        for reader in readers:
            reader.join(30)
        self.assertEqual(errors, [])
        for then, now in zip(before, n):
            self.assertGreater(now, then)

    def test_a_replica_that_is_too_far_behind_is_passed_over(self):
        with self.with_readers(max_behind=1, deadline=2) as client, self.with_readers(deadline=2) as any_age:
            table = client.table("t")
            self.wait_for_replica(table)
            old = any_age.table("t")
            self.primary.pause()
            time.sleep(1.5)
            before = pulled(self.replica)
            with self.assertRaises(embd.DeadlineError):  # the server that is asked instead does not answer
                for _ in range(2):
                    table.pull(KEYS)
            self.assertEqual(pulled(self.replica), before)
            done = 0
            for _ in range(4):
                try:
                    self.assertTrue((old.pull(KEYS) == 1.0).all())
                    done += 1
                except embd.DeadlineError:
                    pass
            self.assertEqual(done, 2)  # every second one is the server's
            self.primary.go_on()
            self.wait_for_replica(table)

    def test_wrong_readers_are_refused(self):
        for wrong in ("x", "127.0.0.1:0", "127.0.0.1:65535", ":1", "127.0.0.1:1x", ",", ",".join(["127.0.0.1:9"] * 17)):
            with self.assertRaisesRegex(embd.InvalidError, "readers"):
                self.connect(readers=wrong)
        with self.assertRaisesRegex(embd.InvalidError, "max_behind_ms: 86401000"):
            self.with_readers(max_behind=86401)


if __name__ == "__main__":
    clusters.main()
