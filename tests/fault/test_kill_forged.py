"""kill -9 of a server whose trainers push keys that are records and marks of a journal, as whoever knows the format and not
its secret would write them: each start takes what is there, and loses none of what others pushed. How often a kill comes
into the middle of a write is up to the disk; tests/server/test_journal_forged.c tears such pushes at every byte. Longer:
EMBD_FAULT_CYCLES=n."""
import ctypes
import ctypes.util
import os
import random
import struct
import threading
import unittest

import msgpack

import beside
import oracle
import test_kill
import wire

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "6"))
FORGERS, LEAST, MOST = 3, 72 << 10, 200 << 10  # bytes of a push's keys
FAR, MARK_BYTES = 1 << 60, 64

xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
for name, more in (("XXH3_64bits", ()), ("XXH3_64bits_withSeed", (ctypes.c_uint64,))):
    getattr(xxhash, name).restype = ctypes.c_uint64
    getattr(xxhash, name).argtypes = [ctypes.c_char_p, ctypes.c_size_t, *more]


def mark():
    """All before a position that is far away was on disk."""
    head = struct.pack("<I20xQQQ8x", 0x4d444245, FAR, FAR, 0)
    return head + struct.pack("<Q", xxhash.XXH3_64bits(head, len(head)))


def record():
    """The drop of the table that others push to, as if written when that was on disk."""
    body = msgpack.packb([0, 9, "table_drop", [{"name": oracle.TABLE}]])
    head = struct.pack("<IIIIQQQQQ", 0x4a444245, len(body), 0, 0, len(body), FAR, FAR, 0, 0)
    seed = xxhash.XXH3_64bits(body, len(body))
    return head + struct.pack("<Q", xxhash.XXH3_64bits_withSeed(head, len(head), seed)) + body


class Forger(threading.Thread):
    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.pushes = server, 0

    def run(self):
        try:
            with wire.connect(self.server, random.randrange(test_kill.SHARDS)) as peer:
                table = wire.create(peer, "forged", 1, durability="durable")
                while True:
                    n = random.randrange(LEAST, MOST, 8)
                    keys = (random.choice([mark(), record(), mark() + record()]) * (n // MARK_BYTES + 1))[:n]
                    peer.begin("push", {"parts": [{"table": table, "keys": n // 8}]}, keys, bytes(n // 2))
                    if peer.receive() is None:
                        return
                    self.pushes += 1
        except OSError:
            pass  # it was killed


class Forgers(beside.Nothing):
    def __init__(self, data, clients):
        super().__init__(data, clients)
        self.running, self.pushes = [], 0

    def check(self, server):
        self.running = [Forger(server) for _ in range(FORGERS)]
        for forger in self.running:
            forger.start()

    def killed(self):
        for forger in self.running:
            forger.join(20)
            assert not forger.is_alive()
            self.pushes += forger.pushes

    def __str__(self):
        return f", beside {self.pushes} forged pushes"


class KillForged(unittest.TestCase):
    def test_no_start_is_refused(self):
        made = []
        test_kill.Kill("run_cycles").run_cycles("durable", CYCLES, "--journal-limit", "64M",
                                                make_beside=lambda *data: made.append(Forgers(*data)) or made[0])
        self.assertGreater(made[0].pushes, 0)


if __name__ == "__main__":
    unittest.main()
