"""A node that vanishes without a word: its link goes down, no connection is reset, and its name later stands for another
one. Servers live in network namespaces of their own, names in a dnsmasq. A trainer's calls wait and go on; nothing is
raised. Skipped where namespaces or dnsmasq are not to be had."""
import itertools
import os
import subprocess
import tempfile
import threading
import time
import unittest

import clusters
import embd
import test_dns
from certificates import Tokens
from game_day import report

NAME = "node.shop.test"
DEADLINE_S = 100  # the kernel by itself takes some 900 s to give such a connection up


class Node:
    """A host of its own, `address` beside ours, with one server on it."""

    numbers = itertools.count(1)  # the kernel takes a while to forget a link

    def __init__(self, tokens):
        number = next(self.numbers)
        self.address, self.link = f"10.77.{number}.2", f"to-node{number}"
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.enter = ["nsenter", "--net", "--target", str(self.holder.pid)]
        while self.lacks_namespace():
            time.sleep(0.01)
        for command in (["ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid)],
                        ["ip", "address", "add", f"10.77.{number}.1/24", "dev", self.link],
                        ["ip", "link", "set", self.link, "up"],
                        [*self.enter, "ip", "address", "add", f"{self.address}/24", "dev", "eth0"],
                        [*self.enter, "ip", "link", "set", "eth0", "up"],
                        [*self.enter, "ip", "link", "set", "lo", "up"]):
            subprocess.run(command, check=True)
        self.program = tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False)
        self.program.write(f"#!/bin/sh\nexec {' '.join(self.enter)} {clusters.run.__globals__['BIN']} \"$@\"\n")
        self.program.close()
        os.chmod(self.program.name, 0o700)
        self.server = clusters.Embd("--http", "off", "--local-socket", "off", "--tokens", tokens, "--advertise", NAME,
                                    listen=f"{self.address}:{test_dns.PORT}", program=self.program.name)

    def lacks_namespace(self):
        return os.readlink(f"/proc/{self.holder.pid}/ns/net") == os.readlink("/proc/self/ns/net")

    def vanish(self):
        """Nothing comes back from it from now on, no word of its router's either."""
        for command in (["ip", "neighbour", "replace", self.address, "lladdr", "02:00:00:00:00:99", "dev", self.link, "nud", "permanent"],
                        [*self.enter, "ip", "link", "set", "eth0", "down"]):
            subprocess.run(command, check=True)

    def close(self):
        self.server.go_on()
        self.server.kill()
        self.holder.kill()
        self.holder.wait()
        os.unlink(self.program.name)


class Vanish(unittest.TestCase):
    def setUp(self):
        self.names = test_dns.Names()
        self.addCleanup(self.names.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tokens = Tokens(folder.name)
        self.secret = self.tokens.add("trainer", "trainer")
        self.nodes = [self.node(value) for value in (1, 2)]
        self.names.say({NAME: [self.nodes[0].address]})

    def node(self, value):
        node = Node(self.tokens.path)
        self.addCleanup(node.close)
        self.names.say({NAME: [node.address]})
        with embd.connect(f"{node.address}:{test_dns.PORT}", deadline=20, token=self.secret, plain_token=True) as client:
            client.create_table("t", 1, initializer=embd.Initializer("constant", value), durability="snapshot")
        return node

    def trainer(self):
        client = embd.connect(f"dns://{NAME}:{test_dns.PORT}", deadline=DEADLINE_S, token=self.secret, plain_token=True)
        self.addCleanup(client.close)
        table = client.table("t")
        self.assertEqual(table.pull([5])[0, 0], 1.0)
        return table

    def pull_until_moved(self, table):
        start = time.monotonic()
        while table.pull([5])[0, 0] != 2.0:
            self.assertLess(time.monotonic() - start, DEADLINE_S)
        return time.monotonic() - start

    def move(self):
        self.names.say({NAME: [self.nodes[1].address]})
        self.moved = time.monotonic()

    def test_requests_that_nobody_acknowledges_go_where_the_name_went(self):
        table = self.trainer()
        self.nodes[0].vanish()
        threading.Timer(1.3, self.move).start()
        self.pull_until_moved(table)
        report("vanished node, requests unacknowledged: from when its name is back", time.monotonic() - self.moved, 0)

    def test_an_answer_that_never_comes_is_asked_for_where_the_name_went(self):
        table = self.trainer()
        self.nodes[0].server.pause()  # its kernel takes the request still
        threading.Timer(0.5, self.nodes[0].vanish).start()
        threading.Timer(1.3, self.move).start()
        self.pull_until_moved(table)
        report("vanished node, an answer outstanding: from when its name is back", time.monotonic() - self.moved, 0)

    def test_a_token_does_not_leave_this_host_in_the_clear(self):
        with self.assertRaisesRegex(embd.Error, "EMBD_TLS_CA"):
            embd.connect(f"{self.nodes[0].address}:{test_dns.PORT}", deadline=20, token=self.secret)

    def test_an_attempt_to_connect_that_nobody_answers_is_given_up(self):
        table = self.trainer()
        self.nodes[0].server.kill()
        self.nodes[0].vanish()
        threading.Timer(4.0, self.move).start()  # attempts go to the old address meanwhile
        self.pull_until_moved(table)
        report("vanished node, connecting: from when its name is back", time.monotonic() - self.moved, 0)


if __name__ == "__main__":
    test_dns.run_inside()
