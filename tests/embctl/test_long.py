"""Operations that take long: dumps and exports that are interrupted or killed, and what a terminal shows meanwhile.

To take long, a dump or export meets a server that was stopped (SIGSTOP) as soon as its directory appears."""
import array
import fcntl
import glob
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import partfiles
from embctl import EMBCTL, FAILED, UNREACHABLE, Embd, Scratch, embctl, embctl_json, environment, run_cases, start

N_ROWS = 1_000_000
DIM = 32


def big_blocks(schema):
    per_block = 60_000
    for first in range(0, N_ROWS, per_block):
        n = min(per_block, N_ROWS - first)
        keys = array.array("Q", range(first, first + n)).tobytes()
        sizes = partfiles.array_sizes(schema, n, 0)
        yield [keys] + [None if size is None else bytes(size) for size in sizes[1:]], n, 0


class BigTable:
    """A server with a table of 128 MB."""

    def __enter__(self):
        self.scratch = Scratch()
        scratch = self.scratch.__enter__()
        with Embd() as server:
            embctl(server, "table", "create", "big", "--dim", DIM)
            embctl(server, "dump", "big", scratch("made"))
        partfiles.fill(scratch("made"), lambda schema: list(big_blocks(schema)))
        self.server = Embd(shards=2)
        embctl(self.server, "load", scratch("made"))
        os.unlink(scratch("made/big.0.part"))
        return self.server, scratch

    def __exit__(self, kind, value, trace):
        self.server.__exit__(kind, value, trace)
        self.scratch.__exit__(kind, value, trace)


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.0005)


class Stopped:
    """Stops the server once the dump's first part, or what else is named, is being written."""

    def __init__(self, server, target, what="*.part"):
        self.server, self.target, self.what = server, target, what

    def __enter__(self):
        wait_until(lambda: glob.glob(f"{self.target}.tmp-*/{self.what}"))
        self.server.pause()

    def __exit__(self, kind, value, trace):
        if self.server.is_alive():
            self.server.go_on()


def assert_free(server):
    """Nothing holds the shards: a change goes through."""
    embctl(server, "table", "create", "free", "--dim", 1, "--deadline", 10)
    embctl(server, "table", "drop", "free")


def case_a_killed_dump_leaves_no_directory_and_holds_nobody(server, scratch):
    dump = start(server, "dump", "big", scratch("killed"))
    with Stopped(server, scratch("killed")):
        dump.kill()
        dump.communicate()
    assert not os.path.exists(scratch("killed"))
    assert_free(server)
    assert len(glob.glob(scratch("killed.tmp-*"))) == 1, "nobody was left to remove it"


def case_an_interrupted_dump_cleans_up(server, scratch):
    for number in (signal.SIGINT, signal.SIGTERM):
        dump = start(server, "dump", "big", scratch("stopped"))
        with Stopped(server, scratch("stopped")):
            dump.send_signal(number)
        out, why = dump.communicate(timeout=20)
        assert (dump.returncode, out) == (FAILED, ""), (dump.returncode, out, why)
        assert "stopped" in why
        assert glob.glob(scratch("stopped*")) == []
        assert_free(server)


def case_an_interrupted_export_cleans_up(server, scratch):
    for number in (signal.SIGINT, signal.SIGTERM):
        for target, flags in (("out0_sparse_0.model", []), ("out1_sparse_0.model", ["--index", "1", "--keys", "u32"])):
            export = start(server, "export", "big", scratch("out"), *flags)
            with Stopped(server, scratch(target), "key"):
                export.send_signal(number)
            out, why = export.communicate(timeout=20)
            assert (export.returncode, out) == (FAILED, ""), (export.returncode, out, why)
            assert "stopped" in why
            assert glob.glob(scratch("out*")) == []
            assert_free(server)


def case_a_killed_export_leaves_no_folder_and_holds_nobody(server, scratch):
    export = start(server, "export", "big", scratch("dead"))
    with Stopped(server, scratch("dead0_sparse_0.model"), "emb_vector"):
        export.kill()
        export.communicate()
    assert not os.path.exists(scratch("dead0_sparse_0.model"))
    assert_free(server)
    assert len(glob.glob(scratch("dead*.tmp-*"))) == 1, "nobody was left to remove it"


def pull_terminal(master, seconds):
    """What arrives within the time, or until the other side is closed."""
    said, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not select.select([master], [], [], left)[0]:
            break
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        said += data
    return said.decode()


def on_terminal(server, *arguments):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 100, 0, 0))
    process = subprocess.Popen([EMBCTL, *arguments], stdin=slave, stdout=slave, stderr=slave,
                               env=environment(server, TERM="xterm"))
    os.close(slave)
    return process, master


def case_a_terminal_sees_how_far_a_long_dump_is(server, scratch):
    process, master = on_terminal(server, "dump", "big", scratch("slow"))
    with Stopped(server, scratch("slow")):
        said = pull_terminal(master, 2.3)
        assert said == "", f"nothing is shown in the first two seconds: {said!r}"
    said = pull_terminal(master, 20)
    assert process.wait(20) == 0
    os.close(master)
    line = re.search(r"\r\x1b\[Kdump +(\d+) %  ([\d,]+) rows  [\d.]+ MiB  [\d.]+ [KM]iB/s", said)
    assert line and 0 < int(line.group(2).replace(",", "")) <= N_ROWS, said
    lines = said.split("\r\x1b[K")[-1].splitlines()
    assert [field.split()[0] for field in lines] == ["directory", "rows", "bytes", "elapsed", "pushes_waited"], said
    assert "1,000,000" in lines[1] and "MiB" in lines[2], said
    report = embctl_json(None, "verify", scratch("slow"))["verify"][0]
    assert report["rows"] == N_ROWS


def case_a_short_operation_shows_no_progress_and_a_table_fits_the_terminal(server, scratch):
    process, master = on_terminal(server, "table", "list")
    said = pull_terminal(master, 10)
    assert process.wait(10) == 0
    os.close(master)
    lines = said.splitlines()
    assert lines[0].split()[:3] == ["NAME", "DIM", "SLOTS"] and lines[1].split()[0] == "big", said
    assert "1,000,000" in lines[1] and all(len(line) <= 100 for line in lines)
    process, master = on_terminal(server, "verify", scratch("slow"))
    assert "%" not in pull_terminal(master, 10)
    assert process.wait(10) == 0
    os.close(master)
    process, master = on_terminal(server, "stats", "--watch=0.05", "--count", "2")
    said = pull_terminal(master, 10)
    assert process.wait(10) == 0 and said.count("\x1b[H\x1b[2J") == 2
    os.close(master)


def case_a_server_that_dies_ends_the_dump(server, scratch):
    dump = start(server, "dump", "big", scratch("orphan"))
    with Stopped(server, scratch("orphan")):
        server.process.kill()
        _, why = dump.communicate(timeout=20)
    assert dump.returncode == UNREACHABLE and ".sock" in why, (dump.returncode, why)
    assert glob.glob(scratch("orphan*")) == []


if __name__ == "__main__":
    with BigTable() as (server_of_all, scratch_of_all):
        run_cases(globals(), server_of_all, scratch_of_all)
