"""Large pulls of a GPU, emulated, are sent while the device makes them. A file says when it has made the next piece, or that it
fails: tests/cuda/stand_in_device.c. Every answer is, byte for byte, that of a server on the host store, whatever comes before,
behind and in the midst of it: pushes, drops, cuts of the connection, a failure, a peer that reads slowly."""
import os
import select
import shutil
import socket
import struct
import tempfile
import time
import unittest

from certificates import Authority
from embd_process import BIN, Embd
from test_shared import Peer, RingPeer, data_socket
from test_tls import TlsWire
from test_trunk import Trunk
import wire

EMULATED = os.path.join(os.path.dirname(BIN), "embd-cuda-emulated")
DIM, KEYS, MSGID = 64, 11264, 99
ROWS = KEYS * DIM * 4  # bytes
PIECES = [512 << 10, 1536 << 10, ROWS]  # where they end
MANY = 60  # pieces of all answers of a test, or more
TURNS = 20


class Bytes:
    """In the place of an unpacker: bytes as they come, and a message when there are as many as wanted."""

    def __init__(self):
        self.data, self.wanted = b"", 0

    def feed(self, data):
        self.data += data

    def __iter__(self):
        return iter([True] if len(self.data) >= self.wanted else [])


def key_list(n=KEYS, first=0):
    return [(first + i) * 0x9e3779b97f4a7c15 % 2**64 for i in range(n)]


def table_schema(name, dim=DIM, **others):
    return {"name": name, "dim": dim, "combiner": "concat", "optimizer": {"kind": "adagrad", "lr": 0.5}, "seed": 5,
            "durability": "snapshot", **others}


def pull_of(table, n=KEYS, **fields):
    return ("pull", {"parts": [{"table": table, "keys": n, **fields}]}, wire.keys(key_list(n)))


def push_of(table, n=KEYS, dim=DIM):
    return ("push", {"parts": [{"table": table, "keys": n}]}, wire.keys(key_list(n)),
            wire.floats((i * 7919 % 127 - 63) / 64 for i in range(n * dim)))


def drain(peer):
    """What has come, of a plain socket."""
    while select.select([peer.socket], [], [], 0)[0]:
        data = peer.socket.recv(1 << 20)
        if not data:
            return
        peer.unpacker.feed(data)


class Base(unittest.TestCase):
    flags = ("--http", "off", "--log-level", "debug")

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="embd-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.steps = os.path.join(self.folder, "steps")
        self.make("")
        self.host = Embd("--http", "off")
        self.addCleanup(self.host.stop)
        os.environ["EMBD_STAND_IN_STEPS"] = self.steps
        try:
            self.server = Embd(*self.flags, *self.more_flags(), "--store", "cuda", program=EMULATED, ready_s=60)
        finally:
            del os.environ["EMBD_STAND_IN_STEPS"]
        self.addCleanup(lambda: self.assertEqual(self.server.stop(), 0))
        self.addCleanup(self.make, "." * MANY)  # before the server ends
        self.both = [self.connect_to_host(), self.other()]
        self.table = self.create(table_schema("rows"))
        self.on_both(push_of(self.table, KEYS // 2))

    def more_flags(self):
        return ()

    def connect_to_host(self):
        peer = wire.connect(self.host, timeout=30)
        self.addCleanup(peer.close)
        return peer

    def other(self):
        """A connection that is served between the pieces."""
        peer = wire.Wire(data_socket(self.server), timeout=30)
        self.addCleanup(peer.close)
        return peer

    def make(self, pieces):
        """The device makes so many more; a `!` is a failure."""
        with open(self.steps, "a", encoding="ascii") as steps:
            steps.write(pieces)

    def create(self, schema):
        ids = [peer.call("table_create", {"schema": schema})[0]["id"] for peer in self.both]
        self.assertEqual(*ids)
        return ids[0]

    def on_both(self, call):
        answers = [peer.call(*call) for peer in self.both]
        self.assertEqual(*answers)

    def expected(self, call):
        """All bytes of the host's answer."""
        peer = self.connect_to_host()
        peer.unpacker = Bytes()
        peer.send(wire.request(MSGID, *call))
        whole = wire.msgpack.Unpacker(raw=False, max_bin_len=1 << 30, max_buffer_size=1 << 30)
        at = 0
        while True:
            peer.unpacker.wanted = at + 1
            self.assertTrue(peer.receive())
            whole.feed(peer.unpacker.data[at:])
            at = len(peer.unpacker.data)
            for message in whole:
                self.assertEqual(message[1:3], [MSGID, None])
                return peer.unpacker.data

    def n_pulls(self):
        return self.both[1].call("stats", {})[0]["stats"]["requests_pull"]

    def begin(self, peer, call):
        """Its answer comes as bytes. On return the device has been asked."""
        before, end = self.n_pulls(), time.monotonic() + 60
        peer.unpacker = Bytes()
        peer.send(wire.request(MSGID, *call))
        while self.n_pulls() == before:
            self.assertLess(time.monotonic(), end, "the pull was not handled")

    def read(self, peer, upto, expected):
        peer.unpacker.wanted = upto
        self.assertTrue(peer.receive())
        self.assertEqual(peer.unpacker.data[:upto], expected[:upto])

    def ping(self):
        """So many turns of the shard's loop that all is done which does not wait for the device."""
        for _ in range(TURNS):
            self.both[1].call("ping", {})

    def check_goes_on(self):
        """The server has all it had, and gives what it gave."""
        self.make("." * MANY)
        self.ping()
        call, peer = pull_of(self.table), self.other()
        expected = self.expected(call)
        self.begin(peer, call)
        self.read(peer, len(expected), expected)


class Ways(Base):
    """By TCP; the ways below do the same."""

    def peer(self):
        return wire.connect(self.server, timeout=30)

    def cut(self, peer):
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    def has_more(self, peer):
        return len(peer.unpacker.data) > peer.unpacker.wanted or bool(select.select([peer.socket], [], [], 0)[0])

    def listen(self, peer):
        """It gets bytes from now on."""

    def test_each_piece_goes_out_as_it_is_made(self):
        call, peer = pull_of(self.table), self.peer()
        self.addCleanup(peer.close)
        expected = self.expected(call)
        head = len(expected) - ROWS
        self.begin(peer, call)
        self.listen(peer)
        self.ping()
        self.assertFalse(self.has_more(peer))
        for end in PIECES:
            self.make(".")
            self.read(peer, head + end, expected)
            self.ping()
            self.assertFalse(self.has_more(peer), f"behind {head + end} of {len(expected)} bytes")
        self.assertEqual(peer.unpacker.data, expected)

    def stands_still(self):
        """Whether the shard waits for the device: a connection is being closed."""
        peer = wire.Wire(data_socket(self.server), timeout=1)
        self.addCleanup(peer.close)
        try:
            peer.call("ping", {})
        except TimeoutError:
            return True
        return False

    def test_a_connection_that_ends_in_the_midst_leaves_nothing(self):
        call, peer = pull_of(self.table), self.peer()
        expected = self.expected(call)
        self.begin(peer, call)
        self.listen(peer)
        self.make(".")
        self.read(peer, PIECES[0], expected)
        self.cut(peer)
        self.make(".")  # where the end is seen when more is sent
        end = time.monotonic() + 30
        while not self.stands_still():
            self.assertLess(time.monotonic(), end, "the connection is not closed")
        self.check_goes_on()

    def test_a_device_that_fails_in_the_midst_ends_the_connection(self):
        call, peer = pull_of(self.table), self.peer()
        self.addCleanup(peer.close)
        expected = self.expected(call)
        begun = len(expected) - ROWS + PIECES[0]
        self.begin(peer, call)
        self.listen(peer)
        self.make(".")
        self.read(peer, begun, expected)
        self.make("!")
        peer.unpacker.wanted = begun + 1
        try:
            self.assertIsNone(peer.receive())
        except (OSError, EOFError):  # by TLS, too: nobody has said an end
            pass
        self.assertEqual(peer.unpacker.data, expected[:begun])
        self.server.wait_log("answer_cut")
        self.server.wait_log("a request ended without an answer")
        with self.assertRaisesRegex(wire.RpcError, "device failed"):
            self.both[1].call(*call)
        self.ping()


class WaysBySocket(Ways):
    def peer(self):
        return wire.Wire(data_socket(self.server), timeout=30)

    def cut(self, peer):
        peer.close()


class WaysByTls(Ways):
    def more_flags(self):
        self.authority = Authority(self.folder, "ca")
        cert, key = self.authority.issue("server")
        return ("--tls-cert", cert, "--tls-key", key)

    def peer(self):
        peer = TlsWire(self.server, self.authority)
        peer.socket.settimeout(30)
        return peer

    def has_more(self, peer):
        return len(peer.unpacker.data) > peer.unpacker.wanted or peer.socket.pending() > 0


class WaysByRings(Ways):
    def peer(self):
        return RingPeer(self.server, answers=256 << 10, requests=256 << 10).turn()

    def listen(self, peer):
        peer.rings.unpacker = peer.unpacker

    def cut(self, peer):
        peer.close()

    def has_more(self, peer):
        return len(peer.unpacker.data) > peer.unpacker.wanted or peer.rings.words[16] != peer.rings.words[24]


class WaysByTrunk(Ways):
    def peer(self):
        stream = Trunk(self.server).open(1, 0)
        stream.trunk.socket.settimeout(30)
        stream.socket, stream.close = stream.trunk.socket, stream.trunk.close
        return stream

    def cut(self, peer):
        peer.trunk.close()


class Between(Base):
    """What comes while an answer is half made."""

    def setUp(self):
        super().setUp()
        self.peer = wire.connect(self.server, timeout=30)
        self.addCleanup(self.peer.close)

    def half_made(self, call):
        """The expected bytes; the first piece has come."""
        expected = self.expected(call)
        self.begin(self.peer, call)
        self.make(".")
        self.read(self.peer, PIECES[0], expected)
        return expected

    def test_pushes_behind_it_show_nothing_in_it(self):
        expected = self.half_made(pull_of(self.table))
        pusher, puller = self.other(), self.other()
        pushed = pusher.begin(*push_of(self.table))
        self.begin(puller, pull_of(self.table))
        self.ping()
        self.assertEqual(select.select([pusher.socket, puller.socket, self.peer.socket], [], [], 0)[0], [])
        self.make("." * MANY)
        self.read(self.peer, len(expected), expected)
        self.assertEqual(pusher.receive()[1:3], [pushed, None])
        self.both[0].call(*push_of(self.table))
        after = self.expected(pull_of(self.table))
        self.assertNotEqual(after, expected)
        self.read(puller, len(after), after)

    def test_changes_of_the_structure_wait_for_it(self):
        for change in [("erase", {"parts": [{"table": self.table, "keys": KEYS}]}, wire.keys(key_list())),
                       ("table_drop", {"name": "rows"})]:
            expected = self.half_made(pull_of(self.table))
            changer = self.other()
            changed = changer.begin(*change)
            self.ping()
            self.assertEqual(select.select([changer.socket], [], [], 0)[0], [])
            self.make("..")
            self.read(self.peer, len(expected), expected)
            self.assertEqual(changer.receive()[1:3], [changed, None])
            self.both[0].call(*change)

    def test_later_answers_of_its_connection_come_behind_it(self):
        expected = self.half_made(pull_of(self.table))
        self.peer.send(wire.request(1, "ping", {}))
        self.ping()
        self.assertEqual(select.select([self.peer.socket], [], [], 0)[0], [])
        self.make("..")
        self.read(self.peer, len(expected), expected)
        self.peer.unpacker.wanted += 1
        self.assertTrue(self.peer.receive())
        unpacker = wire.msgpack.Unpacker(raw=False)
        unpacker.feed(self.peer.unpacker.data[len(expected):])
        self.assertEqual(next(unpacker)[1:3], [1, None])

    def test_rows_into_shared_memory_are_there_before_their_answer(self):
        expected = self.expected(pull_of(self.table))
        peer = Peer(self.server, 4096 + ROWS)
        self.addCleanup(peer.close)
        self.assertEqual(len(peer.pull_into(self.table, key_list(), 4096)), 2)  # and no piece is waited for
        self.assertEqual(peer.memory[4096:], expected[-ROWS:])

    def test_a_peer_that_reads_slowly_delays_no_other(self):
        call, slow = pull_of(self.table), socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", self.server.port()))
        self.addCleanup(slow.close)
        slow.sendall(wire.request(MSGID, *call))
        expected, got = self.expected(call), b""
        for _ in PIECES:
            self.make(".")
            self.ping()
            got += slow.recv(5000)
        self.make("." * MANY)
        self.begin(self.peer, call)
        self.read(self.peer, len(expected), expected)
        while len(got) < len(expected):
            got += slow.recv(70000)
        self.assertEqual(got, expected)


class Kinds(Base):
    """Parts of all kinds in one answer: with statuses, packed, pooled, of a table that makes rows, too small for pieces."""

    def calls(self):
        created = self.create(table_schema("created", create_on="pull"))
        pooled = self.create(table_schema("pooled", combiner="mean", dtype="f16"))
        keys, n = wire.keys(key_list()), KEYS
        offsets = wire.offsets([min(2 * i, n) for i in range(n // 2 + 1)])
        rows = {"table": self.table, "keys": n}
        yield [{**rows, "status": True}, {**rows, "dtype": "i8"}], [keys, keys]
        yield [{**rows, "dtype": "i4", "status": True}, rows], [keys, keys]
        yield [{"table": created, "keys": n, "status": True}, {**rows, "keys": 3, "status": True}], [keys, keys[:24]]
        yield [{"table": pooled, "keys": n, "rows": n // 2, "scale": True}, {**rows, "keys": 0}, rows], [keys, offsets, b"", keys]
        yield [{"table": created, "keys": n, "status": True}, {"table": created, "keys": n}], [keys, keys]

    def pulled(self):
        return [peer.call("stats", {})[0]["stats"]["keys_pulled"] for peer in self.both]

    def test_all_kinds_have_the_bytes_of_the_host(self):
        for parts, bins in self.calls():
            call = ("pull", {"parts": parts}, *bins)
            with self.subTest(parts=parts):
                expected, lengths = self.expected(call), set()
                peer = wire.connect(self.server, timeout=30)
                self.addCleanup(peer.close)
                self.begin(peer, call)
                self.ping()
                while len(peer.unpacker.data) < len(expected):
                    self.assertLess(len(lengths), 100)
                    self.make(".")
                    self.ping()
                    drain(peer)
                    self.assertEqual(peer.unpacker.data, expected[:len(peer.unpacker.data)])
                    lengths.add(len(peer.unpacker.data))
                self.assertEqual(peer.unpacker.data, expected)
                self.assertGreaterEqual(len(lengths - {0}), 2, "nothing was sent before all was made")
        self.assertEqual(*self.pulled())


if __name__ == "__main__":
    unittest.main()
