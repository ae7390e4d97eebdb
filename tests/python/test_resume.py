"""The recipe of client/GUIDE.md: a job goes back to a checkpoint in place, while another job trains on the same cluster. It
ends with the bits of a run that was never interrupted, and the trainer that did not know is stopped."""
import os
import sys
import tempfile
import unittest

import numpy as np

from clusters import Embd, embd, main

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
from blocks import ROOT, of_page  # noqa: E402

NAMES = ["ctr-users", "ctr-items"]


def recipe():
    blocks = [b for b in of_page(ROOT / "client/GUIDE.md") if b.words == "resume"]
    assert len(blocks) == 1, [b.where for b in blocks]
    page = {}
    exec(compile(blocks[0].text, blocks[0].where, "exec"), page)
    return page["checkpoint"], page["resume"]


def tables_of(client, names, durability):
    return [client.create_table(name, dim=4, optimizer=embd.Optimizer("adam", lr=0.1), durability=durability) for name in names]


def step(client, tables, n):
    """The dense state depends on the rows, and the rows on it."""
    keys = np.arange(n, n + 40, dtype=np.uint64) % 64
    for table in tables:
        rows = table.pull(keys)
        table.push(keys, rows * np.float32(0.5) + np.float32(n))
    return b"dense of %d" % n


def rows_of(tables):
    return [table.pull(np.arange(64, dtype=np.uint64)).tobytes() for table in tables]


class Resume(unittest.TestCase):
    def goes_back(self, durability):
        checkpoint, resume = recipe()
        with tempfile.TemporaryDirectory() as folder, Embd("--data-dir", folder, shards=2) as server:
            address = server.addresses[0]
            with embd.connect(address) as job, embd.connect(address) as other:
                mine, theirs = tables_of(job, NAMES, durability), tables_of(other, ["other"], durability)
                for n in range(1, 11):
                    dense = step(job, mine, n)
                    step(other, theirs, n)
                    if n == 5:
                        checkpoint(job, n, dense)
                wanted = rows_of(mine)
                step(job, mine, 11)  # what is lost
                before = rows_of(theirs)
                with embd.connect(address) as again:
                    found, dense = resume(again, f"{folder}/ctr-5")
                    self.assertEqual((found, dense), (5, b"dense of 5"))
                    self.assertEqual(rows_of(theirs), before)
                    step(other, theirs, 11)  # its numbers go on
                    with self.assertRaises(embd.Error) as caught:
                        step(job, mine, 12)  # the trainer that does not know
                    self.assertIn(caught.exception.status, (embd.Status.GAP, embd.Status.FORGOTTEN))
                    resumed = tables_of(again, NAMES, durability)
                    for n in range(found + 1, 11):
                        step(again, resumed, n)
                    self.assertEqual(rows_of(resumed), wanted)

    def test_durable_tables_go_back(self):
        self.goes_back("durable")

    def test_tables_of_snapshots_alone_go_back(self):
        self.goes_back("snapshot")


if __name__ == "__main__":
    main()
