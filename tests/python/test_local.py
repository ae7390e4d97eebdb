"""Clients on the server's host take its data socket, and nothing else that stands in its place; everybody else keeps to TCP."""
import contextlib
import grp
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import unittest
import urllib.request

import msgpack
import numpy as np

import clusters
import embd
import wire
from certificates import Authority, Tokens
from embd_process import Embd, NotReady
from ports import free_ports

NOBODY = 65534


@contextlib.contextmanager
def environment(**variables):
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def as_other_user(group=NOBODY):
    os.setegid(group)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def data_socket(server):
    return server.admin_path().replace(".sock", ".data.sock")


def ways(client):
    return [shard.is_local for shard in client.figures()]


class Doorman:
    """Between clients and a server's port: answers to hello name the data socket that `place` makes of the server's own, and
    not the features `without`."""

    def __init__(self, address, server, place, without=()):
        self.server, self.place, self.without = server, place, without
        self.listener = self.listen(address)
        threading.Thread(target=self.accept, daemon=True).start()

    def listen(self, address):
        return socket.create_server(address)

    def reach(self):
        return socket.create_connection(self.server)

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = self.reach()
                threading.Thread(target=self.ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self.answer, args=(client, server), daemon=True).start()

    def ask(self, client, server):
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def answer(self, client, server):
        unpacker = msgpack.Unpacker(raw=False, max_buffer_size=1 << 30)
        with contextlib.suppress(OSError), client, server:
            while data := server.recv(65536):
                unpacker.feed(data)
                for message in unpacker:
                    if message[3] and "local" in message[3][0]:
                        message[3][0]["local"].update(self.place(message[3][0]["local"]))
                        message[3][0]["features"] = [name for name in message[3][0]["features"] if name not in self.without]
                    client.sendall(msgpack.packb(message, use_bin_type=True))


class Relay(Doorman):
    """The same between clients and a server's data socket. No descriptor passes."""

    def __init__(self, path, server, without):
        self.path = path
        super().__init__(path, server, lambda place: {}, without)
        self.place = self.found

    def listen(self, path):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        return listener

    def reach(self):
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.server)
        return server

    def found(self, _):
        found = os.stat(self.path)
        return {"path": self.path, "device": found.st_dev, "inode": found.st_ino}


class Closed:
    """A Unix socket that counts who comes, keeps what they say first, and ends the connection."""

    def __init__(self, path, owner=-1):
        self.path, self.heard = path, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        os.chown(path, owner, -1)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                with peer:
                    peer.settimeout(20)
                    self.heard.append(peer.recv(4096))

    def place(self, _):
        found = os.stat(self.path)
        return {"path": self.path, "device": found.st_dev, "inode": found.st_ino}


class LocalCase(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="embd-local-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)

    def start(self, *flags, **options):
        server = Embd(*flags, **options)
        self.addCleanup(server.kill)
        return server

    def connect(self, server, transport="auto", **options):
        with environment(EMBD_TRANSPORT=transport):
            client = embd.connect(server if isinstance(server, str) else server.addresses[0], deadline=20, **options)
        self.addCleanup(client.close)
        return client

    def train(self, client, table="t"):
        """Creates, pushes and pulls; the rows."""
        items = client.create_table(table, dim=8, seed=1)
        keys = np.arange(20001)
        items.push(keys[:-1], np.ones((20000, 8), np.float32))
        return items.pull(keys).tobytes()


class Taken(LocalCase):
    def test_a_client_on_the_host_takes_the_data_socket_of_each_shard(self):
        server = self.start("--http", "127.0.0.1:0", shards=3)
        client, other = self.connect(server), self.connect(server, "tcp")
        self.assertEqual((ways(client), ways(other)), ([True] * 3, [False] * 3))
        self.assertEqual(self.train(client, "a"), self.train(other, "b"))
        self.assertEqual([shard.connections for shard in client.figures()], [1, 1, 1])
        http = re.search(r"http on (\S+)", server.process.stdout.readline())
        text = urllib.request.urlopen(f"http://{http[1]}/metrics", timeout=20).read().decode()
        self.assertEqual(re.findall(r'embd_local_connections\{shard="\d"\} (\d)', text), ["1"] * 3)

    def test_what_EMBD_TRANSPORT_may_be(self):
        server = self.start("--local-socket", "off")
        self.assertFalse(os.path.exists(data_socket(server)))
        self.assertEqual(ways(self.connect(server)), [False])
        with self.assertRaisesRegex(embd.Error, "EMBD_TRANSPORT is local: .* no data socket"):
            self.connect(server, "local")
        with self.assertRaisesRegex(embd.Error, "EMBD_TRANSPORT: 'pigeon'; expected auto, tcp or local"):
            self.connect(server, "pigeon")

    def test_a_directory_whose_path_has_room_for_the_admin_socket_alone_will_do(self):
        port = free_ports(1)
        sockets = os.path.join(self.dir, "d" * (107 - len(f"{self.dir}//{port}.sock")))
        server = self.start("--admin-dir", sockets, listen=f"127.0.0.1:{port}")
        self.assertRegex(server.log(), f"warn no_local_socket .*/{port}.data.sock has 112 bytes, the limit is 107")
        self.assertEqual((os.listdir(sockets), ways(self.connect(server))), ([f"{port}.sock"], [False]))
        with self.assertRaisesRegex(NotReady, "data.sock has .* bytes, the limit is 107"):
            self.start("--local-socket", sockets)

    def test_a_client_goes_on_when_the_server_comes_back(self):
        port = free_ports(1)
        options = {"listen": f"127.0.0.1:{port}"}
        flags = ("--local-socket", f"{self.dir}/sockets", "--data-dir", f"{self.dir}/data")
        path = f"{self.dir}/sockets/{port}.data.sock"
        os.mkdir(f"{self.dir}/data")
        server = self.start(*flags, **options)
        client = self.connect(server, "local")
        table = client.create_table("t", dim=2, optimizer=embd.Optimizer("sgd", lr=1.0), durability="durable",
                                    initializer=embd.Initializer("constant", 0.0))
        for n, how in enumerate((signal.SIGKILL, signal.SIGTERM)):
            table.push([7], [[1.0, 2.0]])
            server.process.send_signal(how)
            server.wait()
            self.assertEqual(os.path.exists(path), how == signal.SIGKILL, "a server that was killed leaves its socket")
            server = self.start(*flags, **options)
            self.assertEqual(table.pull([7]).tolist(), [[-1.0 - n, -2.0 - 2 * n]])
            self.assertEqual(ways(client), [True])

    def test_the_socket_of_a_living_server_stays(self):
        port = free_ports(1)
        sockets = ("--local-socket", f"{self.dir}/sockets")
        server = self.start(*sockets, listen=f"127.0.0.1:{port}")
        with self.assertRaisesRegex(NotReady, f"cannot listen on {self.dir}/sockets/{port}.data.sock"):
            self.start(*sockets, listen=f"127.0.0.2:{port}")
        self.assertEqual(ways(self.connect(server, "local")), [True])


class LetIn(LocalCase):
    def test_files_are_the_users_alone_or_the_groups(self):
        group = grp.getgrgid(os.getgid()).gr_name
        server = self.start()
        self.assertEqual(os.stat(data_socket(server)).st_mode & 0o777, 0o600)
        with contextlib.chdir(self.dir):
            server = self.start("--local-socket", "sockets", "--local-group", group)
        self.assertEqual(ways(self.connect(server, "local")), [True])
        found = os.stat(f"{self.dir}/sockets/{server.port()}.data.sock")
        self.assertEqual((found.st_mode & 0o777, found.st_gid), (0o660, os.getgid()))
        self.assertEqual(os.stat(f"{self.dir}/sockets").st_mode & 0o777, 0o750)
        with self.assertRaisesRegex(NotReady, "no group 'nobodies-at-all'"):
            self.start("--local-group", "nobodies-at-all")

    @unittest.skipIf(os.geteuid() != 0, "needs two users")
    def test_another_user_keeps_to_tcp_unless_in_the_group(self):
        group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, NOBODY))
        server = self.start()
        joined = self.start("--local-socket", f"{self.dir}/sockets", "--local-group", group.gr_name)
        with as_other_user():
            self.assertEqual(ways(self.connect(server)), [False])
            with self.assertRaisesRegex(embd.Error, "EMBD_TRANSPORT is local: .*Permission denied"):
                self.connect(server, "local")
            self.assertEqual(ways(self.connect(joined)), [False])
        with as_other_user(group.gr_gid):
            self.assertEqual(ways(self.connect(joined, "local")), [True])

    def test_tokens_and_roles_hold(self):
        tokens = Tokens(self.dir)
        secret = {role: tokens.add(role, role, "*") for role in ("reader", "trainer")}
        server = self.start("--tokens", tokens.path)
        table = self.connect(server, "local", token=secret["trainer"]).create_table("t", dim=2)
        table.push([1], [[1.0, 1.0]])
        reader = self.connect(server, "local", token=secret["reader"])
        self.assertEqual(ways(reader), [True])
        with self.assertRaises(embd.Error) as caught:
            reader.table("t").push([1], [[1.0, 1.0]])
        self.assertEqual(caught.exception.status, embd.Status.DENIED)
        with wire.Wire(data_socket(server)) as peer, self.assertRaisesRegex(wire.RpcError, "^20: .*token"):
            peer.call("ping", {})
        with wire.Wire(data_socket(server)) as peer, self.assertRaisesRegex(wire.RpcError, "^4: "):
            peer.call("hello", {"protocol": 1, "token": secret["trainer"]})
            peer.call("drain", {})

    def test_a_server_with_tls_is_found_by_tls_and_spoken_to_in_the_clear(self):
        ca = Authority(self.dir, "ca")
        cert, key = ca.issue("server")
        server = self.start("--tls-cert", cert, "--tls-key", key)
        client = self.connect(server, "local", tls_ca=ca.path)
        self.assertEqual(ways(client), [True])
        self.assertEqual(self.train(client), self.train(self.connect(server, "tcp", tls_ca=ca.path), "u"))

    def test_connections_of_both_ways_count_together(self):
        server = self.start("--max-connections", "2")
        with wire.connect(server) as tcp, wire.Wire(data_socket(server)) as local:
            tcp.call("ping", {})
            local.call("ping", {})
            for address in (("127.0.0.1", server.port()), data_socket(server)):
                with wire.Wire(address) as third:
                    self.assertIn("max_connections", str(third.receive()))


class Impostors(LocalCase):
    """What hello names is another host's, another program's, or closes: a client keeps to TCP."""

    def through(self, place, **options):
        server = self.start("--advertise", "127.0.0.2", **options)
        doorman = Doorman(("127.0.0.2", server.port()), ("127.0.0.1", server.port()), place)
        self.addCleanup(doorman.listener.close)
        return f"127.0.0.2:{server.port()}"

    def keeps_to_tcp(self, place, why, **options):
        address = self.through(place)
        client = self.connect(address, **options)
        self.assertEqual(ways(client), [False])
        self.assertEqual([shard.connections for shard in client.figures()], [1])
        self.train(client)
        with self.assertRaisesRegex(embd.Error, why):
            self.connect(address, "local", **options)

    def closed(self, name="1.data.sock", owner=-1):
        closed = Closed(os.path.join(self.dir, name), owner)
        self.addCleanup(closed.listener.close)
        return closed

    def test_the_doorman_lets_the_servers_own_through(self):
        self.assertEqual(ways(self.connect(self.through(lambda place: {}), "local")), [True])

    def test_of_another_host(self):
        self.keeps_to_tcp(lambda place: {"host": place["host"][::-1]}, "another host")

    def test_another_file(self):
        self.keeps_to_tcp(lambda place: {"inode": place["inode"] + 1}, "another socket")
        self.keeps_to_tcp(lambda place: {"path": f"{self.dir}/1.data.sock"}, "No such file")

    def test_of_another_program(self):
        closed = self.closed("docker.sock")
        self.keeps_to_tcp(closed.place, "no data socket")
        self.assertEqual(closed.heard, [])

    def test_one_that_closes(self):
        closed = self.closed()
        self.keeps_to_tcp(closed.place, "closed")
        self.assertTrue(all(heard.startswith(b"\x94\x00") for heard in closed.heard))

    @unittest.skipIf(os.geteuid() != 0, "needs two users")
    def test_a_token_goes_to_no_other_user(self):
        closed = self.closed(owner=NOBODY)
        self.keeps_to_tcp(closed.place, "another user", token="x" * 40)
        self.assertEqual(set(closed.heard), {b""})


if __name__ == "__main__":
    clusters.main()
