"""The deep model in PyTorch reaches the AUC of the example in C on the same samples."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import clusters

try:
    import torch
except ImportError:
    torch = None

MARGIN = 0.005
CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client")
SAMPLES = [sys.executable, "-B", os.path.join(CLIENT, "examples/package_samples.py"), "--synthetic", "--limit", "100000"]
DEEP = [sys.executable, "-B", os.path.join(CLIENT, "python/examples/package_graph.py")]
FM = os.path.join(os.environ["EMBD_BIN"], "embd-example-fm")


def auc(server, *command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False,
                            env={**os.environ, "EMBD_SERVERS": server})
    assert result.returncode == 0, result.stderr
    return float(re.findall(r"^held out: .*AUC (0\.\d+)", result.stdout, re.M)[-1])


@unittest.skipIf(torch is None, "PyTorch is not installed: deploy/deps.sh --torch")
class PackageGraph(unittest.TestCase):
    def test_on_three_shards(self):
        with clusters.Embd(shards=3) as server, tempfile.TemporaryDirectory() as folder:
            subprocess.run([*SAMPLES, folder], check=True, capture_output=True)
            in_c = auc(server.addresses[0], FM, folder)
            in_python = auc(server.addresses[0], *DEEP, folder)
        self.assertGreater(in_c, 0.9)
        self.assertGreaterEqual(in_python, in_c - MARGIN)


if __name__ == "__main__":
    clusters.main()
