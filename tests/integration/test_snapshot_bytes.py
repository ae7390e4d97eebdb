"""A server takes the bytes of proto/PROTOCOL.md by which a client starts, watches, continues and cancels a snapshot, and its
reports have the fields of the page's examples."""
import os
import tempfile
import unittest

from embd_process import Embd
import msgpack
import wire

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "unit", "golden")


def golden(name):
    with open(os.path.join(GOLDEN, f"{name}.hex"), encoding="utf-8") as file:
        return bytes.fromhex(" ".join(line.split("#")[0] for line in file))


def example(name):
    """The map of a result."""
    return msgpack.unpackb(golden(name))[3][0]


class SnapshotBytes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="embd-snapshot-bytes-")
        self.addCleanup(folder.cleanup)
        self.server = Embd("--data-dir", folder.name)
        self.addCleanup(self.server.stop)
        self.admin = wire.Wire(self.server.admin_path())
        self.addCleanup(self.admin.close)

    def ask(self, name):
        """(error, result) of a golden request."""
        self.admin.send(golden(name))
        kind, msgid, error, result = self.admin.receive()
        self.assertEqual((kind, msgid), (1, msgpack.unpackb(golden(name))[1]))
        return error, result

    def report(self, name):
        error, result = self.ask(name)
        self.assertIsNone(error)
        return result[0]

    def test_start_and_progress_are_answered_with_the_fields_of_the_example(self):
        for name in ("snapshot_start_request", "snapshot_progress_request"):
            report = self.report(name)
            self.assertEqual({field: type(value) for field, value in report.items()},
                             {field: type(value) for field, value in example("snapshot_start_result").items()})
            self.assertEqual((report["name"], report["state"]), ("nightly", "running"))  # it waits for its files

    def test_go_names_a_job(self):
        self.report("snapshot_start_request")
        error, _ = self.ask("snapshot_go_request")
        self.assertEqual(error[0], wire.INVALID)
        self.assertIn("no job 'nightly' of that id runs", error[1])

    def test_a_cancelled_job_has_failed_as_the_example_has(self):
        self.report("snapshot_start_request")
        self.report("snapshot_cancel_request")
        report = self.report("snapshot_progress_request")
        while report["state"] == "running":
            report = self.report("snapshot_progress_request")
        self.assertEqual({field: type(value) for field, value in report.items()},
                         {field: type(value) for field, value in example("snapshot_progress_result").items()})
        self.assertEqual(report["state"], "failed")


if __name__ == "__main__":
    unittest.main()
