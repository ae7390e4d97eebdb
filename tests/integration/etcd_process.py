"""A real etcd of one or more members, on free ports of 127.0.0.1."""
import base64
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request

from ports import free_ports

ETCD = shutil.which("etcd")


def b64(text):
    return base64.b64encode(text.encode()).decode()


def memory_dir(n):
    """A folder in memory with room for n members: a lease must not lapse since a busy disk syncs slowly. None: there is none."""
    if not os.path.isdir("/dev/shm"):
        return None
    room = os.statvfs("/dev/shm")
    return "/dev/shm" if room.f_bavail * room.f_frsize > n << 29 else None


class Etcd:
    """Members of an etcd; with `tls`, (authority, certificate, key), they speak TLS."""

    host = "127.0.0.1"  # where clients reach them

    def __init__(self, n=3, tls=None, flags=()):
        self.dir = tempfile.mkdtemp(prefix="embd-etcd-", dir=memory_dir(n))
        first = free_ports(2 * n)
        ports = [first + i for i in range(2 * n)]
        self.ports, self.peers = ports[:n], ports[n:]
        self.all = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self.peers))
        self.members, self.token, self.scheme, self.flags, self.context = [None] * n, None, "http", [], None
        if tls is not None:
            self.scheme, self.flags = "https", ["--cert-file", tls[1], "--key-file", tls[2], *flags]
            self.context = ssl.create_default_context(cafile=tls[0])
            self.context.load_cert_chain(tls[1], tls[2])
        for i in range(n):
            self.start(i)
        self.wait()

    def start(self, i):
        client, peer = f"{self.scheme}://{self.host}:{self.ports[i]}", f"http://127.0.0.1:{self.peers[i]}"
        with open(os.path.join(self.dir, f"log{i}"), "ab") as log:
            self.members[i] = subprocess.Popen(
                [ETCD, "--name", f"m{i}", "--data-dir", os.path.join(self.dir, f"m{i}"), "--listen-client-urls", client,
                 "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--initial-cluster", self.all, "--heartbeat-interval", "50", "--election-timeout", "500", *self.flags],
                stdout=log, stderr=log, env={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine})

    def ask(self, path, body, i=None):
        for port in self.ports if i is None else [self.ports[i]]:
            try:
                request = urllib.request.Request(f"{self.scheme}://{self.host}:{port}/v3/{path}", json.dumps(body).encode(),
                                                 {"Authorization": self.token} if self.token else {})
                with urllib.request.urlopen(request, timeout=3, context=self.context) as answer:
                    return json.load(answer)
            except OSError as error:
                why = error
        raise why

    def wait(self):
        """Until a majority takes writes."""
        for _ in range(200):
            try:
                self.ask("kv/put", {"key": b64("/ready"), "value": b64("yes")})
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("etcd does not start")

    def get(self, key):
        found = self.ask("kv/range", {"key": b64(key)}).get("kvs", [])
        return base64.b64decode(found[0].get("value", "")).decode() if found else None

    def count(self, prefix):
        """How many keys begin so."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        return int(self.ask("kv/range", {"key": b64(prefix), "range_end": b64(end), "count_only": True}).get("count", 0))

    def put(self, key, value):
        self.ask("kv/put", {"key": b64(key), "value": b64(value)})

    def kill(self, i):
        self.members[i].kill()
        self.members[i].wait()

    def leader(self):
        for i in range(len(self.members)):
            status = self.ask("maintenance/status", {}, i)
            if status["leader"] == status["header"]["member_id"]:
                return i
        raise AssertionError("nobody leads")

    def stop(self):
        for i in range(len(self.members)):
            self.kill(i)
        shutil.rmtree(self.dir)
