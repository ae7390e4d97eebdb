"""Keys move at a rate. Trainers go on meanwhile, the rate is changed while rows are on their way, and what trainers change faster than
that is moved all the same. Of times only the least is asked for, since a host may be slow."""
import json
import os
import pty
import select
import subprocess
import threading
import time
import unittest

import numpy as np

import embd
from test_rebalance import EMBCTL, Rebalance, Trainer, embctl

MIB, DIM = 1 << 20, 256
ROWS = 16384  # of 1 KiB
ROW_BYTES = 8 + 4 * DIM


class Rates(Rebalance):
    names = "ab"

    def setUp(self):
        self.cluster = self.begin()
        self.client = self.connect(self.cluster)
        self.table = self.client.create_table("wide", DIM, initializer=embd.Initializer("constant", 0.0),
                                              optimizer=embd.Optimizer("sgd", lr=1.0))
        self.keys = np.arange(ROWS, dtype=np.uint64)
        self.table.push(self.keys, -np.ones((ROWS, DIM), np.float32))

    def ctl(self, *words, code=0):
        ran = embctl(self.cluster.address("a"), *words)
        self.assertEqual(ran.returncode, code, ran.stderr)
        return ran

    def begin_move(self, *words):
        """All keys go to shard 1, by a command that goes on."""
        command = subprocess.Popen([EMBCTL, "--servers", self.cluster.address("a"), "rebalance", "--drain", "0", "-o", "json", *words],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def end():
            command.kill()
            command.communicate()
        self.addCleanup(end)
        return command

    def end_move(self, command):
        out, err = command.communicate(timeout=120)
        self.assertEqual(command.returncode, 0, err)
        return json.loads(out)["rebalance"][0]

    def until(self, what):
        """Of the newest move's status."""
        status, end = None, time.monotonic() + 90
        while time.monotonic() < end:
            try:
                status = self.client.snapshot_status()
                if what(status):
                    return status
            except embd.InvalidError:  # none has begun
                pass
            time.sleep(0.02)
        return self.fail(f"the move stands still: {status}")

    def copying(self):
        return self.until(lambda s: s.phase == "read" and s.bytes > 0)

    def test_a_move_takes_at_least_as_long_as_its_rate_says(self):
        report = self.client.rebalance([0, 1], rate=2 * MIB)
        self.assertGreaterEqual(report.bytes, ROWS // 3 * ROW_BYTES)
        self.assertGreaterEqual(report.elapsed, report.bytes / (2 * MIB))
        self.assertEqual(self.rows(self.client, "wide"), [0, ROWS])

    def test_trainers_go_on_while_rows_wait_and_the_rate_changes(self):
        """What would take 8 s waits until the trainer has made its steps, and then goes on at once."""
        small = self.client.create_table("t", 4, initializer=embd.Initializer("constant", 0.0), optimizer=embd.Optimizer("sgd", lr=1.0))
        trainer = Trainer(self.cluster.address("b"), "t", 0)
        trainer.start()
        command = self.begin_move("--rate", "1M")
        first = self.copying()
        trainer.until(20)
        self.assertTrue(self.client.snapshot_status().is_running)
        self.assertEqual(first.rate, MIB)
        self.assertGreater(first.expected_rows, ROWS // 3)
        self.assertLess(first.expected_rows, ROWS)
        shown = json.loads(self.ctl("snapshot", "--status", "-o", "json").stdout)["snapshot"][0]
        self.assertGreater(shown["left"], 0)
        self.assertLessEqual(shown["rate"], MIB)
        self.ctl("rebalance", "--rate", "3M", "--running")
        self.assertEqual(self.client.snapshot_status().rate, 3 * MIB)
        self.client.rebalance_rate(0)
        self.assertEqual(self.end_move(command)["vshards"], 512)
        trainer.until(5).end()
        trainer.check(self.client)
        self.assertEqual(self.rows(self.client, "wide"), [0, ROWS])
        self.assertEqual(float(small.pull(trainer.keys)[:, 0].sum()), float(trainer.counts.sum()))
        with self.assertRaisesRegex(embd.InvalidError, "no keys are being moved"):
            self.client.rebalance_rate(2 * MIB)

    def test_a_terminal_shows_the_rate_and_how_long_it_takes(self):
        terminal, other = pty.openpty()
        self.addCleanup(os.close, terminal)
        with subprocess.Popen([EMBCTL, "--servers", self.cluster.address("a"), "rebalance", "--drain", "0", "--rate", "1M"],
                              stdout=subprocess.DEVNULL, stderr=other) as command:
            os.close(other)
            shown, end = "", time.monotonic() + 60
            while " left" not in shown and time.monotonic() < end and select.select([terminal], [], [], 60)[0]:
                shown += os.read(terminal, 4096).decode()
            self.client.rebalance_rate(0)
            self.assertEqual(command.wait(60), 0)
        self.assertRegex(shown, r"move-2 read .* rows .*/s  0:\d\d left")

    def test_a_move_that_waits_is_cancelled_and_its_keys_stay(self):
        command = self.begin_move("--rate", "1M")
        status = self.copying()
        self.ctl("snapshot", "--cancel", status.name)
        _, err = command.communicate(timeout=60)
        self.assertEqual(command.returncode, 3, err)
        self.assertLess(self.client.snapshot_status().rows, status.expected_rows)
        self.assertEqual(self.client.vshards(), [512, 512])
        np.testing.assert_array_equal(self.table.pull(self.keys)[:, 0], np.ones(ROWS))

    def test_a_server_that_dies_ends_a_move_that_waits(self):
        command = self.begin_move("--rate", "1M")
        status = self.copying()
        self.cluster.kill("b")
        ended = self.until(lambda s: not s.is_running)
        self.assertNotEqual(ended.error, "")
        self.assertLess(ended.rows, status.expected_rows)
        command.communicate(timeout=60)
        self.assertNotEqual(command.returncode, 0)
        self.cluster.start("b", waits=False)
        self.assertEqual(embctl(self.cluster.address("a"), "wait").returncode, 0)
        np.testing.assert_array_equal(self.table.pull(self.keys)[:, 0], np.ones(ROWS))

    def test_rows_that_change_faster_than_the_rate_move_all_the_same(self):
        """Each round would be as long as the one before: at last they are moved without the rate."""
        pushes, stops, wrong = [1], threading.Event(), []

        def change():
            try:
                with embd.connect(self.cluster.address("b"), deadline=90) as client:
                    table = client.table("wide")
                    while not stops.is_set():
                        table.push(self.keys[:4096], -np.ones((4096, DIM), np.float32))
                        pushes[0] += 1
            except Exception as error:  # pylint: disable=broad-except # told by the test
                wrong.append(error)
        trainer = threading.Thread(target=change)
        trainer.start()
        try:
            report = self.client.rebalance([0, 1], rate=4 * MIB)
        finally:
            stops.set()
            trainer.join(100)
        self.assertEqual(wrong, [])
        self.assertGreater(report.rows, ROWS // 3 + 4096 // 3)  # some were copied again
        np.testing.assert_array_equal(self.table.pull(self.keys[:4096])[:, 0], np.full(4096, pushes[0]))
        self.assertEqual(self.rows(self.client, "wide"), [0, ROWS])

    def test_what_is_no_rate_is_refused(self):
        for words, says in ((("--rate", "1000"), "bytes, as 50M or 2G"), (("--rate", "5X"), "bytes"), (("--rate", "2000000G"), "bytes"),
                            (("--running",), "needs --rate"), (("--running", "--rate", "2M", "--drain", "0"), "no other option")):
            self.assertIn(says, self.ctl("rebalance", *words, code=2).stderr)
        with self.assertRaisesRegex(embd.InvalidError, "rate: 1000 bytes a second"):
            self.client.rebalance([0, 1], rate=1000)
        self.assertIn("no keys are being moved", self.ctl("rebalance", "--rate", "2M", "--running", code=5).stderr)
        self.assertEqual(self.client.vshards(), [512, 512])


if __name__ == "__main__":
    unittest.main(verbosity=2)
