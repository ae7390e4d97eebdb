"""Servers found by name: dns://NAME:PORT and SRV records, against a dnsmasq in a network namespace of its own, whose
names appear, move and lie. Skipped where namespaces or dnsmasq are not to be had."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import clusters
import embd

PORT = 7700
INSIDE = "EMBD_TEST_INSIDE_NAMESPACE"


def enter_namespace():
    """Runs this script again where nobody else's network is, as root of that place."""
    tools = [tool for tool in ("unshare", "ip", "dnsmasq") if shutil.which(tool) is None]
    become = ["unshare", "--net", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    if tools or subprocess.run(become + ["true"], capture_output=True, check=False).returncode != 0:
        print(f"skipped: {', '.join(tools) + ' missing' if tools else 'no namespaces here'}")
        sys.exit(77)
    sys.exit(subprocess.run(become + [sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"}, check=False).returncode)


class Names:
    """A name server: a file of addresses that it reads again, and SRV records."""

    def __init__(self, srv=()):
        self.dir = tempfile.mkdtemp(prefix="embd-dns-")
        self.hosts = os.path.join(self.dir, "hosts")
        self.say({})
        self.process = subprocess.Popen(
            ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--no-poll",
             "--local=/test/", "--listen-address=127.0.0.1", "--bind-interfaces", "--pid-file=", "--user=root",
             f"--addn-hosts={self.hosts}", f"--log-facility={self.dir}/log", *(f"--srv-host={record}" for record in srv)])
        self.wait("nowhere.test", [])

    def say(self, names):
        with open(self.hosts, "w", encoding="ascii") as hosts:
            hosts.writelines(f"{address} {name}\n" for name, addresses in names.items() for address in addresses)
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGHUP)
            for name, addresses in names.items():
                self.wait(name, addresses)

    def wait(self, name, addresses):
        """Until the server answers so."""
        for _ in range(500):
            try:
                found = {entry[4][0] for entry in socket.getaddrinfo(name, 1, type=socket.SOCK_STREAM)}
            except socket.gaierror as error:
                found = set() if error.errno == socket.EAI_NONAME else {"?"}
            if found == set(addresses):
                return
            time.sleep(0.01)
        raise AssertionError(f"{name} is {found}")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.dir)


class Dns(unittest.TestCase):
    def names(self, *srv):
        names = Names(srv)
        self.addCleanup(names.stop)
        return names

    def server(self, host, *flags, port=PORT):
        server = clusters.Embd(*flags, listen=f"{host}:{port}")
        self.addCleanup(server.kill)
        return server

    def silent(self, host, port=PORT):
        """Takes connections and never says a word."""
        listener = socket.create_server((host, port))
        self.addCleanup(listener.close)

    def connect(self, servers, **options):
        client = embd.connect(servers, **options)
        self.addCleanup(client.close)
        return client

    def test_every_address_of_a_name_is_asked(self):
        names = self.names()
        names.say({"all.shop.test": ["127.0.0.2", "127.0.0.3", "127.0.0.4"]})  # nobody, one that is silent, embd
        self.silent("127.0.0.3")
        self.server("127.0.0.4")
        for _ in range(2):  # the name server turns the order round
            self.assertEqual(self.connect(f"dns://all.shop.test:{PORT}", deadline=6).shards, [f"127.0.0.4:{PORT}"])

    def test_a_name_that_appears_later_is_waited_for(self):
        names = self.names()
        self.server("127.0.0.2")
        threading.Timer(0.5, names.say, [{"late.shop.test": ["127.0.0.2"]}]).start()
        start = time.monotonic()
        self.connect(f"dns://late.shop.test:{PORT}", deadline=20)
        self.assertGreater(time.monotonic() - start, 0.4)

    def test_a_server_that_appears_later_is_waited_for(self):
        self.names().say({"late.shop.test": ["127.0.0.2"]})
        threading.Timer(0.5, self.server, ["127.0.0.2"]).start()
        self.connect(f"dns://late.shop.test:{PORT}", deadline=20)

    def test_srv_records_say_host_and_port_by_priority(self):
        service = "_embd._tcp.shop.test"
        names = self.names(f"{service},c.shop.test,7702,2", f"{service},b.shop.test,7701,1,7",
                           f"{service},a.shop.test,7700,1,3")
        names.say({"a.shop.test": ["127.0.0.2"], "b.shop.test": ["127.0.0.3"], "c.shop.test": ["127.0.0.4"]})
        last = self.server("127.0.0.4", port=7702)
        self.assertEqual(self.connect(f"dns://{service}", deadline=10).shards, last.addresses)
        first = self.server("127.0.0.3", port=7701)
        self.assertEqual(self.connect(f"dns://{service}", deadline=10).shards, first.addresses)
        embctl = subprocess.run([os.path.join(os.environ["EMBD_BIN"], "embctl"), "--servers", f"dns://{service}",
                                 "cluster"], capture_output=True, text=True, timeout=30, check=False)
        self.assertIn("127.0.0.3:7701", embctl.stdout, embctl.stderr)

    def test_a_lost_connection_finds_its_shard_where_the_name_went(self):
        names = self.names()
        names.say({"shard0.shop.test": ["127.0.0.2"]})
        first = self.server("127.0.0.2", "--advertise", "shard0.shop.test")
        client = self.connect(f"dns://shard0.shop.test:{PORT}", deadline=20)
        self.assertEqual(client.shards, [f"shard0.shop.test:{PORT}"])
        client.ping(0)
        first.kill()
        self.server("127.0.0.3", "--advertise", "shard0.shop.test")
        names.say({"shard0.shop.test": ["127.0.0.3"]})
        for _ in range(50):  # the first call may learn of the loss
            try:
                client.ping(0)
                break
            except embd.UnreachableError:
                time.sleep(0.1)
            except embd.Error as error:
                self.assertEqual(error.status, "closed")
        client.ping(0)

    def test_what_is_not_found_is_named_within_the_deadline(self):
        self.names()
        for servers in ("dns://nowhere.test:7700", "dns://_embd._tcp.nowhere.test"):
            start = time.monotonic()
            with self.assertRaisesRegex(embd.UnreachableError, "nowhere.test"):
                embd.connect(servers, deadline=1)
            self.assertLess(time.monotonic() - start, 4)

    def test_a_resolver_that_is_silent_is_not_waited_for_beyond_the_deadline(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
            deaf.bind(("127.0.0.1", 53))
            with self.assertRaisesRegex(embd.UnreachableError, "within the deadline"):
                embd.connect("dns://_embd._tcp.shop.test", deadline=0.5)

    def test_a_resolver_that_lies_about_lengths_is_not_believed(self):
        record = b"\xc0\x0c\x00\x21\x00\x01\x00\x00\x00\x00"  # the name asked for, SRV, IN, ttl
        bodies = [record + b"\xff\xff\x00\x01", record + b"\x00\x06" + b"\x00" * 6, record + b"\x00\x07" + b"\x00" * 7,
                  record + b"\x00\x08" + b"\x00\x01\x00\x01\x1e\x14\xc0\xff", record[:5], b"\xc0"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as liar:
            liar.bind(("127.0.0.1", 53))
            body, asked = b"", 0

            def answer():
                nonlocal asked
                while True:
                    query, peer = liar.recvfrom(512)
                    if not query:
                        return
                    asked += 1
                    end = query.index(b"\0", 12) + 5
                    liar.sendto(query[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + query[12:end] + body, peer)

            answering = threading.Thread(target=answer)
            answering.start()
            for body in bodies:
                asked, deadline = 0, 0.2
                while asked == 0:  # on a busy host nobody may have been asked
                    with self.assertRaisesRegex(embd.UnreachableError, "dns://_embd._tcp.shop.test"):
                        embd.connect("dns://_embd._tcp.shop.test", deadline=deadline)
                    deadline = min(2 * deadline, 5)
            liar.sendto(b"", ("127.0.0.1", 53))
            answering.join()

    def test_what_cannot_be_read_is_refused(self):
        for servers, word in (("dns://", "host:port"), ("dns://name", "no port"), ("dns://name:0", "port"),
                              ("dns://_embd._tcp.name:7700", "SRV"), ("127.0.0.1:7700,dns://name", "no port")):
            with self.assertRaisesRegex(embd.InvalidError, word):
                embd.connect(servers, deadline=1)


def run_inside():
    """Runs the tests of the calling script where nobody else's network is, and names are those of the tests."""
    if INSIDE not in os.environ:
        enter_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as conf:
        conf.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        conf.flush()
        subprocess.run(["mount", "--bind", conf.name, "/etc/resolv.conf"], check=True)
    clusters.main()


if __name__ == "__main__":
    run_inside()
