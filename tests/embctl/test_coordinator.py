"""Snapshots and dumps are coordinated by a server: whoever asked may die or hang at any moment, and so may the
coordinator, and nobody waits for either.

A server's syncs are made slow (slow_sync.c) where a phase has to last long enough to be met; half a push, which one
shard has and another not, keeps a cut in the phase `hold`."""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from embctl import EMBCTL, OK, REFUSED, UNREACHABLE, USAGE, Embd, Scratch, embctl, embctl_json, environment, run_cases  # noqa: E402
from certificates import Authority, Tokens  # noqa: E402
import partfiles  # noqa: E402
from ports import free_ports  # noqa: E402
from wire import RpcError, Wire, floats, keys, owned, request  # noqa: E402

FAULT = os.environ.get("EMBD_FAULT_BIN", os.path.join(os.environ.get("EMBD_BIN", "build/release/bin"), "..", "tests", "fault"))
SLOW = os.path.join(FAULT, "libembd-slow-sync.so")
QUIET_S = 10  # after which the coordinator gives an asker up
AT_ONCE_S = QUIET_S / 2  # what waits for nobody takes less than that, on a slow host too
HOLD_S = 60  # after which a shard ends a hold by itself


@contextlib.contextmanager
def slow(ms):
    """Servers that start meanwhile have slow syncs."""
    made = {"LD_PRELOAD": os.path.abspath(SLOW), "EMBD_FSYNC_MS": str(ms),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    with unittest.mock.patch.dict(os.environ, made):
        yield


def create(server, durability="snapshot"):
    embctl(server, "table", "create", "items", "--dim", 4, "--optimizer", "sgd", "--lr", 1, "--initializer", "constant",
           "--set", "initializer.a=0", "--set", f"durability={durability}")


def table_id(server):
    with Wire(("127.0.0.1", server.port())) as wire:
        return wire.call("tables", {})[0]["tables"][0]["id"]


class Pusher:
    """Pushes to every shard all the time, and knows how long the longest push took."""

    def __init__(self, addresses, table, hello=None):
        self.wires = [Wire(("127.0.0.1", int(a.rsplit(":", 1)[1])), timeout=60) for a in addresses]
        self.keys = [owned(64, shard, len(addresses)) for shard in range(len(addresses))]
        self.table, self.longest, self.pushes, self.ends, self.failed = table, 0.0, 0, False, None
        self.gone = set()  # shards whose server was killed
        self.thread = threading.Thread(target=self.run)

    def push(self, shard):
        began = time.monotonic()
        self.wires[shard].call("push", {"parts": [{"table": self.table, "keys": 64}]}, keys(self.keys[shard]),
                               floats([-1.0] * 256))
        self.longest = max(self.longest, time.monotonic() - began)

    def run(self):
        try:
            while not self.ends:
                for shard in range(len(self.wires)):
                    try:
                        if shard not in self.gone:
                            self.push(shard)
                    except (OSError, TypeError):  # the connection has ended
                        if shard not in self.gone:
                            raise
                self.pushes += 1
                time.sleep(0.001)
        except Exception as failure:  # pylint: disable=broad-except
            self.failed = failure

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.ends = True
        self.thread.join()
        for wire in self.wires:
            wire.close()
        assert self.failed is None, self.failed

    def goes_on(self, within):
        """Pushes are made now."""
        before, end = self.pushes, time.monotonic() + within
        while self.pushes < before + 3:
            assert time.monotonic() < end, f"no push was answered for {within} s"
            time.sleep(0.005)


def look(server):
    """What the newest job is doing; None: there was none. Shard 0 is not asked: its thread syncs what it commits."""
    with Wire(server.admin_path(len(server.addresses) - 1)) as wire:
        try:
            return wire.call("snapshot", {"name": "", "phase": "progress"})[0]
        except RpcError:
            return None


def snapshot_failures(server):
    with Wire(server.admin_path()) as wire:
        return wire.call("stats")[0]["stats"]["snapshot_jobs_failed"]


def wait_phase(server, *phases, name=None):
    end = time.monotonic() + 15
    while time.monotonic() < end:
        told = look(server)
        if told and told["phase"] in phases and told["state"] == "running" and name in (None, told["name"]):
            return told
        assert not told or told["state"] == "running" or name not in (None, told["name"]), told
        time.sleep(0.002)
    raise AssertionError(f"the phase {phases} did not come; {look(server)}")


def wait_end(server, within=15, state=None):
    end = time.monotonic() + within
    while True:
        told = look(server)
        if told and told["state"] != "running":
            assert state in (None, told["state"]), told
            return told
        assert time.monotonic() < end, told
        time.sleep(0.02)


def ask(server, *arguments, **more):
    return subprocess.Popen([EMBCTL, *map(str, arguments)], env=environment(server, **more), stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def stop_or_kill(process, sig):
    process.send_signal(sig)


def finish(process):
    process.kill()
    process.wait()


class HalfPush:
    """A push that shard 0 has and the others have not, so that a cut waits for it, or leaves it out."""

    def __init__(self, server, table, shards, number):
        self.wires = [Wire(("127.0.0.1", server.port(shard))) for shard in range(shards)]
        for wire in self.wires:
            wire.call("hello", {"protocol": 1, "client_id": 2**62 + number})
        self.frames = [request(7, "push", {"parts": [{"table": table, "keys": 1}]}, keys(owned(1, shard, shards, 10**6)),
                               floats([-1.0] * 4)) for shard in range(shards)]

    def begin(self):
        self.wires[0].send(self.frames[0])
        self.wires[0].receive()

    def end(self):
        for wire, frame in zip(self.wires[1:], self.frames[1:]):
            wire.send(frame)
            wire.receive()
        for wire in self.wires:
            wire.close()


def serve(scratch, shards=3, **more):
    if not os.path.isdir(scratch("data")):
        os.mkdir(scratch("data"))
    return Embd("--http", "off", "--data-dir", scratch("data"), shards=shards, **more)


def ask_and_stop(server, table, sig, phase, n):
    """Returns the number of a snapshot that was completed although who asked for it got the signal in that phase."""
    while True:
        n += 1
        half = HalfPush(server, table, 3, n) if phase == "hold" else None
        if half:
            half.begin()
        asking = ask(server, "snapshot", f"s{n}")
        if phase == "begin":
            while not look(server) or look(server)["name"] != f"s{n}":
                time.sleep(0.001)
        else:
            wait_phase(server, phase, name=f"s{n}")
        asking.send_signal(sig)
        if half:
            half.end()
        told = wait_end(server)
        assert told["name"] == f"s{n}", told
        finish(asking)
        assert told["state"] == "done", told
        return n


def case_who_asked_may_die_or_hang_in_any_phase():
    with Scratch() as scratch, slow(250), serve(scratch) as server:
        create(server)
        table = table_id(server)
        with Pusher(server.addresses, table) as pushing:
            pushing.goes_on(5)
            n = 0
            for sig in (signal.SIGKILL, signal.SIGSTOP):
                for phase in ("begin", "hold", "write", "commit"):
                    n = ask_and_stop(server, table, sig, phase, n)
                    embctl(None, "verify", scratch(f"data/s{n}"))
            print(f"   pushes waited {pushing.longest:.2f} s at most")


def case_a_client_that_pushes_to_one_shard_only_prevents_nothing():
    with Scratch() as scratch, serve(scratch) as server:
        create(server)
        with Pusher(server.addresses, table_id(server)) as pushing, Wire(("127.0.0.1", server.port())) as evil:
            evil.call("hello", {"protocol": 1, "client_id": 2**61})
            evil.send(request(2, "push", {"parts": [{"table": table_id(server), "keys": 1}]}, keys(owned(1, 0, 3, 10**6)),
                              floats([-1.0] * 4)))
            evil.receive()
            embctl(server, "snapshot", "s")
            named = "".join(line for line in server.log().splitlines() if "client_left_out" in line)
            assert [f"shard={shard} client={2**61:016x}" in named for shard in (0, 1, 2)] == [False, True, True], named
            pushing.goes_on(5)
            embctl(None, "verify", scratch("data/s"))


def case_a_client_that_rests_may_have_lost_a_connection():
    with Scratch() as scratch, serve(scratch) as server:
        create(server)
        half = HalfPush(server, table_id(server), 3, 1)
        for wire, frame in zip(half.wires, half.frames):
            wire.send(frame)
            wire.receive()
        half.wires[1].close()
        embctl(server, "snapshot", "s")
        assert "client_left_out" not in server.log()
        for wire in half.wires:
            wire.close()


def case_who_hangs_before_its_files_were_sent_holds_up_nobody():
    with Scratch() as scratch, serve(scratch) as server:
        create(server)
        with Pusher(server.addresses, table_id(server)) as pushing, Wire(server.admin_path()) as wire:
            began = time.monotonic()
            wire.call("snapshot", {"name": "mute", "phase": "start", "files": True})
            wait_phase(server, "files")
            embctl(server, "snapshot", "other", "--wait", 0, code=REFUSED, says="the snapshot 'mute' has run for")
            told = wait_end(server, within=QUIET_S + 50, state="failed")
            assert "sent nothing for 10 s" in told["text"], told
            assert QUIET_S - 1 < time.monotonic() - began
            assert pushing.longest < AT_ONCE_S, pushing.longest
            assert not [f for f in os.listdir(scratch("data")) if f.startswith("mute")]
            assert snapshot_failures(server) == 1
            embctl(server, "snapshot", "other")


def case_who_hangs_or_dies_while_it_dumps_holds_up_nobody():
    with Scratch() as scratch, serve(scratch) as server:
        create(server)
        with Pusher(server.addresses, table_id(server)) as pushing:
            for how in ("hangs", "dies", "is cancelled"):
                with Wire(server.admin_path()) as wire:
                    wire.call("snapshot", {"name": how.replace(" ", "-"), "phase": "start", "read": True})
                    wait_phase(server, "read")
                    embctl(server, "dump", "--all", scratch("never"), "--wait", 0, code=REFUSED, says="has run for")
                    pushing.goes_on(AT_ONCE_S)
                    embctl(server, "snapshot", "busy", "--wait", 0, code=REFUSED, says=f"the dump '{how.replace(' ', '-')}' has run for")
                    if how == "hangs":
                        told = wait_end(server, within=QUIET_S + 50, state="failed")
                        assert "sent nothing for 10 s" in told["text"], told
                    elif how == "is cancelled":
                        embctl(server, "snapshot", "--cancel", "is-cancelled")
                wait_end(server, within=AT_ONCE_S, state="failed")
                embctl(server, "dump", "--all", scratch(how))
                embctl(None, "verify", scratch(how))
            assert pushing.longest < AT_ONCE_S, pushing.longest


def case_a_dump_is_the_tables_at_its_cut_while_pushes_go_on():
    """Every push adds 1 to all keys of the shard that it goes to: one value a shard, whenever the cut is."""
    with Scratch() as scratch, serve(scratch) as server:
        create(server)
        table = table_id(server)
        with Wire(server.admin_path()) as wire:
            job = wire.call("snapshot", {"name": "d", "phase": "start", "read": True})[0]["job"]
            wait_phase(server, "read")
            assert wire.call("scan", {"cut": job})[0]["tables"][0]["rows"] == 0
            wire.call("snapshot", {"name": "d", "phase": "go", "job": job})
        wait_end(server, state="done")
        with Pusher(server.addresses, table) as pushing:
            for i in range(5):
                pushing.goes_on(5)
                waited = embctl_json(server, "dump", "items", scratch(f"d{i}"))["dump"][0]["pushes_waited_us"]
                found = {}
                for (_, key), (row, _) in partfiles.read(scratch(f"d{i}"))["items"]["rows"].items():
                    found.setdefault(next(s for s in range(3) if key in pushing.keys[s]), set()).add(row)
                assert found and all(len(values) == 1 for values in found.values()), found
            print(f"   pushes waited {waited} us for the last cut, {pushing.longest * 1000:.1f} ms at most for all")


def case_two_at_once_the_second_is_told_and_may_wait():
    with Scratch() as scratch, slow(400), serve(scratch) as server:
        create(server)
        first = ask(server, "snapshot", "first")
        wait_phase(server, "write")
        embctl(server, "snapshot", "second", "--wait", 0, code=REFUSED, says="the snapshot 'first' has run for")
        embctl(server, "snapshot", "second", "--wait", 0, code=REFUSED, says="embctl snapshot --cancel first")
        status = embctl_json(server, "snapshot", "--status")["snapshot"][0]
        assert (status["name"], status["state"], status["phase"]) == ("first", "running", "write"), status
        embctl(server, "dump", "--all", scratch("third"), "--wait", 0, code=REFUSED, says="the snapshot 'first' has run for")
        embctl(server, "load", "--wait", 1, scratch("third"), code=USAGE, says="--wait needs --replace")
        waiting = [ask(server, "snapshot", "second"), ask(server, "dump", "--all", scratch("third"))]
        assert first.wait(20) == OK
        assert [w.wait(20) for w in waiting] == [OK, OK]
        with Wire(server.admin_path()) as wire:
            wire.call("snapshot", {"name": "fourth", "phase": "start", "read": True})
            wait_phase(server, "read")
            waiting = ask(server, "load", "--deadline", 2, "--replace", scratch("third"))
            time.sleep(3.5)
            assert waiting.poll() is None
            embctl(server, "snapshot", "--cancel", "fourth")
        assert waiting.wait(20) == OK
        assert snapshot_failures(server) <= 1  # the fourth
        status = embctl_json(server, "snapshot", "--status", "first")["snapshot"][0]
        assert (status["state"], status["phase"]) == ("done", "keep"), status
        embctl(server, "snapshot", "--status", "unknown", code=REFUSED, says="no snapshot 'unknown'")


def case_cancelled_it_leaves_nothing():
    with Scratch() as scratch, slow(400), serve(scratch) as server:
        create(server)
        with Pusher(server.addresses, table_id(server)) as pushing:
            for i, phase in enumerate(("write", "hold")):
                half = HalfPush(server, pushing.table, 3, 50 + i) if phase == "hold" else None
                if half:
                    half.begin()
                asking = ask(server, "snapshot", f"gone{i}")
                wait_phase(server, phase, name=f"gone{i}")
                embctl(server, "snapshot", "--cancel", f"gone{i}")
                assert asking.wait(10) not in (None, OK)
                if half:
                    half.end()
                assert f"'gone{i}' was cancelled" in look(server)["text"], look(server)
                assert snapshot_failures(server) == 0, "nobody is alarmed for what somebody wanted"
                assert not [f for f in os.listdir(scratch("data")) if f.startswith("gone")], os.listdir(scratch("data"))
                pushing.goes_on(AT_ONCE_S)
        os.mkdir(scratch("data/left.tmp"))
        embctl(server, "snapshot", "left", code=REFUSED, says="embctl snapshot --cancel left")
        embctl(server, "snapshot", "--cancel", "left")
        embctl(server, "snapshot", "left")


# ---- several processes ----

def write_cluster(scratch, names, more="", entry=""):
    port = free_ports(2 * len(names))
    with open(scratch("cluster.yaml"), "w", encoding="ascii") as file:
        file.write(f"http: off\n{more}cluster:\n  servers:\n")
        for i, name in enumerate(names):
            os.makedirs(scratch(name), exist_ok=True)
            admin = entry.format(port=port + len(names) + i)
            file.write(f'    - {{name: {name}, listen: "127.0.0.1:{port + i}", data_dir: "{scratch(name)}", '
                       f'admin_dir: "{scratch("admin-" + name)}"{admin}}}\n')
    return [f"127.0.0.1:{port + i}" for i in range(len(names))]


def process(scratch, addresses, i, name):
    server = Embd("--config", scratch("cluster.yaml"), "--server", name, "--admin-dir", scratch("admin-" + name), listen=None)
    server.addresses = [addresses[i]]
    server.admin_path = lambda shard=0: os.path.join(scratch("admin-" + name), addresses[i].rsplit(":", 1)[1] + ".sock")
    return server


def case_the_coordinator_may_die_in_any_phase():
    for phase in ("hold", "write", "commit", "read"):
        with Scratch() as scratch, contextlib.ExitStack() as stack:
            addresses = write_cluster(scratch, "ab")
            with slow(300):
                a, b = (process(scratch, addresses, i, name) for i, name in enumerate("ab"))
                stack.enter_context(b)
                stack.enter_context(a)
            create(a)
            table = table_id(a)
            embctl(a, "snapshot", "whole")
            half = HalfPush(FakeServer(addresses), table, 2, 9) if phase == "hold" else None
            with Pusher(addresses, table) as pushing:
                pushing.goes_on(5)
                if half:
                    half.begin()
                asking = ask(a, "--deadline", 3, *(("dump", "--all", scratch("d")) if phase == "read" else ("snapshot", "half")))
                if phase == "read":
                    asking.wait()
                    wire = stack.enter_context(Wire(a.admin_path()))
                    wire.call("snapshot", {"name": "d", "phase": "start", "read": True})
                wait_phase(a, phase, name="d" if phase == "read" else "half")
                pushing.gone.add(0)
                time.sleep(0.02)
                a.process.kill()
                a.process.wait()
                pushing.goes_on(AT_ONCE_S)
                assert asking.wait(60) != OK or phase == "read"
                assert pushing.longest < HOLD_S / 2, pushing.longest
            complete = [n for n in "ab" if os.path.isdir(scratch(f"{n}/half"))]
            assert complete in ([], ["a"], ["a", "b"]), complete
            if phase != "commit":
                assert complete == [] and not os.path.isdir(scratch("b/half.tmp")), os.listdir(scratch("b"))
            with process(scratch, addresses, 0, "a") as again:
                if complete != ["a", "b"]:
                    assert "snapshot=half cut=" not in again.log(), again.log()
                    assert "snapshot=whole cut=" in again.log(), again.log()
                if phase in ("write", "hold"):
                    embctl(again, "snapshot", "--cancel", "half")
                    embctl(again, "snapshot", "half")
                embctl(again, "snapshot", "next")


def case_two_coordinators_at_once_both_complete():
    """The second one waits at shard 0, where both come first, and removes nothing of the first one."""
    with Scratch() as scratch, contextlib.ExitStack() as stack:
        addresses = write_cluster(scratch, "ab")
        a, b = (stack.enter_context(process(scratch, addresses, i, name)) for i, name in enumerate("ab"))
        create(a)
        os.mkdir(scratch("a/left.tmp"))
        with Wire(a.admin_path()) as first, Wire(b.admin_path()) as second:
            job = first.call("snapshot", {"name": "first", "phase": "start", "files": True})[0]["job"]
            wait_phase(a, "files")
            second.call("snapshot", {"name": "left", "phase": "cancel"})
            wait_end(b, state="done")
            second.call("snapshot", {"name": "second", "phase": "start"})
            for _ in range(5):
                assert wait_phase(b, "begin", name="second")["shards_done"] == 0
                first.call("snapshot", {"name": "first", "phase": "progress"})
            first.call("snapshot", {"name": "first", "phase": "go", "job": job})
            assert wait_end(a)["state"] == "done", look(a)
            assert wait_end(b)["name"] == "second" and look(b)["state"] == "done", look(b)
        assert sorted(n for n in os.listdir(scratch("a")) if not n.startswith("identity")) == ["first", "second"]
        for name in "ab":
            for made in "first", "second":
                embctl(None, "verify", scratch(f"{name}/{made}"))


class FakeServer:
    """Ports of a cluster, by shard."""

    def __init__(self, addresses):
        self.addresses = addresses

    def port(self, shard=0):
        return int(self.addresses[shard].rsplit(":", 1)[1])


def case_processes_with_tokens_and_tls_need_no_secret_of_their_own():
    """The asker's token and authorities are handed to the coordinator; nobody else's sockets are in reach."""
    with Scratch() as scratch, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        authority, tokens = Authority(folder, "ca"), Tokens(folder)
        tokens.add("operator", "admin")
        tokens.add("reader", "reader")
        cert = authority.issue("server")
        addresses = write_cluster(scratch, "ab", f"tls_cert: {cert[0]}\ntls_key: {cert[1]}\ntokens: {tokens.path}\n",
                                  ', admin_listen: "127.0.0.1:{port}"')
        a, b = (stack.enter_context(process(scratch, addresses, i, name)) for i, name in enumerate("ab"))
        os.rename(scratch("admin-b"), scratch("away"))  # as on another host
        keys_of = {"EMBD_TLS_CA": authority.path, "EMBD_TOKEN_FILE": tokens.file("operator"), "EMBD_SERVERS": addresses[0]}

        def run(*arguments, code=OK, says="", **more):
            done = subprocess.run([EMBCTL, *arguments], capture_output=True, text=True, timeout=60, check=False,
                                  env=environment(None, **{**keys_of, **more}))
            assert done.returncode == code, (done.returncode, done.stderr)
            assert says in done.stderr, done.stderr

        run("table", "create", "items", "--dim", "4")
        run("snapshot", "s1")
        run("dump", "--all", scratch("d1"))
        run("verify", scratch("d1"))
        for name in "ab":
            run("verify", scratch(f"{name}/s1"))
        with Wire(a.admin_path()) as wire:  # an admin by its socket, who shows nothing
            wire.call("snapshot", {"name": "bare", "phase": "start"})
        told = wait_end(a, state="failed")
        assert "EMBD_TLS_CA" in told["text"] and "shard 1 at 127.0.0.1:" in told["text"], told
        with Wire(a.admin_path()) as wire, open(authority.path, "rb") as ca:
            wire.call("snapshot", {"name": "bare", "phase": "start", "ca": True}, ca.read())
        told = wait_end(a, state="failed")
        assert "EMBD_TOKEN_FILE" in told["text"], told
        run("snapshot", "s2", code=REFUSED, says="reader", EMBD_TOKEN_FILE=tokens.file("reader"))
        b.stop()
        with Wire(a.admin_path()) as wire, open(authority.path, "rb") as ca, open(tokens.file("operator"), encoding="ascii") as token:
            wire.call("snapshot", {"name": "s3", "phase": "start", "ca": True, "token": token.read().strip()}, ca.read())
        told = wait_end(a, state="failed")
        assert "shard 1 at 127.0.0.1:" in told["text"] and "admin_listen" in told["text"], told
        assert not [f for f in os.listdir(scratch("a")) if f.startswith("s3")]


def case_one_shard_alone():
    with Scratch() as scratch, serve(scratch, shards=1) as server:
        create(server, "durable")
        embctl(server, "snapshot", "s1")
        embctl(server, "snapshot", "s2", "--incremental", "s1", "--keep", 2)
        embctl(None, "verify", scratch("data/s2"))


def case_a_server_without_a_data_directory_dumps_and_says_why_it_makes_no_snapshot():
    with Scratch() as scratch, Embd(shards=2) as server:
        create(server)
        embctl(server, "dump", "--all", scratch("d"))
        embctl(server, "snapshot", "s", code=REFUSED, says="data directory")


def case_a_server_that_ends_ends_its_snapshot():
    with Scratch() as scratch, slow(500), serve(scratch) as server:
        create(server)
        asking = ask(server, "snapshot", "late")
        wait_phase(server, "write")
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 15
        finish(asking)
        assert not os.path.isdir(scratch("data/late"))


if __name__ == "__main__":
    run_cases(globals())
