"""Whose a data directory is, and what a server does with one that is not its own or not whole."""
import os
import unittest

import wire
from embd_process import NotReady
from listed import Listed


class Damage(unittest.TestCase):
    def test_a_journal_cut_in_half_refuses_and_is_accepted_on_request(self):
        with Listed("a") as cluster:
            server = cluster.start("a")
            with wire.connect(server) as peer:
                table = wire.create(peer, "kept", durability="durable")
                for _ in range(20):
                    wire.push(peer, table, [1], [1.0] * 4)
            cluster.kill("a")
            journal = cluster.path("a/journal.0.00000001")
            half = os.path.getsize(journal) // 2
            os.truncate(journal, half)
            with self.assertRaises(NotReady) as refused:
                cluster.start("a")
            self.assertIn("records are missing that were on disk", str(refused.exception))
            self.assertIn("--accept-journal-damage", str(refused.exception))
            self.assertEqual(os.path.getsize(journal), half, "a refused start changes nothing")
            server = cluster.start("a", "--accept-journal-damage")
            with wire.connect(server) as peer:
                self.assertEqual(peer.call("stats", {})[0]["stats"]["journal_damages"], 1)
            cluster.end("a")
            cluster.start("a")


if __name__ == "__main__":
    unittest.main()
