"""A trainer beyond a network that delays, splits, stalls, cuts in the midst of frames and loses answers. No push is
acknowledged that was not applied, none is applied twice, and an error that leaves open which it was says so.
EMBD_FAULT_SECONDS=n: how long; 6 without it."""
import os
import subprocess
import unittest

import wire
from embd_process import Embd
from proxy import Proxy

SECONDS = float(os.environ.get("EMBD_FAULT_SECONDS", "6"))
PUSHER = os.path.join(os.environ["EMBD_FAULT_TOOLS"], "fault-pusher")
FAULTS = {"delay": 0.02, "split": 0.02, "stall": 0.0005, "cut": 0.005, "drop_answers": 0.002}
TRAINERS, MODULUS = 4, 1021
SCHEMA = {"name": "fault", "dim": 4, "combiner": "concat", "optimizer": {"kind": "sgd", "lr": 1.0},
          "initializer": {"kind": "constant", "a": 0.0}}


class Network(unittest.TestCase):
    def trainers(self, address):
        """What each of them knows: (key, acknowledged, unknown)."""
        running = [subprocess.Popen([PUSHER, address, str(SECONDS), str(10**9 * i)], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i in range(TRAINERS)]
        for trainer in running:
            out, error = trainer.communicate(timeout=SECONDS + 60)
            self.assertEqual(trainer.returncode, 0, error)
            yield from ([int(word) for word in line.split()] for line in out.splitlines())

    def check(self, server, known):
        with wire.connect(server) as peer:
            table = peer.call("table_create", {"schema": SCHEMA})[0]["id"]
            for key, acknowledged, unknown in known:
                lanes = wire.pull(peer, table, [key])
                n = int(lanes[0])
                self.assertTrue(acknowledged <= n <= acknowledged + unknown, (key, acknowledged, unknown, lanes))
                self.assertEqual(lanes[1], sum(i % MODULUS for i in range(1, n + 1)), (key, n))

    def test_no_push_is_lost_or_made_twice(self):
        with Embd("--advertise", "127.0.0.2", "--stall-timeout", "2") as server:
            proxy = Proxy(("127.0.0.2", server.port()), ("127.0.0.1", server.port()), FAULTS)
            self.addCleanup(proxy.close)
            with wire.connect(server) as peer:
                peer.call("table_create", {"schema": SCHEMA})
            known = list(self.trainers(f"127.0.0.2:{server.port()}"))
            self.check(server, known)
        acknowledged, unknown = sum(k[1] for k in known), sum(k[2] for k in known)
        print(f"{acknowledged} pushes acknowledged, {unknown} of unknown end, {proxy.counts}")
        self.assertGreater(acknowledged, 100)
        self.assertGreater(proxy.counts["cut"], 0)


if __name__ == "__main__":
    unittest.main()
