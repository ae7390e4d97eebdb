"""kill -9 while two workers push in rounds to a journaled table: every acknowledged step is there, once, and no step is
there in part."""
import os
import random
import tempfile
import threading
import time
import unittest

import oracle
import wire
from embd_process import Embd

CYCLES = int(os.environ.get("EMBD_FAULT_CYCLES", "8"))
WORKERS, KEY = 2, 7
STEP = 3.0  # of lane 2: the mean of what the workers bring, 2 and 4


class Worker(threading.Thread):
    """Pushes for one clock after the other until the connection ends. The mean of both is one push of the oracle, and
    lane 2 says that both are in it."""

    def __init__(self, server, worker, clock):
        super().__init__(daemon=True)
        self.wire = wire.connect(server)
        self.table = oracle.create(self.wire, "durable")
        self.worker, self.clock, self.acked, self.wrong = worker, clock, clock, None
        self.brings = 2.0 * (worker + 1)

    def run(self):
        try:
            while True:
                self.clock += 1
                self.wire.call("push", {"parts": [{"table": self.table, "keys": 1}],
                                        "round": {"job": "kill", "worker": self.worker, "workers": WORKERS,
                                                  "clock": self.clock, "lease_ms": 60000}},
                               wire.keys([KEY]), wire.floats([-1.0, -float(self.clock % oracle.MODULUS), -self.brings, 0.0]))
                self.acked = self.clock
        except (OSError, TypeError):  # reset, or the end of the stream
            pass
        except wire.RpcError as error:
            self.wrong = error
        finally:
            self.wire.close()


class KillRounds(unittest.TestCase):
    def check(self, server, acked, sent):
        with wire.connect(server) as peer:
            lanes = wire.pull(peer, oracle.create(peer, "durable"), [KEY])
        n = int(lanes[0])
        self.assertTrue(acked <= n <= sent, (acked, n, sent))
        self.assertEqual(lanes[1:3], [oracle.expected(n), STEP * n])
        return n

    def test_no_acknowledged_step_is_lost(self):
        acked = sent = 0
        with tempfile.TemporaryDirectory(prefix="embd-fault-") as data:
            for _ in range(CYCLES):
                server = Embd("--data-dir", data)
                try:
                    found = self.check(server, acked, sent)
                    workers = [Worker(server, w, found) for w in range(WORKERS)]
                    for worker in workers:
                        worker.start()
                    time.sleep(random.uniform(0.05, 0.2))
                finally:
                    server.kill()
                for worker in workers:
                    worker.join(20)
                    self.assertIsNone(worker.wrong)
                acked, sent = max(w.acked for w in workers), max(w.clock for w in workers)
            with Embd("--data-dir", data) as server:
                found = self.check(server, acked, sent)
        self.assertGreater(found, CYCLES)
        print(f"{CYCLES} kills, {found} steps of {WORKERS} workers, none lost, none twice")


if __name__ == "__main__":
    unittest.main()
