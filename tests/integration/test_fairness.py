"""One client that floods a shard, by one connection and by 32, beside eight that ask for little: each of these gets its
turn, soon, and none of them less than the others."""
import subprocess
import sys
import threading
import time
import unittest

import embd_process
import wire

MODEST, KEYS, SECONDS = 8, 64, 1.0
# Of a turn of 32 requests a connection; the rest is for a machine with more work than cores.
P90_S, LONGEST_S = 0.1, 1.0

# In a process of its own: sends pings without end by sys.argv[2] connections, and throws the answers away.
FLOOD = """
import msgpack, selectors, socket, sys
flood = msgpack.packb([0, 1, "ping", [{}]]) * 20000
peers = selectors.DefaultSelector()
for _ in range(int(sys.argv[2])):
    peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    peer.setblocking(False)
    peers.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE, [0])
print("begun", flush=True)
while True:
    for key, events in peers.select():
        if events & selectors.EVENT_READ and not key.fileobj.recv(1 << 20):
            sys.exit("dropped")
        if events & selectors.EVENT_WRITE:
            key.data[0] = (key.data[0] + key.fileobj.send(flood[key.data[0]:])) % len(flood)
"""


class Modest(threading.Thread):
    """Pulls a little, again and again, and notes how long each answer took."""

    def __init__(self, server, table):
        super().__init__()
        self.peer, self.table, self.took, self.ends = wire.connect(server), table, [], False

    def run(self):
        while not self.ends:
            begin = time.monotonic()
            wire.pull(self.peer, self.table, range(KEYS))
            self.took.append(time.monotonic() - begin)
            time.sleep(0.002)


class Fairness(unittest.TestCase):
    def setUp(self):
        self.server = embd_process.Embd("--http", "off", "--log-level", "warn")
        self.addCleanup(self.server.stop)
        with wire.connect(self.server) as peer:
            self.table = wire.create(peer, "items", 16)

    def modest_beside(self, connections):
        flood = subprocess.Popen([sys.executable, "-c", FLOOD, str(self.server.port()), str(connections)],
                                 stdout=subprocess.PIPE)
        modest = [Modest(self.server, self.table) for _ in range(MODEST)]
        try:
            flood.stdout.readline()
            with wire.connect(self.server) as peer:
                before = peer.call("stats")[0]["stats"]["requests_ping"]
                for one in modest:
                    one.start()
                time.sleep(SECONDS)
                flooded = peer.call("stats")[0]["stats"]["requests_ping"] - before
            for one in modest:
                one.ends = True
                one.join()
            self.assertIsNone(flood.poll(), "the flood is served too")
        finally:
            flood.kill()
            flood.wait()
            flood.stdout.close()
            for one in modest:
                one.peer.close()
        took = sorted(seconds for one in modest for seconds in one.took)
        counts = [len(one.took) for one in modest]
        p90 = took[len(took) * 9 // 10]
        print(f"beside {flooded} pings by {connections} connections: p50 {took[len(took) // 2] * 1e3:.1f} ms, "
              f"p90 {p90 * 1e3:.1f}, longest {took[-1] * 1e3:.1f}; {counts} pulls")
        self.assertGreater(flooded, 10000 * SECONDS)
        self.assertLess(p90, P90_S)
        self.assertLess(took[-1], LONGEST_S)
        self.assertGreater(min(counts), max(counts) / 4)

    def test_a_flood_by_one_connection(self):
        self.modest_beside(1)

    def test_a_flood_by_many_connections(self):
        self.modest_beside(32)


if __name__ == "__main__":
    unittest.main()
