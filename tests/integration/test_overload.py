"""A server under more than it asked for: 10,000 idle connections, 64 peers that never read, floods and half frames, in
512 MiB, which the kernel does not let it pass. Those who behave go on being served. What idle connections cost is measured
in the server's processor time, not by the clock, so that other work on the machine does not matter.
EMBD_OVERLOAD_SECONDS=n: how long all of it lasts; 30 without it."""
import os
import pathlib
import resource
import socket
import subprocess
import sys
import threading
import time
import unittest

import embd_process
import wire

SECONDS = float(os.environ.get("EMBD_OVERLOAD_SECONDS", "30"))
STEP = SECONDS / 60
MEMORY_MIB = 512
PATIENCE_S = 60  # for what happens, however slow the machine is
HELD_UP_S = 20  # 64 peers that hold others up until each is dropped would take 128 s
IDLE, SILENT = 10000, 64
KEYS = 4096
MB = 1 << 20


def room_for_descriptors(wanted):
    """How many sockets this process may have, at most `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, wanted + 200) if hard != resource.RLIM_INFINITY else wanted + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    return min(wanted, max(soft, limit) - 200)


# In a process of its own: sends pings without end, and throws the answers away.
FLOOD = """
import msgpack, socket, sys, threading
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def drink():
    while peer.recv(1 << 20):
        pass
threading.Thread(target=drink, daemon=True).start()
flood = msgpack.packb([0, 1, "ping", [{}]]) * 5000
while True:
    peer.sendall(flood)
"""


class Load(threading.Thread):
    """A trainer that pulls and pushes as fast as it can, and counts."""

    def __init__(self, server, table):
        super().__init__()
        self.peer, self.table = wire.connect(server), table
        self.rounds, self.slowest, self.error, self.goes_on = 0, 0.0, None, True

    def run(self):
        try:
            while self.goes_on:
                start = time.monotonic()
                wire.push(self.peer, self.table, range(64), [0.0] * 64 * 16)
                rows = self.peer.call("pull", {"parts": [{"table": self.table, "keys": KEYS}]},
                                      wire.keys(range(KEYS)))[1]
                assert len(rows) == KEYS * 64
                self.slowest = max(self.slowest, time.monotonic() - start)
                self.rounds += 1
        except Exception as error:  # told to the test's own thread
            self.error = error

    def goes_on_by(self, rounds):
        """Waits for so many more rounds; false when they do not come."""
        wanted, end = self.rounds + rounds, time.monotonic() + PATIENCE_S
        while self.rounds < wanted and self.error is None and time.monotonic() < end:
            time.sleep(0.01)
        return self.rounds >= wanted

    def end(self):
        self.goes_on = False
        self.join()
        self.peer.close()


class Loaded(unittest.TestCase):
    def setUp(self):
        # Half frames stay until the test ends them; other peers that hold something up are dropped soon.
        stall_s = 2 * PATIENCE_S if "half_frames" in self.id() else 2
        self.server = embd_process.Embd("--http", "off", "--stall-timeout", str(stall_s), "--frame-memory", "96M",
                                        "--max-connections", "12000", "--log-level", "error")
        self.addCleanup(self.server.stop)
        resource.prlimit(self.server.pid, resource.RLIMIT_DATA, (MEMORY_MIB * MB, MEMORY_MIB * MB))
        with wire.connect(self.server) as peer:
            self.table = wire.create(peer, "items", 16)
            wire.push(peer, self.table, range(KEYS), [0.0] * KEYS * 16)
        self.peers = []
        self.addCleanup(lambda: [peer.close() for peer in self.peers])
        self.load = Load(self.server, self.table)
        self.load.start()
        self.addCleanup(self.load.end)

    def more(self, count, send=b""):
        for _ in range(count):
            peer = socket.create_connection(("127.0.0.1", self.server.port()), timeout=10)
            self.peers.append(peer)
            if send:
                peer.setblocking(False)
                try:
                    while send and peer.send(send):
                        pass
                except OSError:  # full; or dropped already
                    pass

    def healthy(self, rounds):
        """The load's next rounds are made, and none of all was held up."""
        goes_on = self.load.goes_on_by(rounds)
        self.assertIsNone(self.load.error)
        self.assertTrue(goes_on, f"fewer than {rounds} pushes and pulls within {PATIENCE_S} s")
        self.assertLess(self.load.slowest, HELD_UP_S)
        self.assertLess(self.server.rss_bytes(), MEMORY_MIB * MB)
        limit = resource.prlimit(self.server.pid, resource.RLIMIT_DATA)
        self.assertEqual(limit, (MEMORY_MIB * MB, MEMORY_MIB * MB))

    def processor_ns(self):
        """That the server's threads have had."""
        tasks = f"/proc/{self.server.pid}/task"
        return sum(int(pathlib.Path(tasks, task, "schedstat").read_text().split()[0]) for task in os.listdir(tasks))

    def cost(self):
        """Processor time of a round, the least of three measurements."""
        costs = []
        for _ in range(3):
            rounds, ns = self.load.rounds, self.processor_ns()
            self.healthy(150)
            costs.append((self.processor_ns() - ns) / (self.load.rounds - rounds))
        return min(costs)

    def wait_stat(self, name, is_so, why):
        end = time.monotonic() + PATIENCE_S
        while not is_so(self.stat(name)):
            self.assertLess(time.monotonic(), end, why)
            time.sleep(0.1)

    def stat(self, name):
        with wire.connect(self.server) as peer:
            return peer.call("stats", {})[0]["stats"][name]

    def pulls(self):
        return wire.request(1, "pull", {"parts": [{"table": self.table, "keys": KEYS}]}, wire.keys(range(KEYS)))

    def connections(self):
        return self.stat("connections")


class Together(Loaded):
    def test_all_of_them_for_a_while(self):
        """Peers that never read come again as they are dropped."""
        idle, rounds, most, n_silent = room_for_descriptors(IDLE), self.load.rounds, 0, 0
        self.more(idle)
        quiet = len(self.peers)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for peer in self.peers[quiet:]:
                peer.close()
            del self.peers[quiet:]
            self.more(SILENT, self.pulls())
            n_silent += SILENT
            self.healthy(5)  # their requests are work too: one turn in 65 is ours
            most = max(most, self.server.rss_bytes())
            time.sleep(min(1.5, SECONDS / 10))
            self.assertGreaterEqual(self.connections(), idle)
        self.assertLess(most, MEMORY_MIB * MB)
        print(f"{SECONDS:.0f} s of {idle} idle connections and {SILENT} that never read, which came {n_silent // SILENT} times: "
              f"{self.load.rounds - rounds} pushes and pulls, {most / MB:.0f} MiB")


class Overload(Loaded):
    def test_idle_connections_cost_little_and_slow_nobody(self):
        before, rss = self.cost(), self.server.rss_bytes()
        count = room_for_descriptors(IDLE)
        self.more(count)
        self.assertLess(self.cost(), 3 * before, "processor time of a push and a pull beside idle connections")
        self.assertLess((self.server.rss_bytes() - rss) / count, 8192, "bytes of memory for an idle connection")
        self.assertGreaterEqual(self.connections(), count)
        print(f"{count} idle connections: {(self.server.rss_bytes() - rss) / count:.0f} bytes of memory each")

    def test_peers_that_never_read_are_dropped_and_hold_up_nobody(self):
        self.more(SILENT, self.pulls())
        self.healthy(50)
        self.more(SILENT, wire.request(1, "stats", {}) * 500)
        self.healthy(5)  # their requests are work too: one turn in 65 is ours
        self.wait_stat("connections", lambda n: n <= 2, "peers that never read are still there")

    def test_half_frames_take_no_more_than_the_budget_and_others_get_busy_or_served(self):
        head = wire.request(1, "push", {"parts": []}, bytes(30 * MB))[:100]
        self.more(3, b"")
        for peer in self.peers:
            peer.sendall(head)
        self.wait_stat("frame_memory_bytes", lambda n: n >= 2 * 30 * MB, "the heads were not read")
        with wire.connect(self.server) as peer:
            start = time.monotonic()
            peer.send(wire.request(5, "push", {"parts": []}, bytes(30 * MB)))
            self.assertEqual(peer.receive()[2][0], wire.BUSY)
            self.assertGreater(time.monotonic() - start, 0.9, "reading stops before a request is refused")
        self.healthy(5)
        for peer in self.peers:
            peer.close()
        self.peers.clear()
        with wire.connect(self.server) as peer:
            peer.send(wire.request(5, "push", {"parts": []}, bytes(30 * MB)))
            self.assertNotEqual(peer.receive()[2][0], wire.BUSY)

    def test_heads_and_pipelines_are_charged_too(self):
        """Thousands of requests that begin and do not end would be hundreds of MiB, were they not counted."""
        count = room_for_descriptors(6000)
        begun = wire.request(1, "push", {"parts": []}, bytes(3000))[:-1]
        self.more(count)
        for peer in self.peers:
            peer.sendall(begun)
        time.sleep(STEP)
        self.assertLess(self.server.rss_bytes(), 250 * MB)
        self.assertTrue(self.load.goes_on_by(1), "it may have to wait until they are dropped, and no longer")
        self.assertIsNone(self.load.error)

    def test_a_flood_of_requests_leaves_others_their_turn(self):
        floods = [subprocess.Popen([sys.executable, "-c", FLOOD, str(self.server.port())]) for _ in range(2)]
        try:
            time.sleep(0.5)
            self.healthy(20)
        finally:
            for flood in floods:
                flood.kill()
                flood.wait()


if __name__ == "__main__":
    unittest.main()
