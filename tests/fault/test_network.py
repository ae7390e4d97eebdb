"""Trainers beyond a network that delays, splits, stalls, cuts in the midst of frames and loses answers. No push is
acknowledged that was not applied, none is applied twice, and an error that leaves open which it was says so. The pushes of
others are numbered, by the trainer or by its client, and their network also sends once more what it has sent: each of
them is applied once.
EMBD_FAULT_SECONDS=n: how long; 60 without it."""
import collections
import os
import subprocess
import unittest

import oracle
import wire
from embd_process import Embd
from proxy import Proxy

SECONDS = float(os.environ.get("EMBD_FAULT_SECONDS", "60"))
PUSHER = os.path.join(os.environ["EMBD_FAULT_TOOLS"], "fault-pusher")
FAULTS = {"delay": 0.2, "split": 0.02, "stall": 0.0005, "cut": 0.01, "drop_answers": 0.005}
DUPLICATES = {"replay": 0.02}
PAIRS = 2  # of trainers, each of which meets on the same keys


class Beyond:
    """A server, the network before it, and trainers beyond that."""

    def __init__(self, test, host, faults, *mode):
        self.server = Embd("--advertise", host, "--local-socket", "off", "--stall-timeout", "2")
        test.addCleanup(self.server.kill)
        self.proxy = Proxy((host, self.server.port()), ("127.0.0.1", self.server.port()), faults)
        test.addCleanup(self.proxy.close)
        with wire.connect(self.server) as peer:
            self.table = oracle.create(peer, "snapshot")
        address = f"{host}:{self.server.port()}"
        self.trainers = [(writer, subprocess.Popen([PUSHER, address, str(SECONDS), str(10**9 * pair), str(writer), *mode],
                                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
                         for pair in range(PAIRS) for writer in oracle.WRITERS]
        for _, trainer in self.trainers:
            test.addCleanup(trainer.kill)

    def check(self, test):
        """Pushes acknowledged, of unknown end, and made again."""
        bounds, sums = collections.defaultdict(dict), [0, 0, 0]
        for writer, trainer in self.trainers:
            out, error = trainer.communicate(timeout=SECONDS + 60)
            test.assertEqual(trainer.returncode, 0, error)
            for line in out.splitlines():
                key, *told = map(int, line.split())
                bounds[key][writer] = (told[0], told[0] + told[1])
                sums = [a + b for a, b in zip(sums, told)]
        with wire.connect(self.server) as peer:
            for key, known in bounds.items():
                oracle.counts(wire.pull(peer, self.table, [key]), known)
        test.assertEqual(self.server.stop(), 0)
        return sums


class Network(unittest.TestCase):
    def test_no_push_is_lost_or_made_twice(self):
        beyond = Beyond(self, "127.0.0.2", FAULTS, "unnumbered")
        by_client = Beyond(self, "127.0.0.4", FAULTS | DUPLICATES)
        numbered = Beyond(self, "127.0.0.3", FAULTS | DUPLICATES, "numbered")
        acknowledged, unknown, _ = beyond.check(self)
        print(f"{acknowledged} pushes acknowledged, {unknown} of unknown end, {beyond.proxy.counts}")
        self.assertGreater(acknowledged, 100)
        self.assertGreater(beyond.proxy.counts["cut"], 0)
        acknowledged, unknown, _ = by_client.check(self)
        print(f"{acknowledged} pushes numbered by the client, {unknown} of unknown end, {by_client.proxy.counts}")
        self.assertGreater(acknowledged, 100)
        self.assertGreater(by_client.proxy.counts["replay"], 0)
        acknowledged, unknown, again = numbered.check(self)
        print(f"{acknowledged} numbered pushes, {again} made again, {numbered.proxy.counts}")
        self.assertGreater(acknowledged, 100)
        self.assertGreater(numbered.proxy.counts["replay"], 0)
        self.assertEqual(unknown, 0)


if __name__ == "__main__":
    unittest.main()
