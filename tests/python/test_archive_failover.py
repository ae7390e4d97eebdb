"""A cluster with failover keeps an archive by its setting: primaries are killed with -9 while they write a backup or keep records. Whoever takes
the place goes on with the archive. Then all disks are lost, and every acknowledged push comes back on another number of shards: from the
archive, as it was behind the last push, and as it was between two kills. Skipped where there is no etcd. EMBD_ARCHIVE_KILLS=n: 2 without it."""
import contextlib
import os
import shutil
import signal
import subprocess
import time

import numpy as np

import clusters
import embd
from test_failover import EMBCTL, KEYS, SECONDS, Failover

KILLS = int(os.environ.get("EMBD_ARCHIVE_KILLS", "2"))


def embctl(*words):
    return subprocess.run([EMBCTL, *words], capture_output=True, text=True, timeout=SECONDS, check=False)


class Archive(Failover):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_archives)

    def end_archives(self):
        """Of a server that let one live."""
        for pid in self.archives():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def write_file(self, members=None):
        self.place = os.path.join(self.data, "place")
        os.makedirs(self.place, exist_ok=True)
        self.settings = ("replicas: 1", f"archive: {self.place}", "archive_every: 1")
        super().write_file(members)

    def tend(self):
        """It does not matter who serves."""
        for name in self.lapsed():
            self.start(name)

    def backups(self):
        """Names of all, and of those that are being written, or were cut off."""
        names = [name for name in os.listdir(self.place) if name.startswith("archive-")]
        return set(names), {name for name in names if not os.path.exists(os.path.join(self.place, name, "backup.json"))}

    def archives(self):
        """Processes that write there."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:  # it has ended
                continue
            found += [pid] if b"backup" in words and self.place.encode() in words else []
        return found

    def kill_in_a_backup(self):
        """The primary, whose archive dies with it and leaves a backup cut off."""
        _, before = self.backups()
        name, end = self.primary(), time.monotonic() + SECONDS
        while not self.backups()[1] - before:
            self.assertLess(time.monotonic(), end, self.logs())
            time.sleep(0.001)
        self.kill(name)
        return name

    def lose_primary(self, trainer):
        self.until(lambda: self.primary() is not None and self.insync() == 1)
        name = self.kill_in_a_backup()
        self.until(lambda: self.primary() not in (None, name))
        self.start(name)
        self.go_on_pushing(trainer)
        there = self.backups()[0]
        self.until(lambda: self.backups()[0] - self.backups()[1] - there)  # it goes on

    def rest(self, trainer):  # pylint: disable=arguments-renamed
        """A moment behind all that was acknowledged, once the archive has it by backups and records."""
        trainer.end()
        self.assertIsNone(trainer.wrong, self.logs())
        there = self.backups()[0]
        self.until(lambda: len(self.backups()[0] - self.backups()[1] - there) > 1)
        return time.time(), trainer.acked

    def restored(self, *at):
        """On three shards."""
        with clusters.Embd("--http", "off", "--replicas", "0", shards=3) as server:
            ran = embctl("--servers", server.addresses[0], "restore", "--from", self.place, *at)
            self.assertEqual(ran.returncode, 0, f"{ran.stderr}\n{self.logs()}")
            with embd.connect(server.addresses[0], deadline=SECONDS) as client:
                return client.table("t").pull(KEYS)

    def test_a_follower_goes_on_with_the_archive_and_every_acknowledged_push_comes_back(self):
        self.begin("x", "y")
        moments, acked = [], 0
        for _ in range(KILLS):
            trainer, = self.train()
            self.lose_primary(trainer)
            when, more = self.rest(trainer)
            acked += more
            moments.append((when, acked))
        for name in list(self.servers):
            self.kill(name)
            shutil.rmtree(os.path.join(self.data, name))
        self.until(lambda: not self.archives())
        verified = embctl("verify", self.place)
        self.assertEqual(verified.returncode, 0, (verified.stdout, verified.stderr))
        np.testing.assert_array_equal(self.restored(), acked)
        when, acked = moments[0]
        np.testing.assert_array_equal(self.restored("--at", f"@{when:.3f}"), acked)


if __name__ == "__main__":
    clusters.main()
