"""A process from start to end: ports, sockets, clusters of several processes, signals, draining."""
import os
import signal
import socket
import stat
import tempfile
import threading
import time
import unittest

from embd_process import Embd, run
from ports import free_ports
import wire


def thread_names(server, shards):
    """Thread id -> name, once all shards run."""
    for shard in range(shards):
        with wire.connect(server, shard) as w:
            w.call("ping")
    names = {}
    for task in os.listdir(f"/proc/{server.pid}/task"):
        with open(f"/proc/{server.pid}/task/{task}/comm", encoding="ascii") as comm:
            names[int(task)] = comm.read().strip()
    return names


def wait_for_requests(admin, n):
    """Until the server has begun `n` requests of others, which wait."""
    end = time.monotonic() + 20
    while admin.call("stats", {})[0]["stats"]["requests_in_flight"] < n + 1:
        assert time.monotonic() < end, "the request did not arrive"
        time.sleep(0.01)


class Start(unittest.TestCase):
    def test_port_0_gives_each_shard_a_port_and_prints_it(self):
        with Embd(shards=3) as server:
            self.assertEqual(len(set(server.addresses)), 3)
            for shard in range(3):
                with wire.connect(server, shard) as w:
                    self.assertEqual(w.call("hello", {"protocol": 1, "client": "t"})[0]["shard"], shard)

    def test_shards_take_ports_in_a_row(self):
        port = free_ports(3)
        with Embd(shards=3, listen=f"127.0.0.1:{port}") as server:
            self.assertEqual(server.addresses, [f"127.0.0.1:{port + i}" for i in range(3)])

    def test_a_port_in_use_is_exit_status_3_and_leaves_nothing_behind(self):
        with Embd() as server, tempfile.TemporaryDirectory() as admin:
            result = run("--listen", server.addresses[0], "--admin-dir", admin)
            self.assertEqual(result.returncode, 3)
            self.assertIn("address already in use", result.stderr)
            self.assertIn(str(server.port()), result.stderr)
            self.assertEqual(os.listdir(admin), [])

    def test_the_threads_have_names_and_the_log_one_line_for_each_event(self):
        with Embd(shards=2) as server:
            self.assertLessEqual({"embd-shard-0", "embd-shard-1"}, set(thread_names(server, 2).values()))
            for line in server.log().splitlines():
                self.assertRegex(line, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warn|error) [a-z_]+( .*)?$")

    def test_cpus_pin_the_shard_threads(self):
        with Embd("--cpus", "0", shards=2) as server:
            pinned = [os.sched_getaffinity(task) for task, name in thread_names(server, 2).items()
                      if name.startswith("embd-shard")]
            self.assertEqual(pinned, [{0}, {0}])

    def test_threads_that_work_for_a_pinned_shard_keep_off_its_processor(self):
        with tempfile.TemporaryDirectory() as data, Embd("--cpus", "0", "--data-dir", data) as server:
            names, end = [], time.monotonic() + 60
            while "embd-journal" not in names:
                self.assertLess(time.monotonic(), end, f"no thread has named itself embd-journal: {names}")
                threads = {name: os.sched_getaffinity(task) for task, name in thread_names(server, 1).items()}
                names = list(threads)
            self.assertEqual(threads["embd-shard-0"], {0})
            others = os.sched_getaffinity(0) - {0} or {0}
            self.assertEqual([threads["embd-journal"], os.sched_getaffinity(server.pid)], [others, others])


class Admin(unittest.TestCase):
    def test_the_socket_is_private_serves_admin_methods_and_goes_with_the_process(self):
        server = Embd()
        with server:
            path = server.admin_path()
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
            self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
            with wire.Wire(path) as admin:
                self.assertEqual(admin.call("hold", {"timeout_ms": 1000}), [{}])
                self.assertIn("held_us", admin.call("release")[0])
                with self.assertRaises(wire.RpcError) as caught:
                    admin.call("pull", {"parts": []})
                self.assertEqual(caught.exception.number, wire.UNKNOWN_METHOD)
            server.terminate()
            self.assertEqual(server.wait(), 0)
            self.assertFalse(os.path.exists(path))

    def test_a_socket_left_by_a_killed_process_is_replaced_a_living_one_is_not(self):
        with tempfile.TemporaryDirectory() as admin:
            port = free_ports(1)
            first = Embd("--admin-dir", admin, listen=f"127.0.0.1:{port}")
            path = os.path.join(admin, f"{port}.sock")
            first.process.kill()
            first.wait()
            self.assertTrue(os.path.exists(path))
            with Embd("--admin-dir", admin, listen=f"127.0.0.1:{port}"):
                with wire.Wire(path) as w:
                    w.call("ping")
            first.kill()
            with socket.socket(socket.AF_UNIX) as living:
                living.bind(path)
                living.listen()
                result = run("--admin-dir", admin, "--listen", f"127.0.0.1:{port}")
                self.assertEqual(result.returncode, 3)
                self.assertIn(path, result.stderr)
                self.assertTrue(os.path.exists(path))

    def test_a_directory_others_can_write_to_is_refused(self):
        with tempfile.TemporaryDirectory() as admin:
            os.chmod(admin, 0o777)
            result = run("--listen", "127.0.0.1:0", "--admin-dir", admin)
            self.assertEqual(result.returncode, 3)
            self.assertIn("0777", result.stderr)

    def test_a_hold_that_ends_by_itself_is_logged(self):
        with Embd() as server, wire.Wire(server.admin_path()) as admin:
            admin.call("hold", {"timeout_ms": 50})
            server.wait_log('hold_lost shard=0 why="its timeout has passed"')

    def test_a_hold_ends_with_the_connection_that_asked_for_it(self):
        with Embd() as server, wire.connect(server) as w:
            table = wire.create(w, "held", dim=1)
            admin = wire.Wire(server.admin_path())
            admin.call("hold", {"timeout_ms": 60000})
            w.begin("push", {"parts": [{"table": table, "keys": 1}]}, wire.keys([1]), wire.floats([2.0]))
            w.socket.settimeout(0.3)
            with self.assertRaises(TimeoutError):
                w.receive()
            admin.close()
            w.socket.settimeout(5)
            self.assertIsNone(w.receive()[2])
            self.assertEqual(wire.pull(w, table, [1]), [0.0])


class Cluster(unittest.TestCase):
    def test_two_processes_of_one_file_form_a_cluster(self):
        port = free_ports(4)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "embd.yaml")
            with open(path, "w", encoding="ascii") as out:
                out.write(f"shards: 2\nadmin_dir: {folder}/admin\ncluster:\n  name: pair\n  servers:\n"
                          f"    - {{name: a, listen: \"127.0.0.1:{port}\"}}\n"
                          f"    - {{name: b, listen: \"127.0.0.1:{port + 2}\"}}\n")
            flags = ["--config", path, "--admin-dir", f"{folder}/admin"]
            with Embd(*flags, "--server", "a", listen=None, shards=2) as a, \
                 Embd(*flags, "--server", "1", listen=None, shards=2) as b:
                self.assertEqual(a.addresses + b.addresses, [f"127.0.0.1:{port + i}" for i in range(4)])
                maps = []
                for server, shard, index in ((a, 0, 0), (a, 1, 1), (b, 0, 2), (b, 1, 3)):
                    with wire.connect(server, shard) as w:
                        cluster = w.call("cluster")[0]
                        self.assertEqual((cluster["name"], cluster["shard"]), ("pair", index))
                        maps.append(cluster["shards"])
                self.assertEqual([s["address"] for s in maps[0]], a.addresses + b.addresses)
                self.assertTrue(all(m == maps[0] for m in maps))
                for entry in maps[0]:
                    with wire.Wire(entry["admin"]) as admin:
                        admin.call("ping")


class End(unittest.TestCase):
    def ends(self, server, seconds=5):
        begin = time.monotonic()
        self.assertEqual(server.wait(), 0)
        self.assertLess(time.monotonic() - begin, seconds)

    def test_sigterm_and_sigint_end_an_idle_process_with_status_0(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Embd(shards=2) as server, wire.connect(server) as idle:
                idle.call("ping")
                server.process.send_signal(number)
                self.assertIsNone(idle.receive())
                self.ends(server, 3)

    def test_the_admin_method_drain_ends_it_too(self):
        with Embd(shards=2) as server:
            with wire.Wire(server.admin_path(1)) as admin:
                self.assertEqual(admin.call("drain"), [{}])
            self.ends(server)

    def test_an_answer_in_flight_is_sent_to_its_end(self):
        with Embd() as server, wire.connect(server) as w:
            table = wire.create(w, "long", dim=256, value=1.0)
            n = 30000  # 30 MB: much more than the sockets hold
            w.begin("pull", {"parts": [{"table": table, "keys": n}]}, wire.keys(range(n)))
            time.sleep(0.2)
            server.terminate()
            server.wait_log("draining")
            with self.assertRaises(OSError):
                wire.connect(server).close()
            answer = w.receive()
            self.assertEqual(len(answer[3][1]), n * 256 * 4)
            self.assertEqual(set(wire.unfloats(answer[3][1])), {1.0})
            self.assertIsNone(w.receive())
            self.ends(server)

    def test_new_work_is_refused_and_a_push_that_waited_is_answered_so_too(self):
        """While an answer is under way; then it ends at once."""
        with Embd() as server, wire.connect(server) as w, wire.connect(server) as late, wire.connect(server) as slow, \
             wire.Wire(server.admin_path()) as admin:
            table, n = wire.create(w, "waiting", dim=1), 30000
            slow.begin("pull", {"parts": [{"table": wire.create(w, "long", dim=256), "keys": n}]}, wire.keys(range(n)))
            wait_for_requests(admin, 1)
            late.call("ping")
            admin.call("hold", {"timeout_ms": 60000})
            w.begin("push", {"parts": [{"table": table, "keys": 1}]}, wire.keys([1]), wire.floats([1.0]))
            wait_for_requests(admin, 2)
            server.terminate()
            server.wait_log("draining")
            with self.assertRaises(wire.RpcError) as caught:
                wire.push(late, table, [2], [1.0])
            self.assertEqual(caught.exception.number, wire.DRAINING)
            admin.call("release")
            self.assertEqual(w.receive()[2][0], wire.DRAINING)
            self.assertEqual(len(slow.receive()[3][1]), n * 256 * 4)
            self.ends(server)

    def test_a_second_signal_ends_it_at_once(self):
        with Embd() as server, wire.connect(server) as w, wire.Wire(server.admin_path()) as admin:
            table = wire.create(w, "stuck", dim=1)
            admin.call("hold", {"timeout_ms": 60000})
            w.begin("push", {"parts": [{"table": table, "keys": 1}]}, wire.keys([1]), wire.floats([1.0]))
            wait_for_requests(admin, 1)
            server.terminate()
            server.wait_log("draining")
            self.assertTrue(server.is_alive())
            server.terminate()
            self.assertEqual(server.wait(), 1)

    def test_a_drain_in_the_midst_of_traffic_answers_or_refuses_everything(self):
        with Embd(shards=1) as server:
            with wire.connect(server) as w:
                table = wire.create(w, "busy", dim=4)
            problems = []

            def work():
                try:
                    with wire.connect(server) as mine:
                        while True:
                            mine.begin("push", {"parts": [{"table": table, "keys": 100}]}, wire.keys(range(100)),
                                       wire.floats([0.0] * 400))
                            answer = mine.receive()
                            if answer is None:
                                return
                            if answer[2] is not None and answer[2][0] != wire.DRAINING:
                                problems.append(answer[2])
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the stream ended between two requests

            workers = [threading.Thread(target=work) for _ in range(4)]
            for worker in workers:
                worker.start()
            time.sleep(0.3)
            server.terminate()
            self.ends(server)
            for worker in workers:
                worker.join()
            self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main()
