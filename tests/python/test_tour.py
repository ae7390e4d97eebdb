"""The tour, as a user starts it: on a server of its own, and on one that runs."""
import os
import subprocess
import sys
import unittest

import clusters


def tour(*arguments, **environment):
    return subprocess.run([sys.executable, "-B", "-m", "embd", *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment}, check=False)


class Tour(unittest.TestCase):
    def test_on_a_server_of_its_own(self):
        result = tour()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn(">>> items.pull(keys, lengths=lengths)\n[[", result.stdout)
        self.assertIn("['HIT', 'HIT', 'MISSING']", result.stdout)
        self.assertIn("NOT_FINITE | 127.0.0.1:", result.stdout)

    def test_on_a_server_that_runs(self):
        with clusters.Embd() as server:
            result = tour("tour", "--servers", server.addresses[0])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(server.addresses[0], result.stdout)
            with clusters.embd.connect(server.addresses[0]) as client:
                self.assertEqual(client.tables(), [])

    def test_without_a_program_it_says_what_is_missing(self):
        result = tour(PATH="/nonexistent", EMBD_BIN="/nonexistent")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--servers HOST:PORT", result.stderr)


if __name__ == "__main__":
    clusters.main()
