"""Starts and stops real embd processes for the tests, on free ports of 127.0.0.1.

The server says "ready" on a pipe when its shards take requests and names its ports on stdout, so nothing here guesses
or sleeps. Processes are ended by their own id; each has a directory of its own for sockets and data."""
import contextlib
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

from ports import server_port

BIN = os.path.join(os.environ["EMBD_BIN"], "embd")


class NotReady(AssertionError):
    pass


def run(*flags, timeout=20):
    """Runs embd to its end; for what must not start."""
    return subprocess.run([BIN, *flags], capture_output=True, text=True, timeout=timeout, check=False)


class Embd:
    """One embd process, or one of another `program`. `listen` None leaves the address to a configuration file, "" is a port of its own;
    `waits` False: it may still load. `admin`: the directory of its admin sockets, which outlives it; None: one of its own."""

    def __init__(self, *flags, shards=1, listen="", ready_s=20, waits=True, program=BIN,
                 admin=None):
        self.dir = tempfile.mkdtemp(prefix="embd-test-")
        self.log_path = os.path.join(self.dir, "log")
        self.admin_dir = admin or os.path.join(self.dir, "admin")
        command = [program, "--admin-dir", self.admin_dir]
        if listen is not None:
            command += ["--listen", listen or f"127.0.0.1:{server_port(shards)}", "--shards", str(shards)]
        ready_read, ready_write = os.pipe()
        command += [*(["--ready-fd", str(ready_write)] if waits else []), *flags]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, pass_fds=[ready_write],
                                            text=True)
        os.close(ready_write)
        if waits:
            self.wait_ready(ready_read, ready_s)
        else:
            os.close(ready_read)
        self.addresses = []
        while len(self.addresses) < shards:
            line = self.process.stdout.readline()
            self.addresses.append(re.fullmatch(r"embd: shard \d+ listening on (\S+)\n", line).group(1))

    def wait_ready(self, ready_read, ready_s):
        readable, _, _ = select.select([ready_read], [], [], ready_s)
        said = os.read(ready_read, 16) if readable else b""
        os.close(ready_read)
        if said != b"ready\n":
            if readable:  # it closed the pipe, and is about to say why and to end
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(ready_s)
            said = self.log()
            self.kill()
            raise NotReady(f"embd did not become ready, it logged: {said}")

    @property
    def pid(self):
        return self.process.pid

    def port(self, shard=0):
        return int(self.addresses[shard].rsplit(":", 1)[1])

    def admin_path(self, shard=0):
        return os.path.join(self.admin_dir, f"{self.port(shard)}.sock")

    def log(self):
        with open(self.log_path, encoding="ascii") as log:  # the log promises printable ASCII
            return log.read()

    def wait_log(self, text, seconds=10):
        """Waits until the log holds `text`."""
        end = time.monotonic() + seconds
        while text not in self.log():
            if time.monotonic() > end:
                raise AssertionError(f"no {text!r} in the log within {seconds} s: {self.log()}")
            time.sleep(0.02)

    def is_alive(self):
        return self.process.poll() is None

    def threads(self):
        """Their names."""
        return [comm.read_text().strip() for comm in pathlib.Path(f"/proc/{self.pid}/task").glob("*/comm")]

    def rss_bytes(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) * 1024

    def pause(self):
        """Stops the process; on return none of its threads runs, so nothing that is sent from now on is answered."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=20):
        return self.process.wait(seconds)

    def stop(self):
        """Ends in order; returns the exit status."""
        if self.is_alive():
            self.terminate()
        try:
            status = self.wait()
        finally:
            self.kill()
        return status

    def kill(self):
        if self.is_alive():
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        if os.path.isdir(self.dir) and "EMBD_KEEP" not in os.environ:
            self.last_log = self.log()
            shutil.rmtree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and os.path.exists(self.log_path):
            print("log of the server:\n" + self.log())
        self.stop()
