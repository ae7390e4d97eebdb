"""One connection for all shards of a process, plain or through TLS: streams are as connections are, none stops another's,
what a peer may not send ends its trunk alone, and every end leaves nothing."""
import functools
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import tempfile
import time
import unittest

import embd_process
import wire
from certificates import Authority
from certificates import Tokens as TokenList
from test_tls import TlsWire

OPEN, DATA, END, CLOSE, CREDIT = 1, 2, 3, 4, 5
DRAINING, DENIED = 12, 20
SLOTS, WINDOW, DATA_MOST = 1024, 256 << 10, 64 << 10
SHARDS = 4


def chunk(kind, stream, value=0, data=b""):
    return struct.pack("<III", kind, stream, value) + data


@functools.cache
def folder():
    made = tempfile.mkdtemp(prefix="embd-test-")
    unittest.addModuleCleanup(shutil.rmtree, made)
    return made


class PlainWay:
    """How peers reach the server."""
    flags = ()
    offer, other_offer = "trunk", "trunk_tls"
    connect = staticmethod(wire.connect)


class TlsWay:
    """With certificates of both sides."""
    offer, other_offer = "trunk_tls", "trunk"

    def __init__(self):
        self.authority = Authority(folder(), "ca")
        cert, key = self.authority.issue("server")
        self.client = self.authority.issue("client")
        self.flags = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", self.authority.path)

    def connect(self, server, shard=0):
        return TlsWire(server, self.authority, cert=self.client, port=server.port(shard))


PLAIN = PlainWay()
tls = functools.cache(TlsWay)


class Trunk:
    """A connection behind `trunk`. Streams are read as they come; what is sent on them goes at once."""

    def __init__(self, server, shard=0, way=PLAIN, **shown):
        self.peer = way.connect(server, shard)
        self.hello = self.peer.call("hello", {"protocol": 1, **shown})[0]
        self.peer.call("trunk", {})
        self.socket = self.peer.socket
        self.streams = {}
        self.received = b""
        self.has_ended = False

    def send(self, data):
        self.socket.sendall(data)

    def open(self, number, shard):
        self.streams[number] = Stream(self, number)
        self.send(chunk(OPEN, number, shard))
        return self.streams[number]

    def step(self):
        """Takes what has come; False at the end."""
        data = self.socket.recv(1 << 20)
        self.received += data
        at = 0
        while len(self.received) - at >= 12:
            kind, number, value = struct.unpack_from("<III", self.received, at)
            end = at + 12 + (value if kind == DATA else 0)
            if len(self.received) < end:
                break
            self.streams[number].take(kind, value, self.received[at + 12:end])
            at = end
        self.received = self.received[at:]
        self.has_ended |= not data
        return not self.has_ended

    def wait(self, until):
        while not until():
            assert self.step(), "the trunk ended"

    def end(self):
        socket.socket.shutdown(self.socket, socket.SHUT_WR)  # TLS goes on the other way

    def close(self):
        self.peer.close()


class Stream(wire.Wire):  # pylint: disable=super-init-not-called
    def __init__(self, trunk, number):
        self.trunk, self.number = trunk, number
        self.unpacker = wire.msgpack.Unpacker(raw=False, max_bin_len=1 << 30, max_buffer_size=1 << 30)
        self.msgid, self.credit, self.ends = 0, WINDOW, []

    def take(self, kind, value, data):
        assert kind in (DATA, END, CLOSE, CREDIT), kind
        if kind == DATA:
            self.unpacker.feed(data)
        elif kind == CREDIT:
            self.credit += value
        else:
            self.ends.append(kind)

    def send(self, data):
        for at in range(0, len(data), DATA_MOST):
            piece = data[at:at + DATA_MOST]
            self.trunk.send(chunk(DATA, self.number, len(piece), piece))
            self.credit -= len(piece)

    def receive(self):
        while True:
            for message in self.unpacker:
                return message
            if self.ends:
                return None
            assert self.trunk.step(), "the trunk ended"


class Base(unittest.TestCase):
    flags = ("--http", "off")

    def setUp(self):
        self.way = self.make_way()
        self.server = embd_process.Embd(*self.flags, *self.way.flags, shards=SHARDS)
        self.addCleanup(self.server.stop)

    def make_way(self):
        return PLAIN

    def trunk(self, shard=0, **shown):
        trunk = Trunk(self.server, shard, self.way, **shown)
        self.addCleanup(trunk.close)
        return trunk

    def connect(self, shard=0):
        return self.way.connect(self.server, shard)

    def connections(self, shard=0):
        with self.connect(shard) as peer:
            return peer.call("stats", {})[0]["stats"]["connections"] - 1

    def wait_for_connections(self, n, shard=0):
        end = time.monotonic() + 20
        while self.connections(shard) != n:
            self.assertLess(time.monotonic(), end, f"{self.connections(shard)} connections, expected {n}")
            time.sleep(0.01)


class Streams(Base):
    def test_hello_names_the_process(self):
        told = []
        for shard in range(SHARDS):
            with self.connect(shard) as peer:
                hello = peer.call("hello", {"protocol": 1})[0]
                self.assertNotIn(self.way.other_offer, hello)
                told.append(hello[self.way.offer])
        self.assertEqual(told, [told[0]] * SHARDS)
        self.assertEqual(told[0]["shards"], SHARDS)

    def test_each_stream_is_a_connection_to_its_shard(self):
        trunk = self.trunk(shard=2)
        streams = [trunk.open(number, number) for number in range(SHARDS)]
        for shard, stream in enumerate(streams):
            hello = stream.call("hello", {"protocol": 1})[0]
            self.assertEqual(hello["shard"], shard)
            for field in "trunk", "trunk_tls", "share":
                self.assertNotIn(field, hello)
        tables = [wire.create(stream, "t", 4, value=1.0) for stream in streams]
        own = [wire.owned(50, shard, SHARDS) for shard in range(SHARDS)]
        for stream, table, keys in zip(streams, tables, own):
            wire.push(stream, table, keys, [2.0] * 4 * len(keys))
        begun = [stream.begin("pull", {"parts": [{"table": table, "keys": 50}]}, wire.keys(keys))
                 for stream, table, keys in zip(streams, tables, own)]
        for stream, msgid in zip(reversed(streams), reversed(begun)):
            kind, answered, error, result = stream.receive()
            self.assertEqual((kind, answered, error), (1, msgid, None))
            self.assertEqual(wire.unfloats(result[1]), [0.0] * 200)
        with self.connect(1) as peer:  # the same rows by a connection
            self.assertEqual(wire.pull(peer, tables[1], own[1]), [0.0] * 200)

    def test_bytes_may_come_one_by_one_and_streams_mixed(self):
        trunk = self.trunk()
        streams = [trunk.open(number, number) for number in (3, 0)]
        request = [wire.request(9, "ping", {}), wire.request(8, "ping", {})]
        for at in range(max(map(len, request))):
            for stream, data in zip(streams, request):
                for byte in chunk(DATA, stream.number, 1, data[at:at + 1]) if at < len(data) else b"":
                    trunk.send(bytes([byte]))
        self.assertEqual([stream.receive()[:3] for stream in streams], [[1, 9, None], [1, 8, None]])

    def test_a_side_that_ends_gets_its_answers(self):
        trunk = self.trunk()
        stream = trunk.open(0, 1)
        for _ in range(10):
            stream.begin("ping", {})
        trunk.send(chunk(END, 0))
        self.assertEqual([stream.receive()[1] for _ in range(10)], list(range(1, 11)))
        trunk.wait(lambda: stream.ends)
        trunk.send(chunk(CLOSE, 0))
        self.wait_for_connections(0, 1)
        again = trunk.open(0x10000, 1)  # the slot again
        self.assertEqual(again.call("ping", {}), [{}])

    def test_a_trunk_that_ends_gets_its_answers(self):
        trunk = self.trunk()
        streams = [trunk.open(number, number) for number in range(SHARDS)]
        begun = [stream.begin("ping", {}) for stream in streams]
        trunk.end()
        self.assertEqual([stream.receive()[1] for stream in streams], begun)
        while trunk.step():
            pass
        self.wait_for_connections(0, 1)

    def test_a_peer_that_is_gone_leaves_nothing(self):
        for _ in range(3):
            trunk = self.trunk()
            for number in range(SHARDS):
                trunk.open(number, number).begin("ping", {})
            self.wait_for_connections(1, 3)
            trunk.close()
            self.wait_for_connections(0, 3)

    def test_the_server_ends_in_order(self):
        trunk = self.trunk()
        stream = trunk.open(0, 1)
        stream.call("ping", {})
        named = trunk.open(1, 1)
        named.call("hello", {"protocol": 1, "client_id": 77})
        self.server.terminate()
        self.assertIsNone(stream.receive())
        self.assertEqual(named.receive(), [2, "error", [DRAINING, "the server shuts down"]])
        self.assertIsNone(named.receive())
        trunk.send(chunk(CLOSE, 0) + chunk(CLOSE, 1))
        while trunk.step():
            pass
        self.assertEqual(self.server.wait(), 0)

    def test_no_shard_stops_the_others(self):
        """One is held: it takes requests up to its limits, and its stream is held then, whose credit runs out."""
        trunk = self.trunk()
        held, other = trunk.open(0, 0), trunk.open(1, 1)
        table = wire.create(held, "t", 64)
        with wire.Wire(self.server.admin_path(0)) as admin:
            admin.call("hold", {"timeout_ms": 30000})
            keys = wire.owned(256, 0, SHARDS)
            push = wire.request(7, "push", {"parts": [{"table": table, "keys": 256}]}, wire.keys(keys),
                                wire.floats([0.0] * 64 * 256))
            sent = 0
            while len(push) <= held.credit:  # as far as it may go
                held.send(push)
                sent += len(push)
                for _ in range(3):
                    self.assertEqual(other.call("ping", {}), [{}])
            self.assertGreater(sent, 3 * len(push))
            admin.call("release", {})
        for _ in range(sent // len(push)):
            self.assertEqual(held.receive()[1:3], [7, None])
        self.assertEqual(held.call("ping", {}), [{}])

    def test_long_answers_and_requests(self):
        trunk = self.trunk()
        stream = trunk.open(5, 2)
        table = wire.create(stream, "t", 64)
        keys = wire.owned(30000, 2, SHARDS)
        request = wire.request(3, "push", {"parts": [{"table": table, "keys": 30000}]}, wire.keys(keys),
                               wire.floats([1.0] * 64 * 30000))
        sent = 0
        while sent < len(request):  # 8 MB by a window of 256 KiB
            most = min(DATA_MOST, stream.credit, len(request) - sent)
            if most == 0:
                self.assertTrue(trunk.step())
                continue
            stream.send(request[sent:sent + most])
            sent += most
        self.assertEqual(stream.receive()[1:3], [3, None])
        self.assertEqual(wire.pull(stream, table, keys), [0.5] * 64 * 30000)

    def test_a_peer_that_does_not_read_delays_no_other(self):
        trunk, idle = self.trunk(), self.trunk(1)
        streams = [idle.open(number, 1) for number in range(8)]
        table = wire.create(streams[0], "t", 64)
        keys = wire.keys(wire.owned(20000, 1, SHARDS))
        for stream in streams:
            stream.begin("pull", {"parts": [{"table": table, "keys": 20000}]}, keys)
        stream = trunk.open(0, 1)
        for _ in range(50):
            self.assertEqual(stream.call("ping", {}), [{}])
        for stream in streams:
            self.assertEqual(len(stream.receive()[3][1]), 20000 * 256)


class StreamsByTls(Streams):
    def make_way(self):
        return tls()

    def test_an_end_is_said(self):
        """A server that has ended its side of TLS cannot be cut short by others unseen."""
        trunk = self.trunk()
        self.assertEqual(trunk.open(0, 1).call("ping", {}), [{}])
        trunk.socket.suppress_ragged_eofs = False
        trunk.end()
        while trunk.step():
            pass


class Hostile(Base):
    rounds = 400

    def ends(self, data, opens=0):
        """The trunk ends; all else goes on."""
        trunk = self.trunk()
        if opens:
            trunk.open(0, 1).call("ping", {})
        trunk.send(data)
        try:
            while trunk.step():
                pass
        except (ConnectionResetError, ssl.SSLError):
            pass
        self.wait_for_connections(0, 1)
        with self.connect(1) as peer:
            peer.call("ping", {})

    def test_chunks_that_may_not_come(self):
        for data in (chunk(0, 0), chunk(6, 0), chunk(CREDIT, 0, 5), chunk(DATA, 0, 0), chunk(DATA, 0, DATA_MOST + 1),
                     chunk(OPEN, SLOTS, 0), chunk(OPEN, 1, SLOTS), chunk(END, 0, 1), chunk(CLOSE, 0, 1), b"\xff" * 12):
            with self.subTest(data=data):
                self.ends(data)

    def test_streams_that_may_not_be(self):
        for data in (chunk(OPEN, 0, 1), chunk(OPEN, 0x10000, 1), chunk(END, 0) + chunk(DATA, 0, 1, b"x"),
                     chunk(END, 0) * 2):
            with self.subTest(data=data):
                self.ends(data, opens=1)

    def test_more_than_the_window(self):
        trunk = self.trunk()
        stream = trunk.open(0, 0)
        table = wire.create(stream, "t", 64)
        with wire.Wire(self.server.admin_path(0)) as admin:
            admin.call("hold", {"timeout_ms": 30000})
            keys = wire.owned(256, 0, SHARDS)
            push = wire.request(7, "push", {"parts": [{"table": table, "keys": 256}]}, wire.keys(keys),
                                wire.floats([0.0] * 64 * 256))
            with self.assertRaises((ConnectionError, AssertionError, ssl.SSLError)):
                for _ in range(1000):
                    stream.send(push)
                trunk.wait(lambda: False)
            admin.call("release", {})
        self.assertIn("more on a stream than its window", self.server.log())

    def test_streams_that_are_not_there(self):
        trunk = self.trunk()
        other = trunk.open(1, 1)
        trunk.send(chunk(DATA, 0, 3, b"abc") + chunk(END, 7) + chunk(CLOSE, 0x50000))
        self.assertEqual(other.call("ping", {}), [{}])
        refused = trunk.open(9, 900)  # no shard of this process
        trunk.wait(lambda: refused.ends)
        self.assertEqual(refused.ends, [CLOSE])

    def test_frames_of_a_stream_end_that_stream_alone(self):
        trunk = self.trunk()
        bad, good = trunk.open(0, 1), trunk.open(1, 1)
        bad.send(b"\xc1" * 100)
        while bad.receive() is not None:
            pass
        trunk.send(chunk(CLOSE, 0))
        self.assertEqual(good.call("ping", {}), [{}])

    def test_random_bytes(self):
        source = random.Random(4711)
        for _ in range(self.rounds):
            data = b""
            for _ in range(source.randrange(1, 40)):
                kind, stream = source.choice((OPEN, DATA, END, CLOSE)), source.choice((0, 1, 2, 0x10001))
                value = source.randrange(1, 50) if kind == DATA else source.randrange(SHARDS) if kind == OPEN else 0
                data += chunk(kind, stream, value, source.randbytes(value) if kind == DATA else b"")
            cut = source.randrange(len(data) + 1)
            trunk = self.trunk()
            try:
                trunk.send(data[:cut] + (source.randbytes(20) if source.random() < 0.5 else b""))
            except (ConnectionError, ssl.SSLError):
                pass
            trunk.close()
        for shard in range(SHARDS):
            self.wait_for_connections(0, shard)

    def test_what_cannot_become_a_trunk(self):
        with self.connect() as peer:
            peer.send(wire.request(1, "ping", {}) + wire.request(2, "trunk", {}) + wire.request(3, "ping", {}))
            self.assertEqual(peer.receive()[1:3], [1, None])
            self.assertIn(peer.receive()[1], (2, 3))
        trunk = self.trunk()
        stream = trunk.open(0, 0)
        with self.assertRaises(wire.RpcError) as caught:
            stream.call("trunk", {})
        self.assertEqual(caught.exception.number, wire.UNSUPPORTED)


class HostileByTls(Hostile):
    rounds = 30  # each shakes hands

    def make_way(self):
        return tls()

    def test_what_is_no_tls(self):
        """In place of a record, and within the first chunk."""
        source = random.Random(815)
        for data in b"", chunk(OPEN, 0, 1), chunk(OPEN, 0, 1)[:7]:
            trunk = self.trunk()
            trunk.send(data)
            socket.socket.sendall(trunk.socket, source.randbytes(4000))
            with self.assertRaises((ConnectionError, ssl.SSLError)):
                while trunk.step():
                    pass
                raise ConnectionError("ended")
            self.wait_for_connections(0, 1)
        self.server.wait_log('why="TLS: ')

    def test_a_peer_cut_off_leaves_nothing(self):
        trunk = self.trunk()
        trunk.open(0, 1).call("ping", {})
        socket.socket.shutdown(trunk.socket, socket.SHUT_RDWR)
        self.wait_for_connections(0, 1)


class Tokens(Base):
    def setUp(self):
        made = tempfile.mkdtemp(prefix="embd-test-")
        self.addCleanup(shutil.rmtree, made)
        self.tokens = TokenList(made)
        self.secret = self.tokens.add("nightly", "trainer")
        self.flags = ("--http", "off", "--tokens", self.tokens.path)
        super().setUp()

    def test_a_trunk_gives_its_streams_no_rights(self):
        with self.connect() as peer, self.assertRaises(wire.RpcError) as caught:
            peer.call("trunk", {})
        self.assertEqual(caught.exception.number, DENIED)
        trunk = self.trunk(token=self.secret)
        with_token, without = trunk.open(0, 1), trunk.open(1, 1)
        self.assertEqual(with_token.call("hello", {"protocol": 1, "token": self.secret})[0]["shard"], 1)
        wire.create(with_token, "t", 4)
        with self.assertRaises(wire.RpcError) as caught:
            without.call("tables", {})
        self.assertEqual(caught.exception.number, DENIED)

    def test_streams_end_with_their_token_and_no_other_does(self):
        trunk, reader = self.trunk(token=self.secret), self.tokens.add("evening", "reader")
        os.kill(self.server.pid, signal.SIGHUP)
        gone, stays = trunk.open(0, 1), trunk.open(1, 2)
        gone.call("hello", {"protocol": 1, "token": self.secret})
        end = time.monotonic() + 60
        while self.is_refused(trunk, reader):  # until the list is read
            self.assertLess(time.monotonic(), end)
        stays.call("hello", {"protocol": 1, "token": reader})
        self.tokens.remove("nightly")
        os.kill(self.server.pid, signal.SIGHUP)
        self.assertIsNone(gone.receive())
        self.assertEqual(stays.call("ping", {}), [{}])
        with self.assertRaises(wire.RpcError) as caught:
            wire.create(stays, "t", 4)
        self.assertEqual(caught.exception.number, DENIED)
        self.assertTrue(self.is_refused(trunk, self.secret))

    def is_refused(self, trunk, secret):
        number = max(trunk.streams) + 1
        try:
            trunk.open(number, 3).call("hello", {"protocol": 1, "token": secret})
        except wire.RpcError as error:
            self.assertEqual(error.number, DENIED)
            return True
        return False


class TokensByTls(Tokens):
    def make_way(self):
        return tls()


class Stalled(Base):
    flags = ("--http", "off", "--stall-timeout", "1")

    def test_a_peer_that_reads_nothing_is_dropped_also_one_that_ends_its_side(self):
        """One that only ends its side is not."""
        self.drop(ends=True)

    def test_a_peer_that_reads_nothing_and_ends_nothing_is_dropped(self):
        self.drop(ends=False)

    def drop(self, ends):
        trunk, other = self.trunk(), self.trunk()
        streams = [trunk.open(number, 1) for number in range(8)]
        table = wire.create(streams[0], "t", 64)
        keys = wire.keys(wire.owned(20000, 1, SHARDS))
        for stream in streams:  # 40 MB of answers
            stream.begin("pull", {"parts": [{"table": table, "keys": 20000}]}, keys)
        begun = other.open(0, 1).begin("ping", {})
        if ends:
            trunk.end()
        other.end()
        self.server.wait_log("does not read its answers (stall_timeout)\" streams=", 120)
        self.assertEqual(self.server.log().count("trunk_dropped"), 1)
        self.assertEqual(other.streams[0].receive()[1], begun)
        while other.step():
            pass
        self.wait_for_connections(0, 1)


class StalledByTls(Stalled):
    def make_way(self):
        return tls()


class Limits(Base):
    flags = ("--http", "off", "--max-connections", "6")

    def test_streams_count_as_connections(self):
        trunk = self.trunk()
        for number in range(6):
            self.assertEqual(trunk.open(number, 1).call("ping", {}), [{}])
        kind, method, params = trunk.open(6, 1).receive()
        self.assertEqual((kind, method, params[0]), (2, "error", wire.BUSY))
        self.assertEqual(trunk.open(7, 2).call("ping", {}), [{}])


if __name__ == "__main__":
    unittest.main()
