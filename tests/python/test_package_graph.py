"""The deep model in PyTorch on the samples of embd-example-fm reaches the AUC of the example itself."""
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
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/python/examples/package_graph.py")
FM = [os.path.join(os.environ["EMBD_BIN"], "embd-example-fm"), "--synthetic", "--limit", "100000"]


def auc(*command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    return float(re.findall(r"^held out: .*AUC (0\.\d+)", result.stdout, re.M)[-1])


@unittest.skipIf(torch is None, "PyTorch is not installed: deploy/deps.sh --torch")
class PackageGraph(unittest.TestCase):
    def test_on_three_shards(self):
        with clusters.Embd(shards=3) as server, tempfile.TemporaryDirectory() as folder:
            in_c = auc(*FM, "--servers", server.addresses[0])
            subprocess.run([*FM, "--export", folder], check=True, capture_output=True)
            in_python = auc(sys.executable, "-B", EXAMPLE, folder, "--servers", server.addresses[0])
        self.assertGreater(in_c, 0.9)
        self.assertGreaterEqual(in_python, in_c - MARGIN)


if __name__ == "__main__":
    clusters.main()
