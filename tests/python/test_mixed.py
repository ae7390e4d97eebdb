"""Programs of two versions side by side: clients and servers, a cluster of both, and a cluster that is upgraded server by
server under a trainer. What works is bit for bit what one version does; what does not is refused with both versions
named, and leaves nothing behind.

usage: test_mixed.py [BUILD [REVISION]]     the older version; without it the last tag. Skipped where there is none."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import clusters  # noqa: E402
import embd  # noqa: E402
import released  # noqa: E402
from game_day import report  # noqa: E402
from ports import free_ports  # noqa: E402

NEW = pathlib.Path(os.environ["EMBD_BIN"]).resolve()
SHARDS, KEYS, DIM = 2, 300, 4

# A trainer, as a program of whichever version it is run with: the same pushes and pulls always.
TRAINER = """
import hashlib, sys
import numpy as np, embd
with embd.connect(sys.argv[1], deadline=60) as client:
    digest = hashlib.sha256()
    for name, fields in (("d", {"durability": "durable"}), ("s", {"durability": "snapshot", "combiner": "mean"})):
        table = client.create_table(name, 4, optimizer=embd.Optimizer("adam", lr=0.05), **fields)
        for n in range(int(sys.argv[2]), int(sys.argv[3])):
            chance = np.random.default_rng(n)
            keys = chance.integers(0, 300, 64)
            table.push(keys, table.pull(keys) + chance.random((64, 4), np.float32))
        table.erase(np.arange(290, 300))
        digest.update(table.pull(np.arange(300)).tobytes())
    clock = embd.Clock(client, "job", worker=0, workers=1)
    clock.tick()
    print(digest.hexdigest())
"""


class Version:
    def __init__(self, label, bin_dir, package):
        self.bin, self.package = str(bin_dir), str(package)
        said = subprocess.run([os.path.join(self.bin, "embd"), "--version"], capture_output=True, text=True, check=True).stdout
        self.number = said.split()[1]
        self.name = f"{self.number} ({label})"

    def program(self, name, *arguments, servers=None, code=0):
        environment = {**os.environ, **({"EMBD_SERVERS": servers} if servers else {})}
        done = subprocess.run([os.path.join(self.bin, name), *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env=environment, check=False)
        if code is not None and done.returncode != code:
            raise AssertionError(f"{name} {arguments}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def train(self, address, first, last):
        environment = {**os.environ, "PYTHONPATH": self.package, "LD_LIBRARY_PATH": ""}
        done = subprocess.run([sys.executable, "-c", TRAINER, address, str(first), str(last)], capture_output=True, text=True,
                              timeout=120, env=environment, check=False)
        if done.returncode != 0:
            raise AssertionError(f"a trainer of {self.name}: {done.stderr}")
        return done.stdout.strip()


class Cluster:
    """A process a shard, each of a version of its own."""

    def __init__(self, *versions):
        self.folder = tempfile.mkdtemp(prefix="embd-mixed-")
        port = free_ports(len(versions))
        self.config = os.path.join(self.folder, "embd.yaml")
        with open(self.config, "w", encoding="ascii") as file:
            file.write(f"http: off\nadmin_dir: {self.folder}/admin\ncluster:\n  servers:\n" + "".join(
                f'    - {{name: s{i}, listen: "127.0.0.1:{port + i}"}}\n' for i in range(len(versions))))
        self.data = [os.path.join(self.folder, f"data{i}") for i in range(len(versions))]
        for data in self.data:
            os.mkdir(data)
        self.list = [self.start(i, version) for i, version in enumerate(versions)]

    def start(self, i, version):
        return clusters.Embd("--config", self.config, "--server", f"s{i}", "--admin-dir", f"{self.folder}/admin", "--data-dir",
                             self.data[i], listen=None, program=os.path.join(version.bin, "embd"))

    def replace(self, i, version):
        self.list[i].process.send_signal(signal.SIGTERM)
        self.list[i].wait()
        self.list[i].kill()
        self.list[i] = self.start(i, version)

    @property
    def address(self):
        return ",".join(server.addresses[0] for server in self.list)

    def close(self):
        for server in self.list:
            server.kill()
        shutil.rmtree(self.folder)


class Mixed(unittest.TestCase):
    old = new = None

    @classmethod
    def setUpClass(cls):
        cls.new = Version("this", NEW, os.environ["PYTHONPATH"].split(os.pathsep)[0])

    def cluster(self, *versions):
        cluster = Cluster(*versions)
        self.addCleanup(cluster.close)
        return cluster

    def test_clients_of_one_version_with_servers_of_the_other_compute_the_same(self):
        expected = self.new.train(self.cluster(self.new, self.new).address, 0, 20)
        for client, servers in ((self.old, (self.new, self.new)), (self.new, (self.old, self.old)), (self.old, (self.old, self.old)),
                                (self.new, (self.old, self.new)), (self.old, (self.new, self.old))):
            with self.subTest(client=client.name, servers=[server.name for server in servers]):
                self.assertEqual(client.train(self.cluster(*servers).address, 0, 20), expected)

    def test_operators_of_one_version_with_servers_of_the_other_see_the_same(self):
        for operator, servers in ((self.old, self.new), (self.new, self.old)):
            with self.subTest(operator=operator.name, servers=servers.name):
                cluster = self.cluster(servers, servers)
                servers.train(cluster.address, 0, 5)
                for command in (["ping"], ["cluster"], ["stats", "--all"], ["table", "list"], ["table", "describe", "d"], ["table", "stats"],
                                ["shard", "list"], ["hot", "d"], ["get", "d", "7"], ["wait"]):
                    operator.program("embctl", *command, servers=cluster.address)
                dump = os.path.join(cluster.folder, "dump")
                operator.program("embctl", "dump", "--all", dump, servers=cluster.address)
                for version in (self.old, self.new):
                    version.program("embctl", "verify", dump)
                copy = self.cluster(servers)
                operator.program("embctl", "load", dump, servers=copy.address)
                rows = [version.program("embctl", "get", "d", "7", "-o", "json", servers=c.address).stdout
                        for version in (self.old, self.new) for c in (cluster, copy)]
                self.assertEqual(len(set(rows)), 1, rows)

    def snapshot(self, asker, cluster, name, *flags):
        """True: it is there, on all. False: it was refused, both versions are named, and nothing is left."""
        done = asker.program("embctl", "snapshot", name, *flags, servers=cluster.address, code=None)
        parts = [os.path.isdir(os.path.join(data, name)) for data in cluster.data]
        left = [entry for data in cluster.data for entry in os.listdir(data) if entry.startswith(name)]
        if done.returncode == 0:
            self.assertEqual(parts, [True] * len(cluster.data))
            return True
        self.assertFalse(left, done.stderr)
        for version in (self.old, self.new):
            self.assertIn(version.number, done.stderr)
        return False

    def test_a_snapshot_of_a_cluster_of_both(self):
        for servers in ((self.old, self.new), (self.new, self.old)):
            for asker in (self.old, self.new):
                with self.subTest(servers=[server.name for server in servers], asker=asker.name):
                    cluster = self.cluster(*servers)
                    before = self.new.train(cluster.address, 0, 5)
                    if not self.snapshot(asker, cluster, "a"):
                        print(f"refused: coordinated by {servers[0].name}, asked by {asker.name}")
                        continue
                    after = self.new.train(cluster.address, 5, 10)
                    self.assertNotEqual(before, after)
                    self.assertTrue(self.snapshot(asker, cluster, "b", "--incremental", "a"))
                    gathered = os.path.join(cluster.folder, "gathered")
                    for name in ("a", "b"):
                        for data in cluster.data:
                            shutil.copytree(os.path.join(data, name), os.path.join(gathered, name, os.path.basename(data)))
                    for version in (self.old, self.new):
                        with self.subTest(loads=version.name):
                            copy = self.cluster(version)
                            version.program("embctl", "load", os.path.join(gathered, "b"), servers=copy.address)
                            rows = [self.new.program("embctl", "get", "d", *range(50), "-o", "json", servers=c.address).stdout for c in (cluster, copy)]
                            self.assertEqual(rows[0], rows[1])

    def test_an_upgrade_server_by_server_under_a_trainer(self):
        cluster, errors, longest, stops = self.cluster(self.old, self.old), [], [0.0], threading.Event()
        client = embd.connect(cluster.address, deadline=60)
        self.addCleanup(client.close)
        table = client.create_table("d", DIM, optimizer=embd.Optimizer("sgd", lr=1.0), initializer=embd.Initializer("constant", 0))
        pushed = [0]

        def train():
            while not stops.is_set():
                began = time.monotonic()
                try:
                    table.push(np.arange(KEYS), np.full((KEYS, DIM), -1, np.float32))
                    pushed[0] += 1
                except embd.Error as error:
                    errors.append(error)
                longest[0] = max(longest[0], time.monotonic() - began)

        trainer = threading.Thread(target=train)
        trainer.start()
        try:
            for i in range(SHARDS):
                count = pushed[0]
                while pushed[0] < count + 20:
                    time.sleep(0.01)
                cluster.replace(i, self.new)
            count = pushed[0]
            while pushed[0] < count + 20:
                time.sleep(0.01)
        finally:
            stops.set()
            trainer.join()
        report(f"upgrade from {self.old.name}, server by server", longest[0], len(errors))
        self.assertEqual([str(error) for error in errors], [])
        self.assertEqual(set(table.pull(np.arange(KEYS)).ravel()), {float(pushed[0])})


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else NEW.parent)
    revision = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("EMBD_OLDER") or released.last_tag()
    if not revision:
        print("skipped: there is no tag before this commit; name the older version's revision")
        sys.exit(77)
    older = released.build_of(revision, build / "released", "embd-server", "client/all")
    Mixed.old = Version(revision, older / "bin", older / "python")
    del sys.argv[1:]
    clusters.main()


if __name__ == "__main__":
    main()
