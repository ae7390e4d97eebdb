"""Clients of the MessagePack before bin, which pack bytes as str, pull and push: msgpack-rpc-python, and python3-msgpack told to
pack so."""
import os
import pathlib
import subprocess
import unittest

import msgpack

from embd_process import Embd
import wire

HERE = pathlib.Path(__file__).parent
# deploy/deps.sh --tools puts it there.
PYTHON = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "embd/msgpack-rpc/bin/python"


class Raw(wire.Wire):
    def begin(self, method, *params):
        self.msgid += 1
        self.send(msgpack.packb([0, self.msgid, method, list(params)], use_bin_type=False))
        return self.msgid


class OldClients(unittest.TestCase):
    def test_bytes_packed_as_str_are_bins(self):
        with Embd() as server, Raw(("127.0.0.1", server.port())) as old:
            table = old.call("table_create", {"schema": wire.constant_schema("items", dim=1)})[0]["id"]
            for count in (0, 1, 3, 4, 31, 32, 8000, 10000):  # fixstr, str 8, 16 and 32 of the keys
                keys = list(range(count))
                wire.push(old, table, keys, [2.0] * count)
                self.assertEqual(wire.pull(old, table, keys), [0.0] * count)
                erased = old.call("erase", {"parts": [{"table": table, "keys": count}]}, wire.keys(keys))
                self.assertEqual(erased[0]["parts"][0]["erased"], count)

    def test_a_str_of_the_wrong_length_is_refused(self):
        with Embd() as server, Raw(("127.0.0.1", server.port())) as old:
            table = wire.create(old, "items")
            for params in (({"parts": [{"table": table, "keys": 2}]}, "short"), ({"parts": []}, "left over"), ("no map",)):
                with self.assertRaises(wire.RpcError) as caught:
                    old.call("pull", *params)
                self.assertIn(caught.exception.number, (wire.MALFORMED, wire.INVALID))
            old.call("ping")

    @unittest.skipUnless(PYTHON.exists(), "no msgpack-rpc-python; deploy/deps.sh --tools installs it")
    def test_msgpack_rpc_python_works_unchanged(self):
        with Embd() as server:
            subprocess.run([PYTHON, HERE / "msgpack_rpc_client.py", str(server.port())], timeout=60, check=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
