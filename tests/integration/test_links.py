"""Links in the data directory, and names that lead out of it: what embd writes, reads and removes is below the directory
that it opened at its start, and nothing else."""
import os
import shutil
import subprocess
import tempfile
import unittest

import embd_process
import wire

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
LEADING_OUT = ["..", ".", "", "/", "/tmp/x", "../x", "a/b", "a/../b", ".hidden", "-a", "_a", "A", "a.tmp", "a\0b", "a" * 65]


def content(folder):
    """{path: bytes, or None of a folder} of everything in it."""
    found = {}
    for base, _, files in os.walk(folder):
        found[base] = None
        for file in files:
            with open(os.path.join(base, file), "rb") as data:
                found[os.path.join(base, file)] = data.read()
    return found


class Links(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="embd-links-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.data, self.elsewhere = (os.path.join(self.dir, name) for name in ("data", "elsewhere"))
        os.mkdir(self.data)
        os.mkdir(self.elsewhere)
        with open(os.path.join(self.elsewhere, "file"), "wb") as file:
            file.write(b"not embd's" * 10)

    def start(self):
        server = embd_process.Embd("--data-dir", self.data, "--http", "off")
        self.addCleanup(server.kill)
        return server

    def link(self, name, to):
        os.symlink(to, os.path.join(self.data, name))

    def embctl(self, server, *arguments):
        return subprocess.run([EMBCTL, "--servers", server.addresses[0], *arguments], capture_output=True, text=True,
                              timeout=60, check=False)

    def fill(self, server, **options):
        with wire.connect(server) as peer:
            table = wire.create(peer, "items", 2, **options)
            wire.push(peer, table, [1, 2], [1.0] * 4)

    def refused(self, done, name):
        self.assertGreater(done.returncode, 0)
        self.assertIn(name, done.stderr)

    def test_a_snapshot_is_not_written_through_a_link(self):
        server, before = self.start(), content(self.elsewhere)
        self.fill(server)
        self.link("first.tmp", self.elsewhere)
        self.link("second", self.elsewhere)
        self.link("third", os.path.join(self.dir, "not there"))
        for name in ("first", "second", "third"):
            self.refused(self.embctl(server, "snapshot", name), name)
        self.assertEqual(self.embctl(server, "snapshot", "fourth").returncode, 0)
        self.assertEqual(content(self.elsewhere), before)

    def test_snapshots_behind_a_link_are_not_counted_and_not_removed(self):
        server = self.start()
        self.fill(server)
        self.assertEqual(self.embctl(server, "snapshot", "theirs").returncode, 0)
        shutil.move(os.path.join(self.data, "theirs"), self.elsewhere)
        before = content(self.elsewhere)
        self.link("old", os.path.join(self.elsewhere, "theirs"))
        for name in ("a", "b"):
            done = self.embctl(server, "snapshot", name, "--keep", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(content(self.elsewhere), before)
        self.assertEqual(sorted(n for n in os.listdir(self.data) if not n.startswith("identity")), ["b", "old"])

    def test_a_journal_is_neither_read_nor_written_through_a_link(self):
        before = content(self.elsewhere)
        server = self.start()
        self.fill(server, durability="durable")
        server.kill()
        journals = [name for name in os.listdir(self.data) if name.startswith("journal.")]
        self.assertTrue(journals)
        for name in journals:
            os.rename(os.path.join(self.data, name), os.path.join(self.dir, name))
            self.link(name, os.path.join(self.dir, name))
        with self.assertRaisesRegex(embd_process.NotReady, "journal"):
            self.start()
        for name in journals:
            os.unlink(os.path.join(self.data, name))
            self.link(name, os.path.join(self.elsewhere, "file"))
        with self.assertRaisesRegex(embd_process.NotReady, "journal"):
            self.start()
        self.assertEqual(content(self.elsewhere), before)

    def test_no_name_leads_out_of_the_directory(self):
        server = self.start()
        everything = content(self.dir)
        with wire.Wire(server.admin_path()) as admin:
            for name in LEADING_OUT:
                for phase in ("begin", "cut", "write", "commit", "abort", "keep"):
                    more = {"parts": []} if phase == "commit" else {"keep": 1} if phase == "keep" else {}
                    with self.assertRaises(wire.RpcError, msg=(phase, name)) as caught:
                        admin.call("snapshot", {"name": name, "phase": phase, **more})
                    self.assertIn("name", str(caught.exception))
        self.assertEqual(content(self.dir), everything)


if __name__ == "__main__":
    unittest.main()
