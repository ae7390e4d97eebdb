"""As a service: what the process tells its manager, and how little the units leave it."""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import embd_process

UNITS = os.path.join(os.path.dirname(__file__), "..", "..", "deploy", "systemd")
EXPOSURE_MAX = 2.0


class Notify(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp(prefix="embd-notify-")
        self.addCleanup(shutil.rmtree, folder)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.settimeout(10)
        path = os.path.join(folder, "notify")
        self.socket.bind(path)
        os.environ["NOTIFY_SOCKET"] = path
        os.environ["WATCHDOG_USEC"] = "400000"
        self.addCleanup(os.environ.pop, "NOTIFY_SOCKET")
        self.addCleanup(os.environ.pop, "WATCHDOG_USEC")

    def hear(self, *unless):
        while True:
            said = self.socket.recv(200).decode()
            if said not in unless:
                return said

    def test_ready_alive_reloading_and_stopping_are_told(self):
        with embd_process.Embd("--http", "off", shards=2) as server:
            self.assertEqual(self.hear(), "READY=1")
            self.assertEqual(self.hear(), "WATCHDOG=1")
            server.process.send_signal(signal.SIGHUP)
            self.assertRegex(self.hear("WATCHDOG=1"), r"^RELOADING=1\nMONOTONIC_USEC=\d+$")
            self.assertEqual(self.hear("WATCHDOG=1"), "READY=1")
            server.terminate()
            self.assertEqual(self.hear("WATCHDOG=1"), "STOPPING=1")

    def test_a_process_that_stands_still_is_not_called_alive(self):
        with embd_process.Embd("--http", "off") as server:
            self.hear()
            self.hear()
            server.pause()
            self.addCleanup(lambda: server.is_alive() and server.go_on())
            self.socket.settimeout(0.1)
            with self.assertRaises(TimeoutError):
                while True:
                    self.hear()
            self.socket.settimeout(1)
            with self.assertRaises(TimeoutError):
                self.hear()
            server.go_on()
            self.assertEqual(self.hear(), "WATCHDOG=1")


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class Units(unittest.TestCase):
    def exposure(self, name, *more):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name.replace("@", "@a"))
            with open(path, "w", encoding="ascii") as out:
                for part in (name, *more):
                    with open(os.path.join(UNITS, part), encoding="ascii") as file:
                        out.write(file.read().split("[Install]")[0])
            answer = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", path],
                                    capture_output=True, text=True, timeout=60, check=False)
            found = re.search(r"Overall exposure level.*?: ([0-9.]+)", answer.stdout)
            self.assertTrue(found, answer.stdout + answer.stderr)
            return float(found.group(1))

    def test_the_units_leave_little_exposed(self):
        for unit in ("embd.service", "embd@.service"):
            self.assertLessEqual(self.exposure(unit), EXPOSURE_MAX, unit)
            self.assertLessEqual(self.exposure(unit, "gpu.conf"), EXPOSURE_MAX, unit)

    def test_the_units_start_the_server_with_flags_that_it_knows(self):
        for unit in ("embd.service", "embd@.service"):
            with open(os.path.join(UNITS, unit), encoding="ascii") as file:
                flags = re.findall(r"--[a-z-]+", re.search(r"^ExecStart=(.*)$", file.read(), re.M).group(1))
            said = subprocess.run([embd_process.BIN, "--help"], capture_output=True, text=True, check=True).stdout
            for flag in flags:
                self.assertIn(flag, said)


if __name__ == "__main__":
    unittest.main()
