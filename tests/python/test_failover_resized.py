"""A cluster with failover gets more shards, as deploy/OPERATING.md says. Its processes end in order; the data directory of the last primary
goes on without failover, beside a new server and a follower that has all shards. That follower is promoted, and its directory begins
the cluster with failover anew. Trainers wait meanwhile: no call fails, no acknowledged push is lost or doubled. Skipped where there is no
etcd."""
import os

import clusters
from ports import free_ports
from test_failover import SECONDS, SHARDS, Failover
from test_rebalance import embctl, rebalance

MORE = SHARDS + 1


class Resized(Failover):
    def setUp(self):
        super().setUp()
        self.ports = {name: free_ports(MORE) for name in "abcdef"}
        for name in self.ports:
            os.makedirs(self.path(name))

    def keep(self, name, server):
        self.addCleanup(server.kill)
        self.all.append((name, server))
        return server

    def path(self, name):
        return os.path.join(self.data, name)

    def list(self, *servers):
        """A file without failover, with these names and numbers of shards."""
        with open(self.path("plain.yaml"), "w", encoding="ascii") as file:
            file.write('http: "off"\nreplicas: 1\ncluster:\n  name: shop\n  servers:\n')
            for name, shards in servers:
                file.write(f'    - {{name: {name}, shards: {shards}, listen: "127.0.0.1:{self.ports[name]}", data_dir: "{self.path(name)}"}}\n')

    def serve(self, name, shards, *flags):
        return self.keep(name, clusters.Embd("--config", self.path("plain.yaml"), "--server", name, *flags, listen=None, shards=shards,
                                             waits=False))

    def follow(self, server):
        return self.keep("f", clusters.Embd("--http", "off", "--replicas", "1", "--cluster", "shop", "--data-dir", self.path("f"),
                                            "--follow", server.admin_path(0), listen=f"127.0.0.1:{self.ports['f']}", shards=MORE,
                                            waits=False))

    def ask(self, address, *words):
        ran = embctl(address, *words)
        self.assertEqual(ran.returncode, 0, (ran.stderr, self.logs()))

    def end_all(self):
        """The followers, and then the primary."""
        self.until(lambda: self.primary() is not None)
        last = self.primary()
        for name in sorted(self.servers, key=lambda name: name == last):
            self.ended.add(name)
            self.assertEqual(self.servers.pop(name).stop(), 0)
        return last

    def join(self, name):
        """A server that is no member yet."""
        self.list((name, SHARDS), ("c", 1))
        server = self.serve("c", 1, "--join")
        server.wait_log("ready shards", SECONDS)
        return server

    def refuse(self, name):
        added = self.join(name)
        ran = embctl(self.servers[name].addresses[0], "shard", "add", added.addresses[0])
        self.assertEqual(ran.returncode, 5, (ran.stderr, self.logs()))
        self.assertIn("with failover each process has all shards", ran.stderr)
        added.kill()

    def grow(self, name):
        """The follower has more shards in the end, and serves no longer."""
        self.list((name, SHARDS))
        server = self.serve(name, SHARDS)
        follower = self.follow(server)
        added = self.join(name)
        self.ask(server.addresses[0], "shard", "add", added.addresses[0])
        rebalance(server.addresses[0])
        self.go_on_pushing(*self.trainers)
        self.assertEqual((added.stop(), server.stop()), (0, 0))
        self.ask(follower.admin_path(0), "promote")
        self.assertEqual(follower.stop(), 0)

    def begin_anew(self, *names):
        self.shards, self.prefix = MORE, self.prefix + "-more"
        self.write_file()
        self.begin(*names)

    def test_a_cluster_with_failover_gets_more_shards_and_trainers_go_on(self):
        self.begin("a", "b")
        self.trainers = self.train(2, servers=",".join(f"127.0.0.1:{port}" for port in self.ports.values()))
        self.refuse("a")
        last = self.end_all()
        self.grow(last)
        self.begin_anew("f", "d", "e")
        self.go_on_pushing(*self.trainers)
        self.kill(self.primary())
        self.finish(*self.trainers)


if __name__ == "__main__":
    clusters.main()
