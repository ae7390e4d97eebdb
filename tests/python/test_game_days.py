"""Game days: what goes wrong in a data centre, under a trainer that knows nothing of it. Each scenario prints how long the
trainer's longest step took and which errors it saw, for the table of `ninja game-days`; what a page promises is asserted.
In the end each acknowledged push is in the rows, once. Other scenarios of the table are tests with the label `game-days`."""
import collections
import contextlib
import datetime
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import clusters
import embd
import wire
from certificates import Authority
from embd_process import NotReady
from game_day import report
from listed import Listed
from ports import free_ports
from test_row_memory import cgroup

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from test_full_disk import Disk, can_mount  # noqa: E402

MB = 1 << 20
KEYS, DIM = np.arange(200), 4
MINUTE = 60


def until(look, seconds=MINUTE):
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.02)


class Trainer(threading.Thread):
    """Pushes of one to every key, and pulls; counts what it saw."""

    def __init__(self, address, **options):
        super().__init__()
        self.client = embd.connect(address, deadline=MINUTE, **options)
        self.table = self.client.create_table("t", DIM, optimizer=embd.Optimizer("sgd", lr=1.0),
                                              initializer=embd.Initializer("constant", 0), durability="durable")
        self.pushed, self.steps, self.longest, self.errors, self.ends = 0, 0, 0.0, [], False
        self.start()

    def run(self):
        while not self.ends:
            began = time.monotonic()
            try:
                self.table.push(KEYS, np.full((len(KEYS), DIM), -1, np.float32))
                self.pushed += 1
                self.table.pull(KEYS)
                self.steps += 1
            except embd.Error as error:
                self.errors.append(error)
                time.sleep(0.01)
            self.longest = max(self.longest, time.monotonic() - began)

    def goes_on(self):
        """Some steps from now on."""
        first = self.steps
        until(lambda: self.steps >= first + 5 or not self.is_alive())

    def end(self):
        self.ends = True
        self.join()

    def seen(self):
        return ", ".join(f"{n} {status}" for status, n in collections.Counter(error.status.name for error in self.errors).items())


class GameDays(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="embd-game-day-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, address, **options):
        trainer = Trainer(address, **options)
        self.addCleanup(trainer.client.close)
        self.addCleanup(trainer.end)
        trainer.goes_on()
        return trainer

    def finish(self, trainer, scenario, allowed=()):
        trainer.goes_on()
        trainer.end()
        report(scenario, trainer.longest, len(trainer.errors), trainer.seen())
        self.assertEqual([str(error) for error in trainer.errors if error.status.name not in allowed], [])
        self.assertEqual(set(trainer.table.pull(KEYS).ravel()), {float(trainer.pushed)})

    # ---- memory ----

    def test_the_kernel_kills_a_server_that_takes_too_much_memory(self):
        with cgroup(200 * MB) as group:
            if group is None:
                self.skipTest("no memory cgroup can be made here")
            data, program, listen = self.path("data"), self.path("embd-in-cgroup"), f"127.0.0.1:{free_ports(1)}"
            os.mkdir(data)
            with open(program, "w", encoding="ascii") as script:
                script.write(f'#!/bin/sh\necho $$ >{group}/cgroup.procs\nexec {os.environ["EMBD_BIN"]}/embd "$@"\n')
            os.chmod(program, 0o700)

            def start():
                return clusters.Embd("--data-dir", data, "--http", "off", "--row-memory", "100G", listen=listen, program=program)

            server = start()
            self.addCleanup(lambda: server.kill())
            trainer = self.train(listen)
            with wire.connect(server) as peer:
                grown = wire.create(peer, "grown", 64)
                with self.assertRaises((OSError, TypeError)):  # its connection ends
                    for first in range(0, 1 << 30, 4096):
                        wire.push(peer, grown, range(first, first + 4096), [1.0] * (64 * 4096))
            self.assertEqual(server.wait(), -signal.SIGKILL)
            server.kill()
            server = start()
            self.finish(trainer, "OOM kill")
            server.kill()  # before its cgroup goes

    # ---- disks ----

    @unittest.skipUnless(os.getuid() == 0 and can_mount(), "a disk of its own needs root and mounts")
    def test_a_disk_that_another_program_fills(self):
        disk = Disk("tmpfs")
        self.addCleanup(disk.remove)
        with clusters.Embd("--data-dir", disk.data, "--journal-limit", "1M", "--http", "off") as server:
            trainer = self.train(server.addresses[0])
            with wire.connect(server) as peer:
                stats = lambda name: peer.call("stats")[0]["stats"][name]  # noqa: E731
                disk.fill()
                until(lambda: stats("journal_bases") > 0 or trainer.errors)
                end = time.monotonic() + 1
                while time.monotonic() < end:  # it gives room back, and another program takes it
                    disk.fill()
                    time.sleep(0.02)
                disk.empty()
                self.finish(trainer, "full disk", allowed=("IO",))

    def test_the_disks_of_two_servers_are_exchanged(self):
        with Listed("ab") as cluster:
            for name in "ab":
                cluster.start(name)
            trainer = self.train(",".join(cluster.address(name) for name in "ab"))

            def end_all():
                for name in "ab":
                    cluster.end(name)

            end_all()
            cluster.write({"a": cluster.path("b"), "b": cluster.path("a")})
            for name in "ab":
                cluster.start(name, waits=False)
            for name in "ab":
                cluster.running[name].wait_log("directory_refused", MINUTE)
            end_all()
            cluster.write()
            for name in "ab":
                cluster.start(name)
            self.finish(trainer, "swapped disks, and back")

    # ---- certificates ----

    def test_a_certificate_ends_and_is_replaced_later(self):
        authority = Authority(self.folder, "authority")
        cert, key = self.path("cert.pem"), self.path("key.pem")

        def has_ended():
            return datetime.datetime.now(datetime.timezone.utc) > self.ends + datetime.timedelta(seconds=1)

        for seconds in (4, 16, 64):  # until a trainer is connected before it ends
            self.ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
            for made, kept in zip(authority.issue(f"short{seconds}", ends=self.ends.strftime("%Y%m%d%H%M%SZ")), (cert, key)):
                shutil.copy(made, kept)
            with contextlib.suppress(embd.Error, NotReady), \
                    clusters.Embd("--tls-cert", cert, "--tls-key", key, "--data-dir", self.folder, "--http", "off", "--local-socket", "off",
                                  "--advertise", "127.0.0.1", listen="127.0.0.2:0") as server:
                through = Passage(server.port())
                self.addCleanup(through.close)
                trainer = self.train(through.address, tls_ca=authority.path)
                until(has_ended, 2 * MINUTE)
                self.replace_under(trainer, through, server, authority, (cert, key))
                return
        self.fail("no trainer was connected before the certificate ended")

    def replace_under(self, trainer, through, server, authority, files):
        trainer.goes_on()
        self.assertEqual(trainer.errors, [], "a connection outlives its certificate")
        through.cut()
        with self.assertRaises(embd.Error) as refused:  # who connects first is told at once
            embd.connect(through.address, deadline=MINUTE, tls_ca=authority.path)
        self.assertIn("certificate has expired", str(refused.exception))
        stood, made = trainer.steps, authority.issue("long")
        self.assertLessEqual(trainer.steps, stood + 1)
        for new, old in zip(made[::-1], files[::-1]):
            os.replace(new, old)
        server.wait_log("keys_reloaded", MINUTE)
        self.finish(trainer, "expired certificate, replaced in its file")


class Passage:
    """The port on 127.0.0.1 that leads to a server's on 127.0.0.2; cut() ends its connections."""

    def __init__(self, port):
        self.port, self.open = port, []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{port}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                ends = self.listener.accept()[0], socket.create_connection(("127.0.0.2", self.port))
            except OSError:
                return
            self.open += ends
            for source, to in (ends, ends[::-1]):
                threading.Thread(target=self.move, args=[source, to], daemon=True).start()

    @staticmethod
    def move(source, to):
        try:
            while data := source.recv(1 << 16):
                to.sendall(data)
        except OSError:
            pass
        for end in (source, to):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        ends, self.open = self.open, []
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.cut()
        self.listener.close()


if __name__ == "__main__":
    clusters.main()
