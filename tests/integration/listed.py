"""A cluster of several real processes that one configuration file lists, each with a data directory of its own."""
import os
import tempfile
import shutil
import urllib.error
import urllib.request

from embd_process import Embd
from ports import free_ports


def page(port, path):
    """Status and text of a page of a server's HTTP port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.read().decode()


class Listed:
    """Servers by name, of one shard each; `more` are lines of the file's top."""

    def __init__(self, names, more="", shards=1):
        self.dir = tempfile.mkdtemp(prefix="embd-listed-")
        self.names, self.more, self.shards, self.running = names, more, shards, {}
        self.port = free_ports(len(names) * (shards + 1))
        self.write()

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, directories=None):
        """`directories`: another one for a server, by its name."""
        with open(self.path("embd.yaml"), "w", encoding="ascii") as file:
            file.write(f"{self.more}admin_dir: {self.path('admin')}\ncluster:\n  servers:\n")
            for i, name in enumerate(self.names):
                data = (directories or {}).get(name, self.path(name))
                os.makedirs(data, exist_ok=True)
                file.write(f'    - {{name: {name}, listen: "127.0.0.1:{self.port + i * self.shards}", shards: {self.shards}, '
                           f'data_dir: "{data}", http: "127.0.0.1:{self.http(name)}"}}\n')

    def http(self, name):
        return self.port + len(self.names) * self.shards + self.names.index(name)

    def address(self, name):
        return f"127.0.0.1:{self.port + self.names.index(name) * self.shards}"

    def start(self, name, *flags, **more):
        server = Embd("--config", self.path("embd.yaml"), "--server", name, "--admin-dir", self.path("admin"), *flags, listen=None,
                      **more)
        server.addresses = [f"127.0.0.1:{self.port + self.names.index(name) * self.shards + i}" for i in range(self.shards)]
        server.process.stdout.readline()  # it listens
        self.running[name] = server
        return server

    def end(self, name):
        return self.running.pop(name).stop()

    def kill(self, name):
        self.running.pop(name).kill()

    def page(self, name, path):
        return page(self.http(name), path)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for name, server in self.running.items():
            if kind is not None:
                print(f"log of {name}:\n{server.log()}")
            server.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class Growing(Listed):
    """The file lists the first of the servers, until others are to join."""

    def __init__(self, names, listed, **more):
        self.all = names
        super().__init__(names, **more)
        self.list(listed)

    def list(self, n):
        self.names = self.all[:n]
        self.write()

    def http(self, name):
        return self.port + len(self.all) * self.shards + self.all.index(name)

    def join(self, name):
        """The server has begun, and is no member."""
        self.list(self.all.index(name) + 1)
        server = self.start(name, "--join", waits=False)
        server.wait_log("ready shards")
        return server
