"""Servers that are wrong on purpose, each of which the tests have to catch: one acknowledges pushes before they are in
the journal, others have one validator less. (A server that does not sync and a snapshot whose manifest comes before its
parts, are caught in test_power.py and test_power_snapshot.py; checksums that are not compared, in test_flips.c.)"""
import os
import subprocess
import sys
import tempfile
import unittest

import failpoints
import oracle
import test_kill
from embd_process import NotReady

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.environ["EMBD_FAULT_TOOLS"]
VALIDATORS = os.environ["EMBD_FAULT_VALIDATORS"].split(",")


class Controls(unittest.TestCase):
    def test_acknowledging_before_the_journal_is_caught(self):
        late = failpoints.variables(tempfile.gettempdir(), "journal.write:late:0")
        with failpoints.environment(late), self.assertRaises((oracle.LostPush, NotReady)):
            test_kill.Kill("run_cycles").run_cycles("durable", 20)

    def bad_input(self, folder):
        return subprocess.run([sys.executable, "-B", "test_bad_input.py"], cwd=os.path.join(HERE, "../integration"),
                              env={**os.environ, "EMBD_BIN": folder}, capture_output=True, text=True, timeout=120,
                              check=False)

    def test_a_validator_less_is_caught(self):
        done = self.bad_input(os.environ["EMBD_BIN"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for validator in VALIDATORS:
            with self.subTest(validator=validator), tempfile.TemporaryDirectory() as folder:
                os.symlink(os.path.join(TOOLS, "embd-without-" + validator), os.path.join(folder, "embd"))
                done = self.bad_input(folder)
                self.assertNotEqual(done.returncode, 0, f"nobody misses {validator}")
                self.assertRegex(done.stderr, "Ran [0-9]+ tests")


if __name__ == "__main__":
    unittest.main()
