"""The example of workers under DistributedDataParallel: any number of them takes the steps of one."""
import os
import re
import subprocess
import sys
import unittest

import clusters

try:
    import torch
except ImportError:
    torch = None

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/python/examples/ddp.py")
STEPS = 60


def train(server, workers):
    result = subprocess.run([sys.executable, "-B", EXAMPLE, "--workers", str(workers), "--steps", str(STEPS)],
                            capture_output=True, text=True, timeout=250, check=False,
                            env={**os.environ, "EMBD_SERVERS": server.addresses[0]})
    assert result.returncode == 0, result.stderr
    loss, first, steps = re.search(r"loss (\S+), first (\S+); steps of the rows (\d+)", result.stdout).groups()
    return float(loss), float(first), int(steps)


@unittest.skipIf(torch is None or not torch.distributed.is_available(), "no PyTorch with torch.distributed")
class Workers(unittest.TestCase):
    def test_three_workers_take_the_steps_of_one(self):
        results = []
        for workers in 1, 3:
            with clusters.Embd(shards=2) as server:
                results.append(train(server, workers))
        (alone, first, steps), (together, first_together, steps_together) = results
        self.assertEqual((steps, steps_together), (STEPS, STEPS))
        self.assertAlmostEqual(first, first_together, delta=1e-3)
        self.assertLess(alone, first - 0.02)
        self.assertAlmostEqual(alone, together, delta=2e-3)


if __name__ == "__main__":
    clusters.main()
