"""A pull, push and erase with msgpack-rpc-python, which packs bytes as str. Run by test_old_clients.py with a Python that
has it: msgpack_rpc_client.py PORT."""
import struct
import sys

import msgpackrpc


def main():
    client = msgpackrpc.Client(msgpackrpc.Address("127.0.0.1", int(sys.argv[1])), timeout=20)
    schema = {"name": "old", "dim": 2, "optimizer": {"kind": "sgd", "lr": 0.5}, "initializer": {"kind": "constant", "a": 1}}
    table = client.call("table_create", {"schema": schema})[0][b"id"]
    for count in (2, 3, 30, 10000):  # packed as fixstr, str 8 or 16, str 32
        keys, grads = struct.pack(f"<{count}Q", *range(count)), struct.pack(f"<{2 * count}f", *[2.0] * (2 * count))
        part = {"table": table, "keys": count}
        client.call("push", {"parts": [part]}, keys, grads)
        rows = client.call("pull", {"parts": [part]}, keys)[1]
        assert struct.unpack_from("<2f", rows, 8 * (count - 1)) == (0, 0), count
        assert client.call("erase", {"parts": [part]}, keys)[0][b"parts"][0][b"erased"] == count


main()
