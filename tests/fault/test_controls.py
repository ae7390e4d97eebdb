"""Servers that are wrong on purpose, each of which the tests have to catch: one acknowledges pushes before they are in
the journal, one does not look whether a push was applied before, one gives snapshots their manifest before their rows,
one does not compare the checksums of its journal, others have one validator less. (Servers that do not sync, and whose
snapshots' parts are not synced before their manifest, are caught in test_power.py and test_power_snapshot.py; checksums
of files that are not compared, in test_flips.c.)"""
import functools
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import beside
import failpoints
import oracle
import test_kill
from embd_process import Embd, NotReady

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.environ["EMBD_FAULT_TOOLS"]
EMBD_BIN = os.environ["EMBD_BIN"]
VALIDATORS = os.environ["EMBD_FAULT_VALIDATORS"].split(",")


class Controls(unittest.TestCase):
    def test_acknowledging_before_the_journal_is_caught(self):
        late = failpoints.variables(tempfile.gettempdir(), "journal.write:late:0")
        with failpoints.environment(late), self.assertRaises((oracle.LostPush, NotReady)):
            test_kill.Kill("run_cycles").run_cycles("durable", 20)

    def test_dropping_what_was_before_a_base_that_is_not_there_is_caught(self):
        nameless = failpoints.variables(tempfile.gettempdir(), "directory.rename:skip:0")
        with failpoints.environment(nameless), self.assertRaises((oracle.LostPush, NotReady)):
            test_kill.Kill("run_cycles").run_cycles("durable", 5, "--journal-limit", "4K")

    def test_a_manifest_before_its_rows_is_caught(self):
        class Snapshots(beside.InTurn):
            def __init__(self, data, clients):
                super().__init__(data, clients, None, test_kill.SHARDS)
                self.acts = [beside.Snapshot(data, clients, False)]

        wrong = functools.partial(Embd, program=os.path.join(TOOLS, "embd-manifest-first"))
        with unittest.mock.patch.object(test_kill, "Embd", wrong), self.assertRaises(beside.NotWhole):
            test_kill.Kill("run_cycles").run_cycles("durable", 300, make_beside=Snapshots)  # the first that is seen is the last

    @unittest.skipIf("EMBD_FAULT_FEW" in os.environ, "some minutes under sanitizers")
    def test_a_journal_whose_checksums_are_not_compared_is_caught(self):
        done = subprocess.run([os.path.join(TOOLS, "fault-unsealed-journal")], capture_output=True, text=True, check=False,
                              timeout=120)
        self.assertIn("[  FAILED  ] a_changed_byte_before_the_last_record_refuses_to_start", done.stdout + done.stderr)

    def run_test(self, missing, folder, *test):
        """A test against the server, or one that lacks a function."""
        with tempfile.TemporaryDirectory() as bin_folder:
            embd = os.path.join(TOOLS, "embd-without-" + missing) if missing else os.path.join(EMBD_BIN, "embd")
            os.symlink(embd, os.path.join(bin_folder, "embd"))
            done = subprocess.run([sys.executable, "-B", *test], cwd=os.path.join(HERE, folder), text=True, check=False,
                                  env={**os.environ, "EMBD_BIN": bin_folder}, capture_output=True, timeout=120)
        self.assertRegex(done.stderr, "Ran [0-9]+ test")
        return done

    def test_a_validator_less_is_caught(self):
        done = self.run_test(None, "../integration", "test_bad_input.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        for validator in VALIDATORS:
            with self.subTest(validator=validator):
                done = self.run_test(validator, "../integration", "test_bad_input.py")
                self.assertNotEqual(done.returncode, 0, f"nobody misses {validator}")

    def test_a_server_that_applies_again_what_is_sent_again_is_caught(self):
        for _ in range(3):  # a trainer that fails, since its count went back, ends a run before the sums are compared
            done = self.run_test("pushers_look", ".", "test_once.py", "Once.test_numbered_pushes_are_applied_once")
            if "Doubled" in done.stderr:
                return
        self.fail(done.stderr[-3000:])


if __name__ == "__main__":
    unittest.main()
