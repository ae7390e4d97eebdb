"""Failover where single messages to etcd come late, or their answers get lost, and where a shard is busy. Skipped where there is no
etcd."""
import base64
import contextlib
import http.client
import http.server
import json
import os
import sys
import threading
import time
import unittest.mock

import numpy as np

import clusters
import embd
from test_failover import KEYS, LEASE_S, SECONDS, Failover, begins_anew

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
import gate  # noqa: E402

SLOW_SYNC = os.path.join(os.environ.get("EMBD_FAULT_TOOLS", ""), "libembd-slow-sync.so")


def plain(value, name=None):
    """The request with its keys and values as text."""
    if isinstance(value, dict):
        return {key: plain(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return base64.b64decode(value).decode() if name in ("key", "value", "range_end") else value


class Between:
    """To one address of etcd. `rule(path, request)` says of each request what becomes of it: None, it passes; "lost", it gets
    nowhere; "late", it comes to etcd at deliver(); "unanswered", it comes to etcd, and its answer gets lost."""

    def __init__(self, port):
        self.to, self.rule, self.late, self.seen, self.lock = port, lambda path, request: None, [], [], threading.Lock()
        between = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with contextlib.suppress(OSError, http.client.HTTPException):
                    between.take(self, body)

            def handle(self):
                with contextlib.suppress(OSError):
                    super().handle()

            def log_message(self, format, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port, self.thread = self.server.server_port, threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def take(self, handler, body):
        request = plain(json.loads(body))
        with self.lock:
            fate = self.rule(handler.path, request)
            if fate == "late":
                self.late.append((handler.path, body))
            self.seen.append((handler.path, request, fate))
        if fate in (None, "unanswered"):
            self.pass_on(handler, body, fate)
        handler.close_connection = handler.close_connection or fate is not None

    def pass_on(self, handler, body, fate):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.to, timeout=SECONDS)) as etcd:
            etcd.request("POST", handler.path, body, {"Content-Type": "application/json"})
            answer = etcd.getresponse()
            if handler.path == "/v3/watch":
                self.stream(handler, answer)
                return
            data = answer.read()
        if fate is None:
            handler.send_response(answer.status)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)

    @staticmethod
    def stream(handler, answer):
        """Until either side ends it."""
        handler.close_connection = True
        handler.send_response(answer.status)
        handler.send_header("Connection", "close")
        handler.end_headers()
        while data := answer.read1(1 << 16):
            handler.wfile.write(data)

    def deliver(self):
        """What is late, in the order in which it was sent; nobody waits for the answers any more."""
        for path, body in self.late:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.to, timeout=SECONDS)) as etcd:
                etcd.request("POST", path, body, {"Content-Type": "application/json"})
                etcd.getresponse().read()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def put_of(path, request, key):
    """What a transaction puts there; None: nothing."""
    if path != "/v3/kv/txn":
        return None
    puts = [item["request_put"] for item in request["success"] if "request_put" in item]
    return next((put["value"] for put in puts if put["key"].endswith(key)), None)


class Races(Failover):
    def way(self):
        """A way to etcd, and a configuration file that takes it."""
        between = Between(self.etcd.ports[0])
        self.addCleanup(between.close)
        path, self.file = self.file, os.path.join(self.data, f"between-{between.port}.yaml")
        self.write_file(f"127.0.0.1:{between.port}")
        path, self.file = self.file, path
        return between, path

    def start_behind(self, name):
        between, path = self.way()
        return between, self.start(name, path)

    def start_with(self, environment, *arguments):
        with unittest.mock.patch.dict(os.environ, environment):
            return self.start(*arguments)

    @begins_anew
    def test_a_list_of_followers_in_sync_that_comes_late_changes_nothing(self):
        """It names one that is gone, and that the primary no longer waits for."""
        way, _ = self.start_behind("x")
        self.until(lambda: self.primary() == "x")
        self.start("y")
        self.until(lambda: self.insync() == 1)
        trainers = self.train()

        def ids(path, request):
            text = put_of(path, request, "/insync/a")
            return None if text is None else len(json.loads(text)["ids"])

        way.rule = lambda path, request: "late" if ids(path, request) == 2 else None
        self.start("z")
        self.until(lambda: way.late)
        self.kill("z")
        n = len(way.seen)
        self.until(lambda: any(ids(path, request) == 1 and fate is None for path, request, fate in way.seen[n:]))
        self.go_on_pushing(*trainers)
        way.deliver()
        self.assertEqual(self.insync(), 1)
        way.rule = lambda path, request: None
        self.finish(*trainers)

    @begins_anew
    def test_a_follower_does_not_go_on_with_a_process_whose_place_was_taken(self):
        """That one lives, and stops serving; the one that takes its place tells of it until the map is changed."""
        old, x = self.start_behind("x")
        self.until(lambda: self.primary() == "x")
        other, _ = self.start_behind("y")
        taker, _ = self.start_behind("z")
        self.until(lambda: self.insync() == 2)
        trainers = self.train()
        other.rule = lambda path, request: "lost" if put_of(path, request, "/servers/a") else None
        is_held = threading.Event()
        is_held.set()
        taker.rule = lambda path, request: "lost" if is_held.is_set() and put_of(path, request, "/map") else None
        old.rule = lambda path, request: "lost"
        self.until(lambda: self.primary() == "z")
        self.until(lambda: any(fate == "lost" for _, _, fate in taker.seen))
        threading.Timer(1, is_held.clear).start()  # meanwhile y asks z where the shards are
        self.until(lambda: self.insync() == 1)
        self.go_on_pushing(*trainers)
        self.assertTrue(x.is_alive())
        old.rule = lambda path, request: None
        self.ends("x")
        self.finish(*trainers)

    def test_a_process_whose_place_is_taken_as_it_begins_to_serve_ends(self):
        """It has found that nobody has its name, and then somebody takes it, in the next epoch: it would wait for that one's end for good."""
        self.start("x")
        self.until(lambda: self.primary() == "x")
        self.kill("x")
        self.until(lambda: self.entry("servers") is None)
        epoch, other = self.entry("epoch"), {"id": "00000000000000aa", "node": "00000000000000bb"}
        way, path = self.way()

        def rule(asked, _):
            if asked == "/v3/lease/grant" and self.entry("servers") is None:
                self.etcd.put(f"{self.prefix}/epoch/a", json.dumps({**epoch, **other, "epoch": epoch["epoch"] + 1}))
                self.etcd.put(f"{self.prefix}/servers/a", json.dumps({**other, "address": "127.0.0.1:1", "admin": "/none", "admin_tcp": ""}))

        way.rule = rule
        self.start("x", path)
        self.ends("x")
        self.start("x").wait_log("stands_by", SECONDS)

    @begins_anew
    def test_a_follower_takes_over_though_etcd_is_silent_while_its_shards_are_promoted(self):
        """Their notes take their time on its disk."""
        self.begin("x")
        way, path = self.way()
        self.start_with({"LD_PRELOAD": SLOW_SYNC, "EMBD_FSYNC_MS": str(LEASE_S * 300)}, "y", path)
        self.until(lambda: self.insync() == 1)
        trainers = self.train()
        fates = iter(["lost"] * 3)

        def rule(path, request):
            is_taken = any(put_of(path, request, "/servers/a") for path, request, _ in way.seen)
            return next(fates, None) if is_taken and path == "/v3/lease/keepalive" else None

        way.rule = rule
        self.kill("x")
        self.until(lambda: self.primary() == "y")
        self.start("x")  # it may be the one that serves, if y had to let the name go
        self.go_on_pushing(*trainers)
        self.finish(*trainers)

    @begins_anew
    def test_a_follower_that_took_the_name_and_heard_so_too_late_takes_it_again(self):
        """Its lease has lapsed then; nobody else may take the name, since nobody is in sync with it."""
        self.begin("x")
        way, y = self.start_behind("y")
        self.until(lambda: self.insync() == 1)
        trainers = self.train()
        is_deaf = threading.Event()

        def rule(path, request):
            if is_deaf.is_set():
                return "lost"
            if put_of(path, request, "/servers/a"):
                is_deaf.set()
                return "unanswered"
            return None

        way.rule = rule
        self.kill("x")
        self.until(is_deaf.is_set)
        self.until(lambda: self.entry("servers") is None)
        way.rule = lambda path, request: None
        self.until(lambda: self.primary() == "y")
        self.assertTrue(y.is_alive())
        self.start("x")
        self.go_on_pushing(*trainers)
        self.finish(*trainers)

    @begins_anew
    def test_a_follower_whose_shards_were_busy_when_it_had_the_name_takes_it_again(self):
        """They are given 10 s to be ready; its disk does not sync a change of a durable table for longer."""
        self.begin("x")
        disk = gate.Gate()
        self.addCleanup(disk.scratch.cleanup)
        y = self.start_with(disk.environment(), "y")
        self.until(lambda: self.insync() == 1)
        with embd.connect(self.addresses(), deadline=SECONDS) as client:
            table = client.create_table("d", 2, durability="durable")
            self.compare()
            disk.close()
            table.push(KEYS, np.ones((len(KEYS), 2)))
        self.until(disk.waiting)
        self.kill("x")
        y.wait_log("not_promoted", SECONDS)
        disk.open()
        self.until(lambda: self.primary() == "y")
        self.start("x")
        self.until(lambda: self.insync() == 1)
        self.finish(*self.train())

    @begins_anew
    def test_a_follower_in_sync_that_begins_anew_does_not_take_over_before_it_has_all(self):
        """A table comes into the journal with a base that is older than what the follower had; the primary stands still as soon as
        that is there, and the follower lacks what was acknowledged since."""
        theirs, disk = gate.Gate(), gate.Gate()
        self.addCleanup(theirs.scratch.cleanup)
        self.addCleanup(disk.scratch.cleanup)
        x = self.start_with(theirs.environment(), "x")
        self.until(lambda: self.primary() == "x")
        y = self.start_with(disk.environment(), "y")
        self.until(lambda: self.insync() == 1)
        trainers = self.train()
        client = embd.connect(self.addresses(), deadline=SECONDS)
        self.addCleanup(client.close)
        client.create_table("s", 2, durability="snapshot")
        n = y.log().count("follow_has_base")

        def change():
            with contextlib.suppress(embd.Error):  # where it waits for the follower when the primary stands still
                client.set_table("s", durability="replicated")

        setting = threading.Thread(target=change, daemon=True)
        theirs.close()
        with theirs.letting_all_but("renameat"):
            setting.start()
            self.until(lambda: any(name.endswith("renameat") for name in theirs.waiting()))
            self.go_on_pushing(*trainers)  # these are behind the base, which is about to be there
            disk.close()
            theirs.open()
        while y.log().count("follow_has_base") == n:
            for name in disk.waiting():
                disk.let(name)
            self.tend()
            time.sleep(0.01)
        self.assertIn("follow_begins_anew", y.log())
        x.pause()
        disk.open()
        self.until(lambda: self.entry("servers") is None)
        time.sleep(LEASE_S)
        self.assertIsNone(self.primary())
        x.go_on()
        self.go_on_pushing(*trainers)
        setting.join(SECONDS)
        client.set_table("s", durability="replicated")
        self.until(lambda: self.insync() == 1)
        self.finish(*trainers)

    @begins_anew
    def test_keeping_aside_that_was_interrupted_goes_on_at_the_next_start(self):
        """The journals of a process that had served are in a directory aside, and the notes that they are its own are not yet. Its
        sockets, which are below, stay."""
        self.begin("x", "y")
        trainers = self.train()
        self.kill("x")
        self.until(lambda: self.primary() == "y")
        self.start("x")
        self.until(lambda: self.insync() == 1)
        self.go_on_pushing(*trainers)
        self.kill("y")
        self.until(lambda: self.primary() == "x")
        path = os.path.join(self.data, "y")
        os.mkdir(os.path.join(path, "aside-2-1"))
        for name in os.listdir(path):
            if name.startswith("journal"):
                os.rename(os.path.join(path, name), os.path.join(path, "aside-2-1", name))
        y = self.start("y", admin=os.path.join(path, "admin"))
        self.until(lambda: self.insync() == 1)
        self.assertTrue(os.path.exists(y.admin_path(0)), os.listdir(path))
        self.finish(*trainers)


if __name__ == "__main__":
    clusters.main()
