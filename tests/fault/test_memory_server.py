"""Each piece of memory that the server asks for is refused once, from its start to its end, and the first reads, writes
and accepts of its connections fail. It then says why it does not start; or it answers an error, or closes the
connection, and goes on: the next request works, and a push to two tables was applied whole or not at all, and surely where
the answer said so. The tables are journaled: a server that is started anew has the same rows. EMBD_FAULT_SOCKETS=n: how many of each step of sockets; 12 without it."""
import collections
import os
import shutil
import tempfile
import unittest
from http.client import HTTPException

import failpoints
import wire
from embd_process import Embd, NotReady
from test_http import get, http_address

SHARDS, KEYS, MOST = 2, 50, 1000
SOCKETS = int(os.environ.get("EMBD_FAULT_SOCKETS", "12"))


class Story:
    """What a client asks, each request again where it failed. Counts pushes that were sent and acknowledged."""

    def __init__(self, server):
        self.server, self.failed, self.seen = server, 0, []

    def insist(self, request, *arguments):
        """request(peer, …) until it succeeds."""
        for _ in range(3):
            try:
                with wire.connect(self.server, self.shard, timeout=10) as peer:
                    return request(peer, *arguments)
            except wire.RpcError as error:
                assert error.number == wire.NO_MEMORY, error
            except (OSError, TypeError):  # the connection ended
                pass
            self.failed += 1
        raise AssertionError("one refusal, and three requests failed")

    def look(self):
        """A page of the HTTP port, which a refusal does not deafen."""
        for _ in range(3):
            try:
                assert get(self.server.http, "/readyz")[0] == 200
                return
            except (OSError, HTTPException):
                self.failed += 1
        raise AssertionError("one refusal, and three pages failed")

    def push(self, peer, tables):
        self.sent += 1
        grads = wire.floats([-1.0] * 4 * KEYS)
        peer.call("push", {"parts": [{"table": table, "keys": KEYS} for table in tables]},
                  *[wire.keys(self.keys), grads] * len(tables))
        self.acknowledged += 1

    def tell(self):
        schemas = [wire.constant_schema(name, value=0.0, partition="modulo", durability="durable",
                                        optimizer={"kind": "sgd", "lr": 1.0}) for name in ("items", "more")]
        for self.shard in range(SHARDS):
            self.sent = self.acknowledged = 0
            self.keys = [key * SHARDS + self.shard for key in range(KEYS)]
            tables = [self.insist(lambda peer, schema=schema: peer.call("table_create", {"schema": schema}))[0]["id"]
                      for schema in schemas]
            for _ in range(2):
                self.insist(self.push, tables)
            rows = [self.insist(wire.pull, table, self.keys) for table in tables]
            assert len(set(rows[0] + rows[1])) == 1, "pushed in part"
            assert self.acknowledged <= rows[0][0] <= self.sent, (self.acknowledged, rows[0][0], self.sent)
            self.seen.append((tables, self.keys, rows))
            self.insist(lambda peer: peer.call("stats"))
        self.look()


class Memory(unittest.TestCase):
    def start(self, data):
        # Not auto: the CUDA runtime is part of the program, and its memory is not what this is about.
        server = Embd("--store", "host", "--data-dir", data, "--http", "127.0.0.1:0", shards=SHARDS)
        server.http = http_address(server)
        return server

    def check_again(self, data, seen):
        """The rows of a server that is started anew."""
        server = self.start(data)
        self.addCleanup(server.kill)
        for shard, (tables, keys, rows) in enumerate(seen):
            with wire.connect(server, shard, timeout=10) as peer:
                self.assertEqual([wire.pull(peer, table, keys) for table in tables], rows)
        server.kill()

    def run_once(self, variables, in_order):
        data = tempfile.mkdtemp(dir=self.dir)
        try:
            with failpoints.environment(variables):
                server = self.start(data)
        except NotReady as error:
            self.assertIn("start_failed", str(error))
            return "did not start"
        self.addCleanup(server.kill)
        story = Story(server)
        story.tell()
        if in_order:
            self.assertEqual(server.stop(), 0)
        server.kill()
        if story.failed:
            self.check_again(data, story.seen)
        return "failed and went on" if story.failed else "did without"

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="embd-memory-")
        self.addCleanup(shutil.rmtree, self.dir)

    def until_none_fails(self, step, kind, most):
        """The step's first, second … passing fails, until there is none left or `most` have failed."""
        ends = collections.Counter()
        for number in range(1, most + 1):
            def run(log, number=number):
                variables = failpoints.variables(self.dir, f"{step}:{kind}:{number}", log)
                ends[self.run_once(variables, number % 8 == 0)] += 1
            if failpoints.passed(run)[step] < number:
                break
        print(f"{step}: {dict(ends)}")
        return number

    def test_each_refusal_of_memory(self):
        self.assertLess(self.until_none_fails("memory.take", "enomem", MOST), MOST)

    def test_failures_of_sockets(self):
        for step in ("read", "write", "accept"):
            self.until_none_fails("socket." + step, "eio", SOCKETS)


if __name__ == "__main__":
    unittest.main()
