"""Memory that a client on the server's host shares, made here from PROTOCOL.md alone: rows and gradients lie in it, nothing
false about it is believed, and a peer that writes there all the time changes nothing but its own rows."""
import contextlib
import fcntl
import math
import mmap
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import msgpack

from embd_process import Embd
import wire

SHRINK_GROW_SEAL = 2 | 4 | 1
ADD_SEALS, GET_SEALS = 1033, 1034
HIT, MISSING = 0, 2
PAGE = 4096
BYTES = 1 << 20
# Rewrites all of the memory with gradients that are not numbers, others, offsets and lengths, until it is killed.
WRITER = """
import mmap, struct, sys
memory = mmap.mmap(int(sys.argv[1]), int(sys.argv[2]))
patterns = [struct.pack("<f", value) * 1024 for value in (1.0, float("nan"), float("inf"), -2.0)] + [b"\\xff" * 4096, bytes(4096)]
print("writes", flush=True)
while True:
    for pattern in patterns:
        for at in range(0, len(memory), 4096):
            memory[at:at + 4096] = pattern
"""


def memfd(bytes_, seals=SHRINK_GROW_SEAL, flags=os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING):
    fd = os.memfd_create("rows", flags)
    os.ftruncate(fd, bytes_)
    if seals:
        fcntl.fcntl(fd, ADD_SEALS, seals)
    return fd


def shared(at, bytes_):
    """A bin that lies there."""
    return msgpack.ExtType(1, struct.pack("<QQ", at, bytes_))


def data_socket(server, shard=0):
    return server.admin_path(shard).replace(".sock", ".data.sock")


class Peer(wire.Wire):
    """A connection to the data socket; with `bytes_`, one that shares as many."""

    def __init__(self, server, bytes_=0):
        super().__init__(data_socket(server))
        self.fd, self.memory = -1, None
        self.hello = self.call("hello", {"protocol": 1, "share": True})[0]
        if bytes_:
            self.fd = memfd(bytes_)
            self.memory = mmap.mmap(self.fd, bytes_)
            self.share(self.fd, bytes_)

    def share(self, fd, bytes_):
        self.msgid += 1
        socket.send_fds(self.socket, [wire.request(self.msgid, "share", {"bytes": bytes_})], [fd])
        _, _, error, result = self.receive()
        if error is not None:
            raise wire.RpcError(*error)
        return result

    def pull_into(self, table, keys, into, **fields):
        return self.call("pull", {"parts": [{"table": table, "keys": len(keys), "into": into, **fields}]}, wire.keys(keys))

    def floats(self, at, n):
        return list(struct.unpack_from(f"<{n}f", self.memory, at))

    def close(self):
        super().close()
        if self.memory is not None:
            self.memory.close()
        if self.fd >= 0:
            os.close(self.fd)
        self.memory, self.fd = None, -1


class Rings:
    """A connection of Wire's kind whose bytes go through rings, made here from PROTOCOL.md."""

    WORDS, SERVER_WAITS, CLIENT_WAITS = 4096, 256, 320

    def __init__(self, wire_, requests=PAGE, answers=2 * PAGE, memory=None):
        self.wire, self.requests, self.answers, self.socket = wire_, requests, answers, wire_.socket
        self.fd = memfd(self.WORDS + requests + answers) if memory is None else memory
        self.memory = mmap.mmap(self.fd, self.WORDS + requests + answers)
        self.words = memoryview(self.memory).cast("Q")
        self.unpacker = msgpack.Unpacker(raw=False, max_bin_len=1 << 30, max_buffer_size=1 << 30)

    def ask(self, fd=None, **fields):
        self.wire.msgid += 1
        fields = {"requests": self.requests, "answers": self.answers, **fields}
        data = wire.request(self.wire.msgid, "ring", fields)
        socket.send_fds(self.socket, [data], [self.fd if fd is None else fd])
        _, _, error, result = self.wire.receive()
        if error is not None:
            raise wire.RpcError(*error)
        return result

    def send(self, data):
        while data:
            written = self.words[0]
            at = written % self.requests
            n = min(len(data), self.requests - (written - self.words[8]), self.requests - at)
            self.memory[self.WORDS + at:self.WORDS + at + n] = data[:n]
            self.words[0] = written + n
            data = data[n:]
            self.socket.send(b"!")  # also where nobody sleeps

    def receive(self):
        while True:
            for message in self.unpacker:
                return message
            taken = self.words[24]
            at = taken % self.answers
            n = min(self.words[16] - taken, self.answers - at)
            if n == 0:
                self.sleep()
                continue
            start = self.WORDS + self.requests + at
            self.unpacker.feed(self.memory[start:start + n])
            self.words[24] = taken + n
            with contextlib.suppress(BrokenPipeError):  # its own side may have ended
                self.socket.send(b"!")

    def sleep(self):
        """Until a doorbell rings."""
        struct.pack_into("<I", self.memory, self.CLIENT_WAITS, 1)
        if self.words[16] == self.words[24] and not self.socket.recv(4096):
            raise EOFError

    def close(self):
        self.words.release()
        self.memory.close()
        os.close(self.fd)


class RingPeer(Peer):
    """A connection to the data socket by rings."""

    def __init__(self, server, bytes_=0, **sizes):
        super().__init__(server, bytes_)
        self.call("hello", {"protocol": 1, "ring": True})
        self.rings = Rings(self, **sizes)

    def turn(self):
        self.rings.ask()
        self.unpacker = self.rings.unpacker
        self.send, self.receive = self.rings.send, self.rings.receive
        return self

    def close(self):
        self.rings.close()
        super().close()


class Shared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Embd("--frame-memory", "256M")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def peer(self, bytes_=BYTES):
        peer = Peer(self.server, bytes_)
        self.addCleanup(peer.close)
        return peer

    def table(self, peer, **options):
        return wire.create(peer, self.id().rsplit(".", 1)[1][:60], **options)

    def refused(self, number, text, call, *arguments, **others):
        with self.assertRaises(wire.RpcError) as raised:
            call(*arguments, **others)
        self.assertEqual(raised.exception.number, number, raised.exception)
        self.assertIn(text, raised.exception.text)

    def shared_bytes(self):
        with wire.connect(self.server) as admin:
            return admin.call("stats", {})[0]["stats"]["shared_memory_bytes"]

    def wait_shared(self, expected):
        end = time.monotonic() + 20
        while self.shared_bytes() != expected and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.shared_bytes(), expected)

    # ---- what it is for ----

    def test_rows_come_into_it_and_the_answer_says_where(self):
        peer = self.peer()
        table = self.table(peer, dim=3)
        wire.push(peer, table, [1, 2], [2.0, 4.0, 6.0, 0.0, 0.0, 2.0])
        answer = peer.pull_into(table, [2, 9, 1], 4096, status=True)
        self.assertEqual(answer[0]["parts"], [{"rows": 3, "dim": 3, "dtype": "f32", "status": True}])
        self.assertEqual(answer[1], shared(4096, 36))
        self.assertEqual(answer[2], bytes([HIT, MISSING, HIT]))
        self.assertEqual(peer.floats(4096, 10), [1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, -1.0, -2.0, 0.0])

    def test_parts_and_columns_go_where_each_says(self):
        peer = self.peer()
        table = self.table(peer, dim=1)
        wire.push(peer, table, [1, 2, 3], [2.0, 4.0, 6.0])
        part = {"table": table, "keys": 1}
        answer = peer.call("pull", {"parts": [{**part, "into": 64}, part, {**part, "into": 128}]}, *map(wire.keys, [[1], [2], [3]]))
        self.assertEqual(answer[1:], [shared(64, 4), wire.floats([-1.0]), shared(128, 4)])
        self.assertEqual(peer.floats(64, 1) + peer.floats(128, 1), [0.0, -2.0])
        record = struct.pack("<IIIHHfI", table, 1, 1, 128, 0, 0.0, 256 // 8) + struct.pack("<IIIHHfI", table, 1, 1, 0, 0, 0.0, 0)
        answer = peer.call("pull", {"columns": 2}, record, wire.keys([3, 1]), b"", b"", b"")
        self.assertEqual(answer[1:], [shared(256, 4), wire.floats([0.0])])
        self.assertEqual(peer.floats(256, 1), [-2.0])

    def test_bins_of_a_request_may_lie_in_it(self):
        peer = self.peer()
        table = self.table(peer, dim=2)
        peer.memory[512:528] = wire.keys([5, 6])
        peer.memory[1001:1017] = wire.floats([2.0, 0.0, 0.0, -2.0])  # at any byte: it is copied
        peer.call("push", {"parts": [{"table": table, "keys": 2}]}, shared(512, 16), shared(1001, 16))
        self.assertEqual(wire.pull(peer, table, [5, 6]), [0.0, 1.0, 1.0, 2.0])
        peer.memory[BYTES - 8:] = wire.keys([6])
        answer = peer.call("pull", {"parts": [{"table": table, "keys": 1, "into": BYTES - 16}]}, shared(BYTES - 8, 8))
        self.assertEqual(answer[1], shared(BYTES - 16, 8))
        self.assertEqual(peer.floats(BYTES - 16, 2), [1.0, 2.0])

    def test_requests_behind_one_another_keep_their_order(self):
        peer = self.peer()
        table = self.table(peer, dim=1)
        peer.memory[0:4] = wire.floats([2.0])
        parts = {"parts": [{"table": table, "keys": 1}]}
        for turn in range(3):
            peer.begin("push", parts, wire.keys([1]), shared(0, 4))
            peer.begin("pull", {"parts": [{"table": table, "keys": 1, "into": 64 + 8 * turn}]}, wire.keys([1]))
        for _ in range(6):
            self.assertIsNone(peer.receive()[2])
        self.assertEqual([peer.floats(64 + 8 * turn, 1) for turn in range(3)], [[0.0], [-1.0], [-2.0]])

    # ---- what is refused ----

    def test_places_outside_of_it_are_refused_and_the_connection_goes_on(self):
        peer = self.peer()
        table = self.table(peer, dim=2)
        keys = [1, 2]
        for into in (4, 12, BYTES, BYTES - 8, 1 << 40, 2**64 - 16, 2**63):
            self.refused(wire.INVALID, "'into'", peer.pull_into, table, keys, into)
        parts = {"parts": [{"table": table, "keys": 2}]}
        for at, bytes_ in ((BYTES, 16), (BYTES - 8, 16), (2**64 - 8, 16), (0, BYTES + 16), (0, 2**32 + 16), (16, 2**64 - 1)):
            self.refused(wire.INVALID, "shared memory", peer.call, "push", parts, wire.keys(keys), shared(at, bytes_))
        self.refused(wire.MALFORMED, "grads", peer.call, "push", {"parts": [{"table": table, "keys": 2, "dtype": "f32"}]},
                     wire.keys(keys), shared(0, 15))
        self.assertEqual(wire.pull(peer, table, keys), [1.0] * 4)

    def test_gradients_there_are_checked_like_others(self):
        peer = self.peer()
        table = self.table(peer, dim=2)
        peer.memory[0:8] = wire.floats([1.0, math.nan])
        self.refused(wire.NOT_FINITE, "nan", peer.call, "push", {"parts": [{"table": table, "keys": 1}]}, wire.keys([1]),
                     shared(0, 8))
        self.assertEqual(wire.pull(peer, table, [1]), [1.0, 1.0])

    def test_nothing_lies_in_memory_that_is_not_shared(self):
        for peer in (self.peer(0), wire.connect(self.server)):
            self.addCleanup(peer.close)
            table = wire.create(peer, f"not_shared_{peer.socket.family.name.lower()}")
            self.refused(wire.INVALID, "the 0 bytes", Peer.pull_into, peer, table, [1], 64)
            self.refused(wire.MALFORMED, "bin", peer.call, "pull", {"parts": [{"table": table, "keys": 1}]}, shared(0, 8))

    def test_a_connection_by_tcp_shares_nothing(self):
        with wire.connect(self.server) as peer:
            self.assertNotIn("share", peer.call("hello", {"protocol": 1, "share": True})[0])
            self.assertIn("share", peer.call("hello", {"protocol": 1})[0]["features"])
            self.refused(wire.UNSUPPORTED, "data socket", peer.call, "share", {"bytes": PAGE})

    def test_only_sealed_memory_is_taken(self):
        shrinks = memfd(PAGE, seals=0)
        grows = memfd(PAGE, seals=2 | 1)
        resealed = memfd(PAGE, seals=2 | 4)
        unsealable = memfd(PAGE, seals=0, flags=os.MFD_CLOEXEC)
        unwritable = memfd(PAGE, seals=SHRINK_GROW_SEAL | 8)
        reader, writer = os.pipe()
        null = os.open("/dev/null", os.O_RDWR)
        file = tempfile.TemporaryFile()
        self.addCleanup(file.close)
        file.truncate(PAGE)
        directory = os.open("/", os.O_RDONLY)
        pair = socket.socketpair()
        for end in pair:
            self.addCleanup(end.close)
        cases = [(shrinks, "seals"), (grows, "seals"), (resealed, "seals"), (unsealable, "seals"), (unwritable, "mapped"),
                 (reader, "memfd"), (writer, "memfd"), (null, "memfd"), (file.fileno(), "memfd"), (directory, "memfd"),
                 (pair[0].fileno(), "memfd"), (os.open("/proc/self/mem", os.O_RDWR), "memfd")]
        for fd, text in cases:
            peer = self.peer(0)
            self.refused(wire.INVALID, text, peer.share, fd, PAGE)
            self.refused(wire.INVALID, "no descriptor", peer.call, "share", {"bytes": PAGE})
            self.assertEqual(peer.call("ping", {})[0], {})
        self.assertEqual(self.shared_bytes(), 0)

    def test_sizes_beyond_the_memory_or_the_limit_are_refused(self):
        most = self.peer(0).hello["share"]
        self.assertEqual(most, 16 << 20)
        for bytes_ in (0, 1, PAGE + 1, 2 * PAGE, most + PAGE, 2**63, 2**64 - PAGE):
            fd = memfd(PAGE)
            self.refused(wire.INVALID, "'bytes'", self.peer(0).share, fd, bytes_)
            os.close(fd)

    def test_a_second_memory_is_refused(self):
        peer = self.peer()
        self.refused(wire.INVALID, "already", peer.share, memfd(PAGE), PAGE)
        peer.pull_into(self.table(peer), [1], 64)
        self.assertEqual(peer.floats(64, 1), [1.0])

    def test_a_request_without_descriptor_or_without_hello_gets_nothing(self):
        self.refused(wire.INVALID, "no descriptor", self.peer(0).call, "share", {"bytes": PAGE})
        with wire.Wire(data_socket(self.server)) as peer:
            peer.call("hello", {"protocol": 1})
            self.refused(wire.INVALID, "no descriptor", Peer.share, peer, memfd(PAGE), PAGE)

    def wait_descriptors(self, most):
        end = time.monotonic() + 20
        while len(os.listdir(f"/proc/{self.server.pid}/fd")) > most and time.monotonic() < end:
            time.sleep(0.02)
        self.assertLessEqual(len(os.listdir(f"/proc/{self.server.pid}/fd")), most)

    def test_of_several_descriptors_none_stays(self):
        before, fd = len(os.listdir(f"/proc/{self.server.pid}/fd")), memfd(PAGE)
        self.addCleanup(os.close, fd)
        for n in (9, 1):  # in one message, or in one after the other, none of which shares
            for method in ("share", "ping", "ping"):
                peer = self.peer(0)
                for _ in range(10 - n):
                    peer.msgid += 1
                    fields = {"bytes": PAGE} if method == "share" else {}
                    socket.send_fds(peer.socket, [wire.request(peer.msgid, method, fields)], [fd] * n)
                    peer.receive()
                peer.close()
        self.wait_descriptors(before)

    def test_peers_share_a_quarter_of_frame_memory_and_others_do_without(self):
        most = 16 << 20
        peers = [self.peer(most) for _ in range(4)]
        self.assertEqual(self.shared_bytes(), 4 * most)
        last = self.peer(0)
        self.refused(wire.BUSY, "frame_memory", last.share, memfd(most), most)
        self.assertEqual(last.call("ping", {})[0], {})
        for peer in peers:
            peer.close()
        self.wait_shared(0)

    # ---- the end ----

    def test_clients_that_are_killed_leave_nothing(self):
        peer = self.peer()
        table = self.table(peer, dim=256)
        self.wait_shared(BYTES)
        for method in ("pull", "push"):
            child = os.fork()
            if child == 0:
                with Peer(self.server, BYTES) as other:
                    keys = list(range(256))
                    part = {"table": table, "keys": len(keys), **({"into": 4096} if method == "pull" else {})}
                    bins = [wire.keys(keys)] + ([shared(4096, 1 << 18)] if method == "push" else [])
                    data = wire.request(7, method, {"parts": [part]}, *bins)
                    for _ in range(40):
                        other.send(data)
                    other.send(data[:len(data) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(child, 0)
            self.wait_shared(BYTES)
        peer.close()
        self.wait_shared(0)
        with open(f"/proc/{self.server.pid}/maps") as maps:
            self.assertNotIn("memfd:rows", maps.read())


class ByRings(Shared):
    """All of the same, and what is the rings' own."""

    # By the socket alone, or counted without rings.
    test_a_second_memory_is_refused = test_peers_share_a_quarter_of_frame_memory_and_others_do_without = None
    test_clients_that_are_killed_leave_nothing = None

    def peer(self, bytes_=BYTES):
        if bytes_ == 0:
            return super().peer(0)
        peer = RingPeer(self.server, bytes_).turn()
        self.addCleanup(peer.close)
        return peer

    def table(self, peer, **options):
        return wire.create(peer, "rings_" + self.id().rsplit(".", 1)[1][:50], **options)

    def test_requests_and_answers_longer_than_the_rings_pass(self):
        peer = self.peer()
        table = self.table(peer, dim=64)
        keys = list(range(1000))
        for round_ in range(3):
            wire.push(peer, table, keys, [float(round_)] * 64000)
            rows = wire.pull(peer, table, keys)
        self.assertEqual(rows, [1.0 - 0.5 - 1.0] * 64000)
        with wire.connect(self.server) as other:
            self.assertEqual(wire.pull(other, table, keys), rows)

    def test_clients_that_are_killed_leave_no_rings(self):
        child = os.fork()
        if child == 0:
            other = RingPeer(self.server, BYTES).turn()
            table = wire.create(other, "rings_killed", dim=64)
            data = wire.request(7, "pull", {"parts": [{"table": table, "keys": 200}]}, wire.keys(range(200)))
            other.send(data + data[:len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        self.wait_shared(0)
        with open(f"/proc/{self.server.pid}/maps") as maps:
            self.assertNotIn("memfd:rows", maps.read())

    def test_rings_that_cannot_be_are_refused(self):
        def refused(number, text, fd=None, **fields):
            peer = RingPeer(self.server)
            self.addCleanup(peer.close)
            self.refused(number, text, peer.rings.ask, fd, **fields)
            self.assertEqual(peer.call("ping", {})[0], {})
        for sizes in ((0, PAGE), (PAGE, 3 * PAGE), (PAGE - 1, PAGE), (PAGE, 32 << 20), (2**63, 2**63)):
            refused(wire.INVALID, "powers of two", requests=sizes[0], answers=sizes[1])
        refused(wire.INVALID, "16384 bytes, and the memfd has 4096", memfd(PAGE))
        refused(wire.INVALID, "seals", memfd(16 * PAGE, seals=0))
        peer = RingPeer(self.server)
        self.addCleanup(peer.close)
        self.refused(wire.INVALID, "no descriptor", peer.call, "ring", {"requests": PAGE, "answers": PAGE})
        with wire.connect(self.server) as tcp:
            tcp.call("hello", {"protocol": 1, "ring": True})
            self.refused(wire.UNSUPPORTED, "data socket", tcp.call, "ring", {"requests": PAGE, "answers": PAGE})
        self.assertEqual(self.shared_bytes(), 0)

    def test_a_second_ring_is_refused(self):
        peer = self.peer()
        peer.begin("ring", {"requests": PAGE, "answers": PAGE})
        self.assertIn("already", peer.receive()[2][1])
        self.assertEqual(peer.call("ping", {})[0], {})

    def test_positions_that_cannot_be_end_the_connection_alone(self):
        for word, value in ((0, 2**63), (0, PAGE + 1), (24, 1), (24, 2**63)):
            peer = self.peer()
            peer.rings.words[word] = value
            if word == 24:
                peer.send(wire.request(1, "ping", {}))
            else:
                peer.socket.send(b"!")
            with self.assertRaises((EOFError, ConnectionError)):
                while True:
                    if not peer.socket.recv(4096):
                        raise EOFError
            with wire.connect(self.server) as other:
                self.assertEqual(other.call("ping", {})[0], {})
        self.wait_shared(0)

    def test_what_was_written_before_the_end_is_answered(self):
        peer = self.peer()
        table = self.table(peer, dim=1)
        peer.begin("push", {"parts": [{"table": table, "keys": 1}]}, wire.keys([1]), wire.floats([2.0]))
        peer.socket.shutdown(socket.SHUT_WR)
        self.assertIsNone(peer.receive()[2])
        with wire.connect(self.server) as other:
            self.assertEqual(wire.pull(other, table, [1]), [0.0])

    def test_all_that_was_written_before_the_end_is_answered(self):
        """Also more than the server takes at once, more requests than may be in flight, and longer answers than the ring."""
        peer = RingPeer(self.server, requests=1 << 20, answers=PAGE).turn()
        self.addCleanup(peer.close)
        table = self.table(peer, dim=64)
        push = {"parts": [{"table": table, "keys": 500}]}
        data = b"".join(wire.request(i, "push", push, wire.keys(range(500)), wire.floats([0.5] * 32000)) for i in range(7))
        data += b"".join(wire.request(i, "ping", {}) for i in range(7, 999))
        data += wire.request(999, "pull", {"parts": [{"table": table, "keys": 64}]}, wire.keys(range(64)))
        written, begin = peer.rings.words[0], PAGE + peer.rings.words[0]
        peer.rings.memory[begin:begin + len(data)] = data
        peer.rings.words[0] = written + len(data)
        peer.socket.shutdown(socket.SHUT_WR)
        time.sleep(0.05)  # so that the server sleeps, too
        self.assertEqual(sorted(peer.receive()[1] for _ in range(1000)), list(range(1000)))

    def test_who_does_not_read_its_answers_is_dropped(self):
        with Embd("--stall-timeout", "1") as server, RingPeer(server) as peer:
            table = wire.create(peer, "t", dim=64)
            peer.turn()
            peer.begin("pull", {"parts": [{"table": table, "keys": 1000}]}, wire.keys(range(1000)))
            while peer.socket.recv(4096):
                pass
            server.wait_log("does not read its answers")

    def test_one_client_in_rings_keeps_nobody_from_the_others(self):
        """It asks without end; a second by a ring, and one by TCP, get answers."""
        busy, second = self.peer(), self.peer()
        table = self.table(busy, dim=64)
        data = b"".join(wire.request(i, "pull", {"parts": [{"table": table, "keys": 200}]}, wire.keys(range(200))) for i in range(20))
        busy.send(data)
        self.assertEqual(second.call("ping", {})[0], {})
        with wire.connect(self.server) as tcp:
            self.assertEqual(tcp.call("ping", {})[0], {})
        for _ in range(20):
            self.assertIsNone(busy.receive()[2])


class RacingRings(unittest.TestCase):
    def test_a_peer_that_rewrites_its_rings_harms_nobody_else(self):
        with Embd("--frame-memory", "256M") as server:
            with wire.connect(server) as other:
                table = wire.create(other, "quiet", dim=4)
                for _ in range(3):
                    self.race(server, other, table)
                self.assertEqual(wire.pull(other, table, [1, 2]), [1.0] * 8)
                end = time.monotonic() + 20
                while other.call("stats", {})[0]["stats"]["shared_memory_bytes"] and time.monotonic() < end:
                    time.sleep(0.02)
                self.assertEqual(other.call("stats", {})[0]["stats"]["shared_memory_bytes"], 0)

    def race(self, server, other, table):
        with RingPeer(server) as peer:
            peer.turn()
            os.set_inheritable(peer.rings.fd, True)
            size = 4 * PAGE
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(peer.rings.fd), str(size)], pass_fds=[peer.rings.fd],
                                      stdout=subprocess.PIPE)
            try:
                self.assertEqual(writer.stdout.readline(), b"writes\n")
                for _ in range(50):
                    try:
                        peer.socket.send(b"!")
                    except OSError:
                        break
                    self.assertEqual(wire.pull(other, table, [1]), [1.0] * 4)
            finally:
                writer.kill()
                writer.wait()
                writer.stdout.close()


class Racing(unittest.TestCase):
    """A process rewrites the memory while requests run."""

    def run_against(self, server):
        with Peer(server, 16 * PAGE) as peer:
            table = wire.create(peer, "raced", dim=16, durability="buffered")
            plain = wire.create(peer, "quiet", dim=16, durability="buffered")
            os.set_inheritable(peer.fd, True)
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(peer.fd), str(16 * PAGE)], pass_fds=[peer.fd],
                                      stdout=subprocess.PIPE)
            try:
                self.assertEqual(writer.stdout.readline(), b"writes\n")
                seen = self.ask(peer, table, plain)
            finally:
                writer.kill()
                writer.wait()
                writer.stdout.close()
            self.assertGreater(seen.get("push", 0), 0)
            return self.rows(peer, table), self.rows(peer, plain)

    def rows(self, peer, table):
        return wire.pull(peer, table, list(range(128)))

    def ask(self, peer, table, plain):
        """What was done, by name or number of the error."""
        seen, chance, keys = {}, random.Random(1), wire.keys(range(64))
        end = time.monotonic() + 20
        while seen.get("all", 0) < 400 or (seen.get("push", 0) < 20 and time.monotonic() < end):
            seen["all"] = seen.get("all", 0) + 1
            at = chance.randrange(0, 8 * PAGE) // 8 * 8
            which = chance.choice(["push", "push", "keys", "pull", "offsets"])
            part = {"table": table, "keys": 64}
            try:
                if which == "push":
                    peer.call("push", {"parts": [part]}, keys, shared(at, 64 * 64))
                elif which == "keys":
                    peer.call("pull", {"parts": [{**part, "zero": True, "into": at + 8}]}, shared(at, 512))
                elif which == "pull":
                    peer.call("pull", {"parts": [{**part, "table": plain, "into": at + 8}]}, keys)
                else:
                    peer.call("pull", {"parts": [{**part, "rows": 7}]}, keys, shared(at, 32))
                seen[which] = seen.get(which, 0) + 1
            except wire.RpcError as error:
                self.assertIn(error.number, (wire.INVALID, wire.MALFORMED, wire.NOT_FINITE), error)
        return seen

    def test_a_writer_that_races_changes_its_own_rows_alone_and_replay_agrees(self):
        data = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, data)
        with Embd("--data-dir", data) as server:
            raced, plain = self.run_against(server)
        self.assertTrue(all(map(math.isfinite, raced)))
        self.assertEqual(plain, [1.0] * len(plain))
        with Embd("--data-dir", data) as server, wire.connect(server) as peer:
            tables = {t["name"]: t["id"] for t in peer.call("tables", {})[0]["tables"]}
            self.assertEqual(self.rows(peer, tables["raced"]), raced)


if __name__ == "__main__":
    unittest.main()
