"""What a client of an earlier version sent, and what servers of that version answered (`recorded/*.jsonl`), beside the
programs of this version: its requests are answered with the same bytes of rows, and a client of this version gets through
a training with its answers, sending no field that it does not know. And a server of another version that does not understand
is named with its version, by clients and by a snapshot's coordinator, which leaves nothing behind.

usage: test_recorded.py [--record BUILD FILE]     with the programs of that build, see released.py"""
import base64
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import msgpack

import clusters
import embd
import wire
from ports import free_ports

RECORDED = pathlib.Path(__file__).parent / "recorded"
UNKNOWN_METHOD, INVALID = 4, 1


def train(package, address):
    """The digest of what its pulls returned."""
    # One shard, one thread and no clock: the same requests each time, but for the ids of client and stream.
    program = """
import hashlib, sys, numpy as np, embd
with embd.connect(sys.argv[1], deadline=20) as client:
    digest = hashlib.sha256()
    for name, fields in (("d", {"durability": "durable"}), ("s", {"durability": "snapshot", "combiner": "mean"})):
        table = client.create_table(name, 4, optimizer=embd.Optimizer("adam", lr=0.05), **fields)
        for n in range(4):
            chance = np.random.default_rng(n)
            keys = chance.integers(0, 20, 8)
            table.push(keys, table.pull(keys) + chance.random((8, 4), np.float32))
        table.erase([1, 2])
        digest.update(table.pull(np.arange(20)).tobytes())
    with embd.Clock(client, "job", worker=0, workers=1) as clock:
        clock.tick()
    print(digest.hexdigest())
"""
    done = subprocess.run([sys.executable, "-c", program, address], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PYTHONPATH": package})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Peer(threading.Thread):
    """A server that is none: answers each request with answer(method, params), which returns (error, result)."""

    def __init__(self, answer, path=None):
        super().__init__(daemon=True)
        self.answer, self.lock = answer, threading.Lock()
        if path is not None:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(path)
            self.listener.listen()
        else:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        unpacker = msgpack.Unpacker(raw=False, max_bin_len=1 << 30)
        while data := connection.recv(1 << 16):
            unpacker.feed(data)
            for _, msgid, method, params in unpacker:
                with self.lock:
                    error, result = self.answer(method, params)
                connection.sendall(msgpack.packb([1, msgid, error, result], use_bin_type=True))

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def exchange(through, method, params):
    """(error, result)."""
    through.begin(method, *params)
    return through.receive()[2:]


def pack(params):
    return base64.b64encode(msgpack.packb(params, use_bin_type=True)).decode()


def unpack(text):
    return msgpack.unpackb(base64.b64decode(text), raw=False)


def record(build, path):
    """A training between programs of a build, as lines of a file; the last has its digest."""
    lines = []
    with tempfile.TemporaryDirectory() as data, clusters.Embd("--data-dir", data, program=os.path.join(build, "bin", "embd")) as server, \
            wire.Wire(("127.0.0.1", server.port())) as through:

        def answer(method, params):
            error, result = exchange(through, method, params)
            lines.append({"method": method, "params": pack(params), "error": error, "result": pack(result)})
            if method == "cluster":
                result[0]["shards"] = [{"address": peer.address, "admin": ""}]
            return error, result

        peer = Peer(answer)
        digest = train(os.path.join(build, "python"), peer.address)
    with open(path, "w", encoding="ascii") as file:
        for line in [*lines, {"digest": digest}]:
            file.write(json.dumps(line) + "\n")


class Recorded(unittest.TestCase):
    def recordings(self):
        paths = sorted(RECORDED.glob("*.jsonl"))
        self.assertTrue(paths)
        return [[json.loads(line) for line in path.read_text(encoding="ascii").splitlines()] for path in paths]

    def server(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        server = clusters.Embd("--data-dir", folder.name)
        self.addCleanup(server.kill)
        return server

    def test_its_requests_are_answered_with_the_same_rows(self):
        for lines in self.recordings():
            with wire.Wire(("127.0.0.1", self.server().port())) as through:
                for line in lines[:-1]:
                    error, result = exchange(through, line["method"], unpack(line["params"]))
                    self.assertEqual(error, line["error"], line["method"])
                    before = unpack(line["result"])
                    self.assertLessEqual(set(before[0]), set(result[0]), line["method"])
                    if line["method"] in ("pull", "push", "erase"):
                        self.assertEqual(result, before)

    def test_a_client_of_this_version_gets_through_with_its_answers(self):
        for lines in self.recordings():
            known, left = {}, {}
            for line in lines[:-1]:
                known.setdefault(line["method"], set()).update(unpack(line["params"])[0])
                left.setdefault(line["method"], []).append((line["error"], unpack(line["result"])))
            unknown = []

            def answer(method, params):
                if method not in known:
                    return [UNKNOWN_METHOD, f"there is no method '{method}'"], None
                unknown.extend(f"{method}: {field}" for field in params[0] if field not in known[method])
                if unknown:
                    return [INVALID, f"unknown fields: {unknown}"], None
                answers = left[method]
                error, result = answers.pop(0) if len(answers) > 1 else answers[0]
                if method == "cluster":
                    result[0]["shards"] = [{"address": peer.address, "admin": ""}]
                return error, result

            peer = Peer(answer)
            self.addCleanup(peer.close)
            self.assertEqual(train(os.environ["PYTHONPATH"].split(os.pathsep)[0], peer.address), lines[-1]["digest"])
            self.assertEqual(unknown, [])

    # ---- a version that does not understand ----

    def hello(self, version, shard=0, shards=1):
        return None, [{"protocol": 1, "server": f"embd {version}", "features": [], "shard": shard, "shards": shards,
                       "frame_bytes": 64 << 20, "header_bytes": 4096, "keys": 4 << 20, "requests": 64}]

    def test_a_client_names_both_versions(self):
        def answer(method, params):
            if method == "hello":
                return self.hello("0.0.9")
            if method == "ping":
                return None, [{}]
            if method == "cluster":
                return None, [{"name": "embd", "version": 1, "shard": 0, "shards": [{"address": peer.address, "admin": ""}]}]
            return [INVALID, "table_create has the unknown field 'later'"], None

        peer = Peer(answer)
        self.addCleanup(peer.close)
        with embd.connect(peer.address, deadline=20) as client:
            with self.assertRaisesRegex(embd.InvalidError, f"'later' .that server is embd 0.0.9, this program is of version {embd.__version__}"):
                client.create_table("t", 4)

    def test_a_snapshot_that_another_version_does_not_understand_names_both_and_leaves_nothing(self):
        phases = []

        def answer(method, params):
            if method == "hello":
                return self.hello("0.0.9", 1, 2)
            if method != "snapshot":
                return [UNKNOWN_METHOD, f"there is no method '{method}'"], None
            phases.append(params[0]["phase"])
            return [2, "snapshot has the unknown field 'later'"], None

        with tempfile.TemporaryDirectory() as folder:
            port = free_ports(2)
            config, data, admin = (os.path.join(folder, name) for name in ("embd.yaml", "data", "admin"))
            with open(config, "w", encoding="ascii") as file:
                file.write(f"http: off\nadmin_dir: {admin}\ncluster:\n  servers:\n" + "".join(
                    f'    - {{name: s{i}, listen: "127.0.0.1:{port + i}"}}\n' for i in range(2)))
            os.mkdir(data)
            os.mkdir(admin, 0o700)
            peer = Peer(answer, os.path.join(admin, f"{port + 1}.sock"))
            self.addCleanup(peer.close)
            with clusters.Embd("--config", config, "--server", "s0", "--admin-dir", admin, "--data-dir", data, listen=None), \
                    wire.Wire(os.path.join(admin, f"{port}.sock")) as asker:
                before = set(os.listdir(data))
                asker.call("snapshot", {"name": "a", "phase": "start"})
                told = {"state": "running"}
                while told["state"] == "running":
                    told = asker.call("snapshot", {"name": "a", "phase": "progress"})[0]
                self.assertIn("snapshot has the unknown field 'later' (that server is embd 0.0.9, this program is of version "
                              f"{embd.__version__})", told["text"])
                self.assertEqual(phases[0], "begin")
                self.assertEqual(set(os.listdir(data)), before)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2], sys.argv[3])
    else:
        clusters.main()
