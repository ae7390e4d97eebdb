"""Servers, the coordinator and etcd die at each step of a server's becoming a member and of its leaving, in a cluster whose map is in etcd:
all servers count alike afterwards, and the map has the members and nobody else. Skipped where there is no etcd."""
import json
import unittest

import test_add_dies
import test_retire_dies
from etcd_process import ETCD, Etcd
from mover import until


class InEtcd:
    """Before a Cluster: etcd is one of those that die, and the file names it."""
    n_clusters, etcd = 0, None

    def write(self, directories=None):
        super().write(directories)
        if not hasattr(self, "prefix"):
            InEtcd.n_clusters += 1
            self.prefix = f"/embd/{InEtcd.n_clusters}"
        with open(self.path("embd.yaml"), encoding="ascii") as file:
            text = file.read()
        with open(self.path("embd.yaml"), "w", encoding="ascii") as file:
            file.write(text.replace("cluster:\n", f'cluster:\n  etcd: "etcd://127.0.0.1:{self.etcd.ports[0]}{self.prefix}"\n  etcd_lease: 1\n'))

    def kill(self, name):
        if name == "etcd":
            self.etcd.kill(0)
        else:
            super().kill(name)

    def until_on_map(self):
        names = set("abc"[:self.n])
        until(lambda: set(json.loads(self.etcd.get(self.prefix + "/map") or '{"servers": {}}')["servers"]) == names)


class AddCluster(InEtcd, test_add_dies.Cluster):
    pass


class RetireCluster(InEtcd, test_retire_dies.Cluster):
    pass


class Dying:
    """Before a test of who dies."""
    DYING = ("a", "c", ("etcd",), ("etcd", "a"))

    @classmethod
    def setUpClass(cls):
        if ETCD is None:
            raise unittest.SkipTest("etcd is not installed: deploy/deps.sh --tools")
        InEtcd.etcd = Etcd(1)

    @classmethod
    def tearDownClass(cls):
        InEtcd.etcd.stop()

    def fresh(self):
        self.cluster = self.CLUSTER()
        self.addCleanup(self.cluster.__exit__, None, None, None)
        self.cluster.begin()
        self.cluster.until_on_map()
        return self.cluster

    def restart(self, names):
        if "etcd" in names:
            InEtcd.etcd.start(0)
            InEtcd.etcd.wait()
        super().restart([name for name in names if name != "etcd"])

    def die(self, point, dying):
        super().die(point, dying)
        self.cluster.until_on_map()


class Adds(Dying, test_add_dies.Dies):
    CLUSTER = AddCluster


class Retires(Dying, test_retire_dies.Dies):
    CLUSTER = RetireCluster


if __name__ == "__main__":
    unittest.main()
