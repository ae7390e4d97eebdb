"""Flags and the configuration file: what is accepted, and how mistakes are told (exit status 2, and the place)."""
import os
import re
import tempfile
import unittest

from embd_process import BIN, Embd, run
import wire


def has_ipv6_loopback():
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as addresses:
            return "0" * 31 + "1 " in addresses.read()
    except FileNotFoundError:
        return False


class Config(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory(prefix="embd-test-")
        self.addCleanup(self.dir.cleanup)

    def file(self, text):
        path = os.path.join(self.dir.name, "embd.yaml")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def refused(self, flags, *texts):
        result = run(*flags)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        for text in texts:
            self.assertIn(text, result.stderr)

    def refused_file(self, text, place, *texts, flags=()):
        path = self.file(text)
        self.refused(["--config", path, *flags], f"{path}:{place}: " if place else path, *texts)

    def test_help_and_version_exit_0(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        for text in ("--shards", "--config", "cluster:", "Exit status"):
            self.assertIn(text, result.stdout)
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^embd \d+\.\d+\.\d+\n$")

    def test_flags_nobody_knows(self):
        self.refused(["--sharts", "2"], "--sharts")
        self.refused(["extra"], "extra")

    def test_flags_with_values_out_of_range_name_flag_value_and_range(self):
        self.refused(["--shards", "0"], "--shards", "0", "1 to 1024")
        self.refused(["--shards", "two"], "--shards", "two")
        self.refused(["--stall-timeout", "-1"], "--stall-timeout", "-1")
        self.refused(["--frame-memory", "12Q"], "--frame-memory", "12Q")
        self.refused(["--frame-memory", "1K"], "--frame-memory", "1K", "83886080")
        self.refused(["--frame-memory", "99999999999999999999"], "--frame-memory")
        self.refused(["--frame-memory", "101%"], "--frame-memory", "101%")
        self.refused(["--cpus", "0,,1"], "--cpus", "0,,1")
        self.refused(["--log-level", "loud"], "--log-level", "loud", "debug")
        self.refused(["--store", "tape"], "tape", "host")
        self.refused(["--store", "nccl", "--gpu-way", "bus"], "--gpu-way", "bus", "auto, peer, nccl")
        self.refused(["--store", "nccl", "--gpu-sums", "all"], "--gpu-sums", "all", "exact, partial")

    def test_addresses_other_machines_can_reach_are_refused(self):
        for address in ("0.0.0.0:7700", "[::]:7700", "192.168.1.1:7700"):
            self.refused(["--listen", address], "--listen", address, "TLS", "tokens")
        for address in ("7700", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:7x", "[::1:5", "example.org:1"):
            self.refused(["--listen", address], "--listen", address)

    def test_http_is_reached_from_elsewhere_only_where_somebody_says_so(self):
        for address in ("0.0.0.0:0", "[::]:0", "192.168.1.1:7780"):
            self.refused(["--http", address], "--http", address, "neither TLS nor tokens", "http_open")
        self.refused_file("shards: 1\nhttp: 0.0.0.0:7780\n", "2:7", "http_open")
        self.refused(["--http-open", "maybe"], "--http-open", "'maybe'", "not yes or no")
        with Embd("--http", "0.0.0.0:0", "--http-open", "yes") as server:
            self.assertIn("http on 0.0.0.0:", server.process.stdout.readline())
        path = self.file("http: 0.0.0.0:7780\nhttp_open: yes\n")
        self.assertEqual(run("--config", path, "--check").returncode, 0)

    def test_with_few_descriptors_there_are_fewer_connections_and_the_log_says_why(self):
        program = self.dir.name + "/embd"
        with open(program, "w", encoding="ascii") as script:
            script.write(f'#!/bin/sh\nulimit -n 500\nexec {BIN} "$@"\n')
        os.chmod(program, 0o755)
        with Embd("--http", "off", program=program) as server:
            self.assertIn("few_descriptors limit=500 needed=", server.log())
            limit = int(re.search(r"max_connections=(\d+) asked=4096 ", server.log()).group(1))
            self.assertIn(limit, range(50, 300))
            peers = [wire.connect(server) for _ in range(limit + 1)]
            _, _, (number, text) = peers[-1].receive()
            self.assertEqual(number, wire.BUSY)
            self.assertIn(f"the limit is {limit}", text)
            peers[limit - 1].call("ping")
            with wire.Wire(server.admin_path()) as admin:
                admin.call("ping")
            for peer in peers:
                peer.close()
        with Embd("--http", "off", "--max-connections", str(limit), program=program) as server:
            self.assertNotIn("few_descriptors", server.log())

    def test_ports_that_pass_the_last_one(self):
        self.refused(["--listen", "127.0.0.1:65535", "--shards", "2"], "65535")

    def test_an_admin_path_too_long_for_a_socket(self):
        result = run("--listen", "127.0.0.1:0", "--admin-dir", self.dir.name + "/" + "d" * 120)
        self.assertEqual(result.returncode, 3)
        self.assertIn("limit is 107", result.stderr)

    def test_a_file_that_is_not_there(self):
        self.refused(["--config", "/nowhere/embd.yaml"], "/nowhere/embd.yaml", "No such file")

    def test_yaml_that_cannot_be_read_names_line_and_column(self):
        self.refused_file("shards: 1\nlisten: [1\n", "3:1", "")
        self.refused_file("shards: 1\n\tlisten: 1\n", "2:1", "")

    def test_unknown_keys_name_line_and_column(self):
        self.refused_file("shards: 1\nshard: 2\n", "2:1", "unknown key 'shard'")
        self.refused_file("cluster:\n  servers:\n    - listen: \"127.0.0.1:1\"\n      colour: red\n", "4:7",
                          "unknown key 'colour'")

    def test_keys_given_twice(self):
        self.refused_file("shards: 1\nshards: 2\n", "2:1", "'shards' is given twice")

    def test_values_of_the_wrong_kind(self):
        self.refused_file("shards: [1, 2]\n", "1:9", "shards is a list, expected a single value")
        self.refused_file("cluster: 5\n", "1:10", "cluster is a single value, expected a map")
        self.refused_file("cluster: {servers: 5}\n", "1:20", "expected a list")
        self.refused_file("cluster: {servers: []}\n", "1:20", "0 entries")
        self.refused_file("- 1\n", "1:1", "expected a map")

    def test_values_that_make_no_sense_name_line_and_column(self):
        self.refused_file("store: host\nshards: many\n", "2:9", "shards", "many")
        self.refused_file("shards: 2000\n", "1:9", "shards", "2000", "1024")
        self.refused_file("listen: 0.0.0.0:1\n", "1:9", "listen", "0.0.0.0:1", "TLS")
        self.refused_file("frame_memory: lots\n", "1:15", "frame_memory", "lots")
        self.refused_file("cluster:\n  servers:\n  - {listen: \"127.0.0.1:1\", shards: x}\n", "3:37", "shards", "'x'")

    def test_settings_of_the_nccl_store_are_for_that_store(self):
        self.refused(["--gpu-way", "peer"], "--gpu-way", "store nccl", "auto")
        self.refused_file("store: host\ngpu_sums: partial\n", "2:11", "gpu_sums", "store nccl", "host")
        self.refused_file("store: nccl\ngpu_way: nvlink\n", "2:10", "gpu_way", "nvlink", "auto, peer, nccl")
        path = self.file("store: nccl\ngpu_way: peer\ngpu_sums: partial\n")
        result = run("--config", path, "--check", "--http", "off")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_list_of_servers_needs_to_know_which_one_this_is(self):
        two = "cluster:\n  servers:\n    - {name: a, listen: \"127.0.0.1:7700\"}\n    - {name: b, listen: \"%s\"}\n"
        self.refused_file(two % "127.0.0.1:7800", "", "--server", "2 servers")
        self.refused_file(two % "127.0.0.1:7800", "", "--server", "'c'", flags=["--server", "c"])
        self.refused_file(two % "127.0.0.1:7800", "", "--server", "'2'", flags=["--server", "2"])
        self.refused_file(two % "127.0.0.1:7800", "", "--shards", flags=["--server", "a", "--shards", "2"])
        self.refused_file(two % "127.0.0.1:0", "4:25", "port 0 is not allowed", flags=["--server", "a"])
        self.refused_file(two % "127.0.0.1:7700", "4:25", "7700", "server 0", flags=["--server", "a"])

    def test_flags_win_over_the_file(self):
        path = self.file("shards: 3\nlisten: 127.0.0.1:1\ncluster:\n  name: shop\n")
        with Embd("--config", path, shards=2) as server, wire.connect(server, 1) as w:
            cluster = w.call("cluster")[0]
            self.assertEqual((cluster["name"], len(cluster["shards"])), ("shop", 2))

    def test_the_file_alone_is_enough(self):
        path = self.file("shards: 3\nlisten: 127.0.0.1:0\nstall_timeout: 5\nframe_memory: 256M\ncpus: 0\n")
        with Embd("--config", path, listen=None, shards=3) as server, wire.connect(server, 2) as w:
            self.assertEqual(w.call("hello", {"protocol": 1, "client": "t"})[0]["shards"], 3)

    def test_a_push_limit_leaves_room_in_frame_memory(self):
        for memory, limit, says in [("256M", "86M", "89478485"), ("8G", "1025M", "1073741824"), ("80M", "65M", "67108864"),
                                    ("256M", "63M", "67108864")]:
            with self.subTest(memory=memory, limit=limit):
                told = run("--frame-memory", memory, "--push-limit", limit)
                self.assertEqual(told.returncode, 2)
                self.assertIn(says, told.stderr)
                self.assertIn("push-limit", told.stderr)
        for memory, limit in [("256M", 89478485), ("8G", 1 << 30), ("80M", 64 << 20)]:
            with self.subTest(memory=memory), Embd("--frame-memory", memory) as server, wire.connect(server) as w:
                self.assertEqual(w.call("hello", {"protocol": 1})[0]["push_bytes"], limit)

    def test_localhost_and_ipv6_loopback_are_allowed(self):
        with Embd(listen="localhost:0") as server, wire.connect(server) as w:
            w.call("ping")
        if has_ipv6_loopback():
            with Embd(listen="[::1]:0") as server, wire.Wire(("::1", server.port())) as w:
                self.assertTrue(server.addresses[0].startswith("[::1]:"))
                w.call("ping")


if __name__ == "__main__":
    unittest.main()
