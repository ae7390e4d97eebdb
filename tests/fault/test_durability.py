"""Servers are killed at each step of the disk while a table becomes durable and is pushed to. Each shard then has the old
contract, the rows of the last snapshot, or the new one, each push that was answered. Where the change was answered all
shards have the new one."""
import os
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock

import wire
from embd_process import Embd
from gate import Gate

EMBCTL = os.path.join(os.environ["EMBD_BIN"], "embctl")
SHARDS = 2
KEYS = [wire.owned(1, shard, SHARDS)[0] for shard in range(SHARDS)]


class Pusher(threading.Thread):
    """Adds 1 to a row until its server dies or it is stopped; `told`: how often that was answered, `asked`: how often it was
    asked for."""

    def __init__(self, server, shard):
        super().__init__(daemon=True)
        self.peer, self.key = wire.connect(server, shard, timeout=60), KEYS[shard]
        self.asked = self.told = 0
        self.stops = False
        self.start()

    def run(self):
        part = {"table": self.peer.call("table_describe", {"name": "t"})[0]["id"], "keys": 1}
        try:
            while not self.stops:
                self.asked += 1
                self.peer.call("push", {"parts": [part]}, wire.keys([self.key]), wire.floats([-1.0]))
                self.told += 1
                time.sleep(0.01)
        except (OSError, TypeError):  # it ended, also in the midst of an answer
            pass
        self.peer.close()


class Durability(unittest.TestCase):
    def setUp(self):
        self.data = tempfile.TemporaryDirectory(prefix="embd-data-")
        self.addCleanup(self.data.cleanup)

    def serve(self, gate=None, shards=SHARDS, **more):
        with unittest.mock.patch.dict(os.environ, gate.environment() if gate else {}):
            server = Embd("--data-dir", self.data.name, "--http", "off", "--store", "host", shards=shards, **more)
        self.addCleanup(server.kill)
        return server

    def begin(self, server):
        for shard in range(SHARDS):
            with wire.connect(server, shard) as peer:
                schema = wire.constant_schema("t", 1, 0.0, optimizer={"kind": "sgd", "lr": 1.0})
                table = peer.call("table_create", {"schema": schema})[0]["id"]
                wire.push(peer, table, [KEYS[shard]], [-1.0])
        self.embctl(server, "snapshot", "s")

    def embctl(self, server, *words):
        subprocess.run([EMBCTL, *words], env={**os.environ, "EMBD_SERVERS": server.addresses[0]}, check=True, timeout=60,
                       capture_output=True)

    def kill_at(self, step):
        """Whether the change was answered; and the pushers."""
        gate = Gate()
        self.addCleanup(gate.scratch.cleanup)
        server = self.serve(gate)
        self.begin(server)
        gate.close()
        asks = subprocess.Popen([EMBCTL, "table", "set", "t", "durability=durable"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, env={**os.environ, "EMBD_SERVERS": server.addresses[0]})
        pushers = [Pusher(server, shard) for shard in range(SHARDS)]
        end = time.monotonic() + 120  # of a test that hangs
        while asks.poll() is None and len(gate.passed) < step and time.monotonic() < end:
            for name in gate.waiting()[:step - len(gate.passed)]:
                gate.let(name)
            time.sleep(0.0005)
        was_answered = asks.poll() == 0
        server.kill()
        asks.kill()
        asks.wait()
        gate.open()
        for pusher in pushers:
            pusher.join(60)
        return was_answered, pushers

    def check(self, was_answered, pushers):
        server = self.serve()
        kept = []
        for shard, pusher in enumerate(pushers):
            with wire.connect(server, shard) as peer:
                told = peer.call("table_describe", {"name": "t"})[0]
                kept.append(told["schema"]["durability"])
                count = wire.pull(peer, told["id"], [KEYS[shard]])[0] - 1
                if kept[-1] == "snapshot":
                    self.assertEqual(count, 0)
                else:
                    self.assertIn(count, range(pusher.told, pusher.asked + 1))
        if was_answered:
            self.assertEqual(kept, ["durable"] * SHARDS)
        self.embctl(server, "table", "set", "t", "durability=durable")
        server.kill()
        server = self.serve()
        for shard in range(SHARDS):
            with wire.connect(server, shard) as peer:
                self.assertEqual(peer.call("table_describe", {"name": "t"})[0]["schema"]["durability"], "durable")
        server.kill()
        return kept

    def test_a_kill_at_each_step_leaves_the_old_contract_or_the_new_one(self):
        seen, step, was_answered = set(), 0, False
        while not was_answered:
            with self.subTest(step=step):
                was_answered, pushers = self.kill_at(step)
                seen.add(tuple(self.check(was_answered, pushers)))
            step += 3
            self.data.cleanup()
            self.setUp()
        self.assertIn(("snapshot",) * SHARDS, seen)
        self.assertIn(("durable",) * SHARDS, seen)
        self.assertIn(("durable", "snapshot"), seen)

    def test_a_push_to_a_table_that_was_to_become_durable_is_not_taken_for_applied(self):
        """Its record is there, but the base with the table's rows is not: its trainer is told."""
        gate = Gate()
        self.addCleanup(gate.scratch.cleanup)
        server, number = self.serve(gate), {"high": 7, "low": 9, "stream": 0, "sequence": 1}
        self.begin(server)
        with wire.connect(server, 0) as peer:
            wire.open_stream(peer, {"high": 7, "low": 9, "stream": 0}, False)
            part = {"table": peer.call("table_describe", {"name": "t"})[0]["id"], "keys": 1}
            gate.close()
            with gate.letting_all_but("renameat"):
                peer.call("table_set", {"name": "t", "set": {"durability": "durable"}})
                peer.call("push", {"parts": [part], "writer": number}, wire.keys([KEYS[0]]), wire.floats([-1.0]))
                self.assertEqual(peer.call("table_describe", {"name": "t"})[0]["becomes"], "durable")
        server.kill()
        gate.open()
        server = self.serve()
        with wire.connect(server, 0) as peer:
            for number["sequence"] in (1, 2):
                with self.assertRaisesRegex(wire.RpcError, "not known"):
                    peer.call("push", {"parts": [part], "writer": number}, wire.keys([KEYS[0]]), wire.floats([-1.0]))
            self.assertEqual(wire.pull(peer, part["table"], [KEYS[0]]), [1.0])

    def test_a_change_whose_server_was_started_again_is_not_said_to_be_done(self):
        gate = Gate()
        self.addCleanup(gate.scratch.cleanup)
        server = self.serve(gate, 1)
        with wire.connect(server) as peer:
            peer.call("table_create", {"schema": wire.constant_schema("t", 1, 0.0)})
        self.embctl(server, "snapshot", "s")
        gate.close()
        with gate.letting_all_but("renameat"):
            asks = subprocess.Popen([EMBCTL, "table", "set", "t", "durability=durable"], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True,
                                    env={**os.environ, "EMBD_SERVERS": server.addresses[0]})
            while not any(name.endswith("renameat") for name in gate.waiting()):
                self.assertIsNone(asks.poll())
                time.sleep(0.001)
            with wire.connect(server) as peer:
                self.assertEqual(peer.call("table_describe", {"name": "t"})[0]["becomes"], "durable")
        server.kill()
        gate.open()
        server = self.serve(None, 1, listen=server.addresses[0])
        said = asks.communicate(timeout=60)[1]
        with wire.connect(server) as peer:
            self.assertEqual(peer.call("table_describe", {"name": "t"})[0]["schema"]["durability"], "snapshot")
        self.assertNotEqual(asks.returncode, 0)
        self.assertNotEqual(said, "")


if __name__ == "__main__":
    unittest.main()
