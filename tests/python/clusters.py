"""Clusters for the Python tests: a server process of a few shards for the time of a test class."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from embd_process import Embd, run  # noqa: E402

# Packages that Debian does not have, from deploy/deps.sh --tools; also for processes that are started.
TOOLS = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "embd", "tools", "lib",
                     f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
sys.path.append(TOOLS)
os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), TOOLS])

import embd  # noqa: E402


class ClusterTest(unittest.TestCase):
    """Tests on a cluster of `shards`, each with a fresh client and tables of its own."""

    shards = 1
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Embd(*cls.flags, shards=cls.shards)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "the server did not stop in order"

    def setUp(self):
        self.client = embd.connect(self.server.addresses[0], deadline=20)
        self.addCleanup(self.client.close)
        for name in self.client.tables():
            self.client.drop_table(name)


def main():
    """Runs the tests of the calling script; 77 says to ctest that all of them were skipped."""
    program = unittest.main(module="__main__", exit=False, verbosity=1)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun > 0 and len(result.skipped) == result.testsRun else 0)
