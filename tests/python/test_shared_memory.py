"""What goes through memory that client and server share is what goes through TCP, to the bit; nothing is written or read there that
a call did not ask for, also where calls fail and servers die."""
import gc
import hashlib
import os
import signal
import threading
import unittest

import numpy as np

import clusters
import embd
import wire
from embd_process import Embd
from ports import free_ports
from test_local import Doorman, LocalCase, Relay, data_socket, environment, ways

RINGS = 4096 + (256 << 10) + (1 << 20)  # of one client and shard
KEYS = np.random.default_rng(3).integers(0, 5000, 20000, dtype=np.uint64)
OFFSETS = np.r_[np.arange(0, 20000, 4), 20000].astype(np.uint64)


def shared_bytes(server, shard=0):
    with wire.connect(server, shard) as admin:
        return admin.call("stats", {})[0]["stats"]["shared_memory_bytes"]


class SharedCase(LocalCase):
    def shared(self, server, mib="16", transport="local", **options):
        with environment(EMBD_SHARED_MIB=mib):
            return self.connect(server, transport, **options)

    def received(self, client):
        return sum(shard.bytes_received for shard in client.figures())


class Same(SharedCase):
    def run_all(self, client, name):
        """Rows of every kind of pull between pushes of every kind, and the statuses."""
        seen = []
        items = client.create_table(f"{name}-items", dim=12, seed=1)
        pooled = client.create_table(f"{name}-pooled", dim=12, seed=1, combiner="mean")
        rng = np.random.default_rng(5)
        for plan in ("pooled", "rows"):
            for dtype in ("f32", "f16", "i8"):
                options = {"plan": plan, "wire": dtype}
                pushed = {"plan": plan, "wire": "f32" if dtype == "i8" else dtype}  # i8 rounds by chance
                items.push(KEYS, rng.normal(size=(20000, 12)).astype(np.float32), **pushed)
                pooled.push(KEYS, rng.normal(size=(5000, 12)).astype(np.float32), OFFSETS, **pushed)
                statuses = np.empty(20000, np.uint8)
                seen.append(items.pull(KEYS + np.uint64(1), statuses=statuses, **options).tobytes())
                seen.append(statuses.tobytes())
                seen.append(pooled.pull(KEYS, OFFSETS, **options).tobytes())
                parts = [embd.Part(items, KEYS), embd.Part(pooled, KEYS, OFFSETS)]
                seen += [rows.tobytes() for rows in client.pull(parts, **options)]
        return [hashlib.sha256(rows).hexdigest() for rows in seen]

    def test_rows_and_gradients_are_those_of_tcp(self):
        for shards in (1, 3):
            server = self.start(shards=shards)
            shared, tcp = self.shared(server), self.shared(server, transport="tcp")
            self.assertGreater(shared_bytes(server), 0)
            self.assertEqual(self.run_all(shared, "a"), self.run_all(tcp, "b"))
            self.assertLess(self.received(shared), self.received(tcp) / 10, "rows went through the socket")

    def test_a_memory_that_is_too_small_is_done_without(self):
        server = self.start()
        seen = [self.run_all(self.shared(server, mib), f"t{mib}") for mib in ("0", "1", "16")]
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0], seen[2])

    def test_a_server_without_memory_for_it_is_used_without(self):
        server = self.start("--frame-memory", "256M")
        clients = [self.shared(server) for _ in range(5)]
        self.assertEqual(shared_bytes(server), (48 << 20) + 5 * RINGS)
        rows = [self.train(client, f"t{i}") for i, client in enumerate(clients)]
        self.assertEqual(rows, [rows[0]] * 5)

    def test_it_goes_with_the_client(self):
        server = self.start(shards=2)
        client = self.shared(server)
        self.assertEqual([shared_bytes(server, s) for s in (0, 1)], [(16 << 20) + RINGS] * 2)
        client.close()
        for _ in range(1000):
            if not shared_bytes(server) and not shared_bytes(server, 1):
                break
        self.assertEqual([shared_bytes(server, s) for s in (0, 1)], [0, 0])

    def test_what_EMBD_SHARED_MIB_may_be(self):
        server = self.start()
        for text in ("257", "-1", "many", "1.5"):
            with self.assertRaisesRegex(embd.Error, f"EMBD_SHARED_MIB: '{text}'; expected 0 to 256"):
                self.shared(server, text)
        self.assertFalse(self.shared(server, "0").buffer(4).any())

    def test_what_EMBD_SPIN_US_may_be_and_rows_are_the_same_without(self):
        server = self.start()
        for text in ("1001", "-1", "many", "1.5"):
            with self.assertRaisesRegex(embd.Error, f"EMBD_SPIN_US: '{text}'; expected 0 to 1000"), environment(EMBD_SPIN_US=text):
                self.connect(server, "local")
        seen = []
        for us in ("0", "1000"):
            with environment(EMBD_SPIN_US=us):
                client = self.shared(server)
            seen.append(self.run_all(client, f"spin{us}"))
        self.assertEqual(seen[0], seen[1])

    def test_a_server_that_does_not_spin_serves_the_same(self):
        self.assertEqual(*(self.run_all(self.shared(self.start("--local-spin", us)), "t") for us in ("0", "1000")))

    def without(self, *features):
        """A server of earlier versions, which has none of these features."""
        server = self.start("--advertise", "127.0.0.2")
        relay = Relay(os.path.join(self.dir, f"{len(features)}.data.sock"), data_socket(server), features)
        self.addCleanup(relay.listener.close)
        doorman = Doorman(("127.0.0.2", server.port()), ("127.0.0.1", server.port()), relay.place, features)
        self.addCleanup(doorman.listener.close)
        return server, f"127.0.0.2:{server.port()}"

    def test_servers_without_share_or_ring_are_used_by_the_socket(self):
        seen = []
        for features in (("ring",), ("share", "ring")):
            server, address = self.without(*features)
            client = self.shared(address)
            self.assertEqual(ways(client), [True])
            self.assertEqual(shared_bytes(server), 0)
            seen.append(self.run_all(client, "t"))
        server = self.start()
        self.assertEqual(seen, [self.run_all(self.shared(server, transport="tcp"), "t")] * 2)

    def test_a_server_that_refuses_both_is_used_by_the_socket(self):
        """The relay passes no descriptor on."""
        server, address = self.without()
        client = self.shared(address)
        self.assertEqual((ways(client), shared_bytes(server)), ([True], 0))
        self.train(client)

    def test_many_calls_at_once_have_their_own_rows(self):
        server = self.start()
        client = self.shared(server, own_thread=True)
        table = client.create_table("t", dim=16, seed=1)
        expected = table.pull(np.arange(40000)).reshape(8, 5000, 16)
        for _ in range(3):
            calls = [table.pull_start(np.arange(5000) + 5000 * i) for i in range(8)]
            for i in reversed(range(8)):
                np.testing.assert_array_equal(calls[i].wait(), expected[i])


class Lent(SharedCase):
    def test_rows_come_into_buffers_and_gradients_from_them(self):
        server = self.start()
        client, tcp = self.shared(server), self.shared(server, transport="tcp")
        rows, grads = client.buffer((20000, 24)), client.buffer((20000, 24))
        self.assertTrue(client.is_shared(rows) and client.is_shared(grads))
        self.assertFalse(tcp.is_shared(tcp.buffer(100)))
        grads[:] = np.random.default_rng(1).normal(size=grads.shape)
        seen = []
        for c, out, gradients in ((client, rows, grads), (tcp, None, grads.copy())):
            table = c.create_table(f"t{len(seen)}", dim=24, seed=1)
            table.push(KEYS, gradients)
            before = self.received(c), sum(shard.bytes_sent for shard in c.figures())
            seen.append(table.pull(KEYS, out=out, plan="pooled").tobytes())
            table.push(KEYS, gradients, plan="pooled")
            seen.append(table.pull(KEYS, out=out, plan="pooled").tobytes())
            after = self.received(c), sum(shard.bytes_sent for shard in c.figures())
            through = [b - a for a, b in zip(before, after)]
            self.assertTrue((through[0] < 1 << 16 and through[1] < 1 << 20) == (c is client), through)
        self.assertEqual(seen[:2], seen[2:])

    def test_buffers_outlive_their_client_and_begin_with_zeros(self):
        server = self.start()
        client = self.shared(server)
        first = client.buffer(100000)
        first[:] = 7
        at = first.ctypes.data
        del first
        gc.collect()
        second = client.buffer((1000, 100))
        self.assertEqual(second.ctypes.data, at)
        self.assertFalse(second.any())
        second[:] = 3
        client.close()
        self.assertEqual(second.sum(), 300000)
        many = [self.shared(server, "1").buffer(100000) for _ in range(5)]
        self.assertFalse(any(array.any() for array in many))

    def test_a_forked_child_frees_buffers_while_calls_of_its_parent_run(self):
        """The child has the parent's locks as they were."""
        client = self.shared(self.start())
        table, keys = client.create_table("t", dim=256), np.arange(8192, dtype=np.uint64)
        table.push(keys, np.ones((8192, 256), np.float32))
        buffer, out, ends = client.buffer((1024, 4)), np.empty((8192, 256), np.float32), threading.Event()

        def pull():
            while not ends.is_set():
                table.pull(keys, out=out, wire="f16")

        puller = threading.Thread(target=pull)
        puller.start()
        self.addCleanup(puller.join)
        self.addCleanup(ends.set)
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(5)  # ends one that waits for a lock
                del buffer
                gc.collect()
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_what_comes_after_a_deadline_is_written_nowhere(self):
        server = self.start()
        client = self.shared(server, own_thread=True)
        table = client.create_table("t", dim=64, initializer=embd.Initializer("constant", 1.0))
        keys = np.arange(4096)
        rows, other = client.buffer((4096, 64)), client.buffer(1000)
        table.pull(keys, out=rows)
        self.assertTrue((rows == 1.0).all())
        other[:] = 5
        server.pause()
        with self.assertRaises(embd.Error):
            table.pull(keys, out=rows, deadline=0.3)
        with self.assertRaises(embd.Error):
            table.pull(keys, deadline=0.3)
        rows[:] = 7
        server.go_on()
        self.assertTrue((table.pull(keys) == 1.0).all())
        self.assertTrue((rows == 7).all() and (other == 5).all())
        self.assertFalse(client.is_shared(rows))
        self.assertTrue((table.pull(keys, out=rows) == 1.0).all())

    def test_gradients_of_a_push_that_failed_stay_what_they_were(self):
        server = self.start()
        client = self.shared(server, own_thread=True)
        table = client.create_table("t", dim=64, optimizer=embd.Optimizer("sgd", lr=1.0),
                                    initializer=embd.Initializer("constant", 0.0))
        keys, grads = np.arange(4096), client.buffer((4096, 64))
        grads[:] = -1
        server.pause()
        with self.assertRaises(embd.Error):
            table.push(keys, grads, deadline=0.3)
        grads[:] = 9
        server.go_on()
        self.assertIn(table.pull(keys[:1])[0, 0], (0.0, 1.0))

    def test_a_client_goes_on_when_its_server_is_killed(self):
        port = free_ports(1)
        options = {"listen": f"127.0.0.1:{port}"}
        os.mkdir(f"{self.dir}/data")
        server = self.start("--data-dir", f"{self.dir}/data", **options)
        client = self.shared(server, own_thread=True)
        table = client.create_table("t", dim=64, durability="durable", optimizer=embd.Optimizer("sgd", lr=1.0),
                                    initializer=embd.Initializer("constant", 0.0))
        rows, grads = client.buffer((4096, 64)), client.buffer((4096, 64))
        grads[:] = -1
        for n in range(1, 3):
            table.push(np.arange(4096), grads)
            calls = [table.pull_start(np.arange(4096), out=rows)] + [table.pull_start(np.arange(4096)) for _ in range(3)]
            server.process.send_signal(signal.SIGKILL)
            server.wait()
            server = self.start("--data-dir", f"{self.dir}/data", **options)
            self.assertTrue(all((call.wait() == n).all() for call in calls))
            self.assertTrue(client.is_shared(rows))
            self.assertGreater(shared_bytes(server), 0)


if __name__ == "__main__":
    clusters.main()
