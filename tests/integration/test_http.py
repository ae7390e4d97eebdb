"""The HTTP port of real processes: pages, health, metrics that Prometheus reads, and peers that misbehave."""
import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import unittest

from embd_process import Embd, run
import wire

PAGES = ["/", "/metrics", "/livez", "/readyz", "/healthz", "/statusz.json"]


def http_address(server):
    """The process says it on stdout after its shards."""
    line = server.process.stdout.readline()
    return re.fullmatch(r"embd: http on (\S+)\n", line).group(1)


def get(address, path, method="GET"):
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read().decode()
    finally:
        connection.close()


def samples(text):
    """{'name{labels}': value} of a metrics page."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def use(server, shard=0):
    """A table with two rows pushed, pulled twice; then a push and a pull that are large enough to be split into
    stages each."""
    keys = wire.owned(4096, shard, len(server.addresses))
    with wire.connect(server, shard) as peer:
        table = wire.create(peer, "http")
        wire.push(peer, table, keys[:2], range(8))
        for _ in range(2):
            wire.pull(peer, table, keys[:2])
        table = wire.create(peer, "large")
        wire.push(peer, table, keys, [1.0] * 4 * 4096)
        wire.pull(peer, table, keys)


def lose_rows(server):
    """A bounded table of each policy: one row goes for another, one by an erase, one for a lower capacity."""
    keys = wire.owned(4, 0, 2)
    with wire.connect(server) as peer:
        for policy, more in (("evict_lru", {}), ("evict_lfu", {}), ("evict_ttl", {"ttl": 1}), ("evict_score", {})):
            name = policy.replace("_", "-")
            table = wire.create(peer, name, capacity=3, on_full=policy, **more)
            wire.push(peer, table, keys[:3], range(12))
            for key in keys[:2], keys[3:]:  # the third has expired when the fourth comes
                wire.push(peer, table, key, [1.0] * 4 * len(key))
            peer.call("erase", {"parts": [{"table": table, "keys": 1}]}, wire.keys(keys[3:]))
            wire.push(peer, table, [], [])
            peer.call("table_set", {"name": name, "set": {"capacity": 1}})


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Embd("--http", "127.0.0.1:0", shards=2)
        cls.addClassCleanup(cls.server.stop)
        cls.address = http_address(cls.server)
        use(cls.server)
        cls.first = samples(get(cls.address, "/metrics")[2])

    def test_every_page_answers_get_and_head_with_its_length(self):
        for page in PAGES:
            status, headers, body = get(self.address, page)
            self.assertEqual(status, 200, page)
            self.assertEqual(int(dict(headers)["Content-Length"]), len(body.encode()))
            self.assertIn("default-src 'none'", dict(headers)["Content-Security-Policy"])
            status, _, body = get(self.address, page, "HEAD")
            self.assertEqual((status, body), (200, ""))

    def test_health_pages_are_one_word_and_verbose_ones_name_each_shard(self):
        for page in ("/livez", "/readyz", "/healthz"):
            self.assertEqual(get(self.address, page)[2], "ok\n")
        body = get(self.address, "/readyz?verbose")[2]
        for shard in range(2):
            self.assertIn(f"[+]shard {shard} at {self.server.addresses[shard]} ok\n", body)

    def test_metrics_count_what_was_done(self):
        got = self.first
        self.assertEqual(got['embd_requests_total{shard="0",method="pull"}'], 3)
        self.assertEqual(got['embd_requests_total{shard="1",method="pull"}'], 0)
        self.assertEqual(got['embd_keys_pulled_total{shard="0"}'], 4 + 4096)
        self.assertEqual(got['embd_table_rows{shard="0",table="http"}'], 2)
        self.assertEqual(got['embd_request_duration_seconds_count{shard="0",method="push"}'], 2)
        self.assertGreater(got['embd_request_duration_seconds_sum{shard="0",method="push"}'], 0)
        self.assertEqual([k for k in got if k.startswith("embd_figure")], [])

    def test_metrics_say_why_rows_went(self):
        policies = ("evict_lru", "evict_lfu", "evict_ttl", "evict_score")
        lose_rows(self.server)
        got = samples(get(self.address, "/metrics")[2])
        for table in policies:
            for reason in (*policies, "erase", "capacity"):
                name = f'embd_table_lost_rows_total{{shard="0",table="{table.replace("_", "-")}",reason="{reason}"}}'
                self.assertEqual(got[name], reason not in policies or reason == table, name)
        with wire.connect(self.server) as peer:
            for table in policies:
                peer.call("table_drop", {"name": table.replace("_", "-")})

    def test_a_server_that_stood_still_shows_it_though_its_requests_took_no_time(self):
        with Embd("--http", "127.0.0.1:0", shards=2) as server:
            address = http_address(server)
            names = [f'embd_shard_late_{kind}{{shard="{shard}"}}' for kind in ("longest_seconds", "seconds_total") for shard in (0, 1)]
            before = samples(get(address, "/metrics")[2])
            server.pause()
            time.sleep(0.7)
            server.go_on()
            end = time.monotonic() + 20
            while min(samples(get(address, "/metrics")[2])[name] - before[name] for name in names) < 0.5:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)

    def test_stages_of_large_requests_add_up_to_their_duration(self):
        before = samples(get(self.address, "/metrics")[2])
        with wire.connect(self.server) as peer:
            for _ in range(20):
                wire.pull(peer, wire.create(peer, "large"), wire.owned(4096, 0, 2))
        after = samples(get(self.address, "/metrics")[2])
        grown = {name: value - before[name] for name, value in after.items() if 'shard="0",method="pull"' in name}
        whole = grown['embd_request_duration_seconds_sum{shard="0",method="pull"}']
        stages = [value for name, value in grown.items() if name.startswith("embd_stage_duration_seconds_sum{")]
        self.assertEqual(len(stages), 5)
        self.assertAlmostEqual(sum(stages), whole, delta=whole * 0.01)

    def test_one_small_request_in_32_is_split_and_counts_32_times(self):
        with wire.connect(self.server, 1) as peer:
            table = wire.create(peer, "small")
            for _ in range(320):
                wire.pull(peer, table, wire.owned(1, 1, 2))
        got = samples(get(self.address, "/metrics")[2])
        self.assertAlmostEqual(got['embd_stage_duration_seconds_count{shard="1",method="pull",stage="store"}'], 320, delta=32)

    def test_buckets_rise_to_the_count(self):
        got = samples(get(self.address, "/metrics")[2])
        before = {}
        for name, value in got.items():
            match = re.fullmatch(r'(\w+)_bucket\{(.*),le="(.*)"\}', name)
            if not match:
                continue
            key = match[1], match[2]
            self.assertGreaterEqual(value, before.get(key, 0), name)
            before[key] = value
            if match[3] == "+Inf":
                self.assertEqual(value, got[f"{match[1]}_count{{{match[2]}}}"])
        self.assertGreater(len(before), 20)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed (Debian: prometheus)")
    def test_promtool_finds_no_fault_with_the_metrics(self):
        text = get(self.address, "/metrics")[2]
        check = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True,
                               timeout=60, check=False)
        self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""))

    def test_statusz_is_json_with_the_figures_of_stats(self):
        status = json.loads(get(self.address, "/statusz.json")[2])
        self.assertEqual(status["cluster_shards"], 2)
        self.assertEqual([s["address"] for s in status["shards"]], self.server.addresses)
        with wire.connect(self.server) as peer:
            stats = peer.call("stats")[0]
        self.assertEqual(set(status["shards"][0]["figures"]),
                         {name for name in stats["stats"] if not name.startswith("requests_") or
                          name in ("requests_parked", "requests_in_flight")})
        self.assertEqual(status["shards"][0]["tables"][0]["name"], "http")
        self.assertEqual(status["shards"][0]["tables"][0]["figures"]["rows"], 2)
        self.assertGreaterEqual(status["shards"][0]["methods"]["pull"]["requests"], 3)

    def test_what_is_no_request_is_refused_by_status(self):
        self.assertEqual(get(self.address, "/nothing")[0], 404)
        self.assertEqual(get(self.address, "/", "DELETE")[0], 405)
        for sent, status in ((b"\x94\x00\x01", b"400"), (b"GET / HTTP/3.0\r\n\r\n", b"505"),
                             (b"GET /" + b"x" * 300 + b" HTTP/1.1\r\n\r\n", b"414"),
                             (b"GET / HTTP/1.1\r\nCookie: " + b"x" * (16 << 10), b"431")):
            with socket.create_connection(self.server_http(), timeout=10) as peer:
                peer.sendall(sent)
                self.assertEqual(peer.makefile("rb").readline().split()[1], status, sent[:20])

    def server_http(self):
        host, port = self.address.rsplit(":", 1)
        return host, int(port)

    def test_peers_that_ask_for_nothing_keep_no_probe_out(self):
        peers = [socket.create_connection(self.server_http(), timeout=10) for _ in range(64)]
        try:
            for _ in range(10):
                self.assertEqual(get(self.address, "/livez")[0], 200)
            self.assertEqual(peers[0].recv(1), b"")  # the oldest went for it
            peers[-1].settimeout(0)
            with self.assertRaises(BlockingIOError):
                peers[-1].recv(1)
        finally:
            for peer in peers:
                peer.close()

    def test_scrapes_from_many_threads_while_requests_go_on(self):
        failures = []

        def scrape():
            for page in PAGES * 5:
                if get(self.address, page)[0] != 200:
                    failures.append(page)
        threads = [threading.Thread(target=scrape) for _ in range(8)]
        for thread in threads:
            thread.start()
        with wire.connect(self.server, 1) as peer:
            for _ in range(500):
                peer.call("ping", {})
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Hosts(unittest.TestCase):
    def test_a_page_of_another_site_cannot_read_ours_through_a_browser(self):
        with Embd("--http", "127.0.0.1:0") as server:
            connection = http.client.HTTPConnection(http_address(server), timeout=10)
            connection.request("GET", "/metrics", headers={"Host": "evil.example"})  # a name that it had turned to 127.0.0.1
            self.assertEqual(connection.getresponse().status, 421)
        with Embd("--http", "0.0.0.0:0", "--http-open", "yes") as server:  # reached by any name
            port = http_address(server).rsplit(":", 1)[1]
            connection = http.client.HTTPConnection(f"127.0.0.1:{port}", timeout=10)
            connection.request("GET", "/livez", headers={"Host": "node7.example"})
            self.assertEqual(connection.getresponse().status, 200)


class Life(unittest.TestCase):
    def test_a_peer_that_rests_within_its_head_is_dropped(self):
        with Embd("--http", "127.0.0.1:0") as server:
            host, port = http_address(server).rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=15) as peer:
                peer.sendall(b"GET / HT")
                begin = time.monotonic()
                self.assertEqual(peer.recv(1), b"")
                self.assertGreater(time.monotonic() - begin, 4)

    def test_a_draining_process_is_alive_but_not_ready(self):
        with Embd("--http", "127.0.0.1:0") as server:
            address = http_address(server)
            with wire.connect(server) as slow:
                slow.send(wire.request(1, "ping", {})[:3])  # begun, so the drain waits for it
                self.await_in_flight(address)
                server.terminate()
                server.wait_log("draining")
                status, _, body = get(address, "/readyz?verbose")
                self.assertEqual(status, 503)
                self.assertIn("is draining", body)
                self.assertEqual(get(address, "/livez")[0], 200)
                slow.send(wire.request(1, "ping", {})[3:])
            self.assertEqual(server.wait(), 0)

    def await_in_flight(self, address):
        end = time.monotonic() + 10
        while samples(get(address, "/metrics")[2])['embd_requests_in_flight{shard="0"}'] == 0:
            self.assertLess(time.monotonic(), end)

    def test_off_and_a_port_that_is_taken(self):
        with Embd("--http", "off") as server:
            self.assertNotIn("http", server.log())
        with Embd("--http", "127.0.0.1:0") as server:
            taken = http_address(server)
            result = run("--http", taken, "--listen", "127.0.0.1:0", "--admin-dir", server.dir + "/admin")
            self.assertEqual(result.returncode, 3)
            self.assertIn(taken.rsplit(":", 1)[1], result.stderr)
        result = run("--http", "nowhere")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--http", result.stderr)


if __name__ == "__main__":
    unittest.main()
