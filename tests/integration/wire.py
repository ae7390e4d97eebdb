"""A msgpack-rpc client of a page, on python3-msgpack: sends what it is told, right or wrong."""
import array
import socket

import msgpack

OK, INVALID, MALFORMED, TOO_LARGE, UNKNOWN_METHOD, UNKNOWN_TABLE = 0, 1, 2, 3, 4, 5
EXISTS, UNSUPPORTED, FULL, NOT_FINITE, NO_MEMORY, BUSY, DRAINING = 6, 7, 8, 9, 10, 11, 12
LOADING = 24


def mix64(x):
    """MurmurHash3's 64-bit finalizer."""
    mask = 2**64 - 1
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd & mask
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53 & mask
    return x ^ (x >> 33)


def owner(key, shards):
    """The shard that has the key, in tables with the partition hash."""
    return (mix64(key) >> 54) * shards // 1024


def vshard(partition, key, slot, base):
    """What of a key a map of shards goes by: PROTOCOL.md, "Placement"."""
    if partition == "hash":
        return mix64(key) >> 54
    residue = (key if partition == "modulo" else slot) % (base * (1024 // base))
    return -(-(residue % base) * 1024 // base) + residue // base


def owned(count, shard, shards, first=0):
    """The first `count` keys from `first` on that the shard has."""
    found = []
    while len(found) < count:
        if owner(first, shards) == shard:
            found.append(first)
        first += 1
    return found


class RpcError(Exception):
    def __init__(self, number, text):
        super().__init__(f"{number}: {text}")
        self.number, self.text = number, text


def request(msgid, method, *params):
    return msgpack.packb([0, msgid, method, list(params)], use_bin_type=True)


def keys(values):
    return array.array("Q", values).tobytes()


def offsets(values):
    return array.array("I", values).tobytes()


def floats(values):
    return array.array("f", values).tobytes()


def unfloats(data):
    return list(array.array("f", bytes(data)))


class Wire:
    """One connection: to (host, port), or to a Unix socket's path."""

    def __init__(self, address, timeout=20):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout=timeout)
        self.unpacker = msgpack.Unpacker(raw=False, max_bin_len=1 << 30, max_buffer_size=1 << 30)
        self.msgid = 0

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The next message; None when the server has ended the stream."""
        while True:
            for message in self.unpacker:
                return message
            try:
                data = self.socket.recv(1 << 20)
            except BrokenPipeError:  # TLS answers the end that it reads; this side has ended its own
                return None
            if not data:
                return None
            self.unpacker.feed(data)

    def begin(self, method, *params):
        self.msgid += 1
        self.send(request(self.msgid, method, *params))
        return self.msgid

    def call(self, method, *params):
        """The result's array: the map, then bins."""
        msgid = self.begin(method, *params)
        kind, answered, error, result = self.receive()
        assert (kind, answered) == (1, msgid), (kind, answered, msgid)
        if error is not None:
            raise RpcError(*error)
        return result

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()


def connect(server, shard=0, **options):
    return Wire(("127.0.0.1", server.port(shard)), **options)


def constant_schema(name, dim=4, value=1.0, **others):
    """Rows begin at `value` in each column; sgd with lr 0.5, raw rows, in memory alone."""
    return {"name": name, "dim": dim, "combiner": "concat", "optimizer": {"kind": "sgd", "lr": 0.5},
            "initializer": {"kind": "constant", "a": value}, "durability": "snapshot", **others}


def create(wire, *arguments, **options):
    return wire.call("table_create", {"schema": constant_schema(*arguments, **options)})[0]["id"]


def pull(wire, table, key_list):
    """One list of floats: all rows one after the other."""
    answer = wire.call("pull", {"parts": [{"table": table, "keys": len(key_list)}]}, keys(key_list))
    return unfloats(answer[1])


def push(wire, table, key_list, grads):
    return wire.call("push", {"parts": [{"table": table, "keys": len(key_list)}]}, keys(key_list),
                     floats(grads))[0]["parts"][0]


def open_stream(wire, writer, journaled):
    """{"last", "opened"} of a stream of pushes: {"high", "low", "stream"}."""
    return wire.call("stream_open", {**writer, "journaled": journaled})[0]
