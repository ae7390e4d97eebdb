"""cores.py --build FOLDER [--quick] [--limit SECONDS] [--lines FILE] [PART...]: bars that need a core for each process, on a machine
that has them; `cores` builds first. Each figure is a line of JSON as soon as it is there, and a row of the table at the end. A part that
does not end in its time, or fails, says so in a line, and the others go on; then the exit status is 1. A missed bar does not change it.
  freshness  from acknowledged to shown by a serving replica, full and of f16 rows, with pushes of 4096 and 65,536 keys at full rate,
             and what the replica costs those pushes
  follower   what a follower that serves no pulls costs them
  tcp        8 clients and 8 shards, pushes of 4 and 4, and calls of 4096 keys, beside the bare transport
  local      calls of 64 keys by shared memory, and lent rows there beside TCP
  shards     processor time of a client of 1000 shards, in times of 8
  archive    a restore beside a copy of the files
  moves      half of 10 M rows from two shards to four under load, and many small moves
--quick runs every part with little data: it shows that they work, and its figures say nothing."""
import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = ("part", "what", "value", "beside", "ratio", "bar", "verdict", "range")


class Failed(Exception):
    pass


def quantile(values, q):
    return sorted(values)[min(int(q * len(values)), len(values) - 1)]


class Run:
    """The figures of all parts, and the time that is left for them."""

    def __init__(self, o):
        self.o, self.end, self.rows, self.failed = o, time.monotonic() + o.limit, [], False
        self.bin = os.path.join(os.path.abspath(o.build), "bin")
        self.file = open(o.lines, "a", encoding="utf-8") if o.lines else None
        site = os.path.join(os.path.abspath(o.build), "site")
        self.env = {**os.environ, "EMBD_BIN": self.bin, "PYTHONPATH": os.pathsep.join(
            [HERE, os.path.join(HERE, "..", "integration"), os.path.join(os.path.abspath(o.build), "python"), site,
             os.environ.get("PYTHONPATH", "")])}
        provide_msgpack(site)

    def line(self, **members):
        text = json.dumps(members)
        print(text, flush=True)
        if self.file:
            print(text, file=self.file, flush=True)

    def figure(self, part, what, value, bar=None, at_most=False, beside=None, ratio=None, spread=()):
        """`bar` is held against the ratio if there is one, else against the value. `spread`: of all rounds."""
        held = value if ratio is None else ratio
        met = None if bar is None else held <= bar if at_most else held >= bar
        row = {"part": part, "what": what, "value": value, "beside": beside, "ratio": ratio,
               "bar": None if bar is None else ("<= " if at_most else ">= ") + f"{bar:g}",
               "verdict": "" if met is None else "met" if met else "missed", "range": [min(spread), max(spread)] if spread else None}
        self.rows.append(row)
        self.line(**row)

    def say(self, seconds, *command):
        """What a program writes, in at most so many seconds."""
        seconds = min(seconds, self.end - time.monotonic())
        if seconds <= 1:
            raise Failed("no time is left for it")
        command = ["timeout", "-k", "10", f"{seconds:.0f}", *map(str, command)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: status {done.returncode}: {(done.stderr + done.stdout)[-1500:]}")
        return done.stdout

    def program(self, seconds, name, *flags):
        return self.say(seconds, os.path.join(self.bin, name), *flags)

    def script(self, seconds, name, *flags):
        """The last line that a benchmark in Python writes."""
        said = self.say(seconds, sys.executable, "-B", os.path.join(HERE, name), *flags, "-o", "json")
        return json.loads(said.splitlines()[-1])


def provide_msgpack(site):
    """pip has a msgpack of its own, for a Python that has none."""
    try:
        import msgpack  # noqa: F401  pylint: disable=unused-import,import-outside-toplevel
    except ImportError:
        os.makedirs(site, exist_ok=True)
        with open(os.path.join(site, "msgpack.py"), "w", encoding="ascii") as file:
            file.write("from pip._vendor.msgpack import *\nfrom pip._vendor.msgpack import exceptions\n")


# ---- parts -------------------------------------------------------------------------------------------------------------------------


def freshness(run):
    rows = ("--keys", "20K", "--rounds", 1, "--seconds", 0.5) if run.o.quick else ("--rounds", 3, "--seconds", 1.5)
    for batch in (4096, 65536):
        for name, more in (("full", ()), ("f16", ("--serve-dtype", "f16"))):
            found = run.script(75, "freshness.py", "--batch", batch, *rows, *more)
            what = f"{name} replica, {batch} keys"
            run.line(part="freshness", what=what, cores=found["busy"])
            for q, bar in (("p50", None), ("p99", 1.0)):
                run.figure("freshness", f"{what}: shown after, s, {q}", statistics.median(found[q]), bar, True, spread=found[q])
            cost(run, "freshness", f"{what}: pushes beside, M keys/s", found)


def cost(run, part, what, found, bar=0.95):
    for name in ("ns_alone", "ns_followed"):
        run.line(part=part, what=what, name=name, ns=found[name])
    run.figure(part, what, statistics.median(found["followed"]) / 1e6, bar, beside=statistics.median(found["alone"]) / 1e6,
               ratio=statistics.median(found["ratio"]), spread=found["ratio"])


def follower(run):
    rows = ("--keys", "20K", "--rounds", 1, "--seconds", 0.5) if run.o.quick else ("--rounds", 3, "--seconds", 1.5)
    for batch in (4096, 65536):
        found = run.script(60, "freshness.py", "--no-serve", "--batch", batch, *rows)
        run.line(part="follower", what=f"{batch} keys", cores=found["busy"])
        cost(run, "follower", f"{batch} keys: pushes beside, M keys/s", found)
        found = run.script(60, "freshness.py", "--no-serve", "--stranger", "--batch", batch, *rows)
        cost(run, "follower", f"{batch} keys: beside another server's pushes, M keys/s", found, None)


def beside(run, *flags):
    """{contender: figures} of bench-suite."""
    rounds = ("--keys", "100K", "--rounds", 1, "--seconds", 0.1) if run.o.quick else ("--keys", "2M", "--rounds", 5, "--seconds", 0.5)
    found = json.loads(run.program(60, "bench-suite", "beside", "--dim", 64, *flags, *rounds, "-o", "json"))
    return {row["what"]: row for row in found["results"]}


def against(run, part, what, found, peer):
    """What a C peer, or one thread in memory, makes of the same rows: as much as there is to have."""
    other, embd = found[peer], found["embd"]
    run.figure(part, f"{what}, beside the {peer}: M keys/s", embd["keys_per_s"] / 1e6, beside=other["keys_per_s"] / 1e6,
               ratio=other["embd_ratio"], spread=(other["embd_ratio_min"], other["embd_ratio_max"]))
    run.figure(part, f"{what}, beside the {peer}: processor ns/key", embd["cpu_ns_per_key"], beside=other["cpu_ns_per_key"])


def against_bare(run, what, bar, found):
    bare, embd = found["bare transport"], found["embd"]
    run.figure("tcp", f"{what}: M keys/s", embd["keys_per_s"] / 1e6, bar, beside=bare["keys_per_s"] / 1e6, ratio=bare["embd_ratio"],
               spread=(bare["embd_ratio_min"], bare["embd_ratio_max"]))
    run.figure("tcp", f"{what}: processor ns/key", embd["cpu_ns_per_key"], beside=bare["cpu_ns_per_key"])


def tcp(run):
    for n in (1, 2, 4):
        found = beside(run, "--clients", 8, "--shards", 8, "--in-flight", n)
        against_bare(run, f"pull, 8 clients, 8 shards, {n} in flight", 0.95, found)
        against(run, "tcp", f"pull, 8 clients, 8 shards, {n} in flight", found, "gather ceiling")
    found = beside(run, "--mix", "push", "--clients", 4, "--shards", 4)
    against_bare(run, "push, 4 clients, 4 shards", 0.75, found)
    against(run, "tcp", "push, 4 clients, 4 shards", found, "adding ceiling")
    found = beside(run, "--batch", 4096)
    bare, embd = found["bare transport"]["p50_us"], found["embd"]["p50_us"]
    run.figure("tcp", "pull of 4096 keys, p50 us, over the bare one's", embd - bare, 40, True, beside=bare)
    run.figure("tcp", "pull of 4096 keys, p50 us, beside the gather ceiling", embd, beside=found["gather ceiling"]["p50_us"],
               ratio=embd / found["gather ceiling"]["p50_us"])
    found = beside(run, "--small")
    run.figure("tcp", "pull of 64 keys, p50 us", found["embd"]["p50_us"], beside=found["bare transport"]["p50_us"])


def bench(run, *flags):
    rounds = ("--keys", "100K", "--rounds", 1, "--seconds", 0.1) if run.o.quick else ("--keys", "1M", "--rounds", 3, "--seconds", 0.5)
    found = json.loads(run.program(60, "embd-bench", *flags, *rounds, "-o", "json"))
    return next(row for row in found["results"] if row["what"] == "embd")


def local(run):
    turns = 1 if run.o.quick else 3
    for dim in (16, 64):
        p50s = [bench(run, "--small", "--transport", "local", "--dim", dim)["p50_us"] for _ in range(turns)]
        run.figure("local", f"pull of 64 keys, dim {dim}, p50 us", statistics.median(p50s), 10 if dim == 16 else None, True, spread=p50s)
    for batch in (65536, 4096):
        pairs = [[bench(run, "--dim", 64, "--batch", batch, "--transport", *way)["keys_per_s"] for way in (("tcp",), ("local", "--lent"))]
                 for _ in range(turns)]
        ratios = [b / a for a, b in pairs]
        run.figure("local", f"lent pull of {batch} keys, beside TCP, M keys/s", statistics.median(b for _, b in pairs) / 1e6, 3,
                   beside=statistics.median(a for a, _ in pairs) / 1e6, ratio=statistics.median(ratios), spread=ratios)
        found = beside(run, "--batch", batch, "--transport", "local", "--lent")
        against(run, "local", f"lent pull of {batch} keys", found, "memory gather")


def shards(run):
    many, calls, turns = (64, 5, 1) if run.o.quick else (1000, 41, 3)
    times, ms = {"pull": [], "push": []}, {"pull": [], "push": []}
    for _ in range(turns):
        said = run.program(60, "bench-shards", 65536, 16, calls, 8, many).splitlines()[-1]
        for kind, values in times.items():
            median, ratio = re.search(rf"{kind} .*?median +([\d.]+) \( *([\d.]+) times\)", said).groups()
            values.append(float(ratio))
            ms[kind].append(float(median))
    for kind, values in times.items():
        run.figure("shards", f"{kind} of 65,536 keys, {many} shards, ms; in times of 8", statistics.median(ms[kind]), 3, True,
                   ratio=statistics.median(values), spread=values)


def archive(run):
    found = run.script(90, "archive_cost.py", "--only-rates",
                       *(("--rows", 50000, "--rounds", 1) if run.o.quick else ("--rows", 2000000, "--rounds", 5)))
    for name in ("restore", "backup"):
        for other in ("cp", "wire"):
            ratios = [b / a for a, b in zip(found[name], found[other])]
            run.figure("archive", f"{name} beside {other}, MB/s", found["bytes"] / 1e6 / statistics.median(found[name]),
                       0.5 if (name, other) == ("restore", "cp") else None,
                       beside=found["bytes"] / 1e6 / statistics.median(found[other]), ratio=statistics.median(ratios), spread=ratios)


def moves(run):
    found = run.script(200, "move_keys.py", "--trainers", 2,
                       *(("--rows", 50000, "--moves", 3, "--seconds", 1) if run.o.quick else ("--rows", 10000000, "--moves", 200, "--most", 30)))
    run.line(part="moves", what="half of the rows move", cores=found["busy"])
    run.figure("moves", f"{found['copied']} rows copied, MB/s, beside a socket", found["rate"] / 1e6, 0.7, beside=found["socket"] / 1e6,
               ratio=found["rate"] / found["socket"])
    run.figure("moves", "the same beside a dump", found["rate"] / 1e6, beside=found["dump"] / 1e6, ratio=found["rate"] / found["dump"])
    windows = list(found["windows"].items())
    before = windows[0][1]
    for name, window in windows[1:]:
        bar = 1.3 if name == "half of the rows move" else None
        run.figure("moves", f"{name}: pull p99, ms", 1e3 * window["pull_p99"], bar, True, beside=1e3 * before["pull_p99"],
                   ratio=window["pull_p99"] / before["pull_p99"])
        run.figure("moves", f"{name}: push p99, ms", 1e3 * window["push_p99"], beside=1e3 * before["push_p99"],
                   ratio=window["push_p99"] / before["push_p99"])
        run.figure("moves", f"{name}: pushes/s", window["pushes_per_s"], beside=before["pushes_per_s"],
                   ratio=window["pushes_per_s"] / before["pushes_per_s"])
    run.figure("moves", "half of the rows move: pushes held, ms", 1e3 * found["pause"], 20, True)
    run.figure("moves", "a small move, ms", 1e3 * found["small_elapsed"])
    pauses = [1e3 * s for s in found["pauses"]]
    run.figure("moves", f"{len(pauses)} small moves: pushes held, ms, p99", quantile(pauses, 0.99), 20, True, spread=pauses)


PARTS = {f.__name__: f for f in (freshness, follower, tcp, local, shards, archive, moves)}


# ---- all of them -------------------------------------------------------------------------------------------------------------------


def disk():
    """The file system where benchmarks have their files, and its GiB that are free."""
    folder = tempfile.gettempdir()
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False).stdout.strip()
    return f"{folder}: {kind}, {shutil.disk_usage(folder).free >> 30} GiB"


def written(piece_bytes, n):
    """Bytes a second of so many writes, each with its fdatasync."""
    piece, begin = os.urandom(piece_bytes), time.monotonic()
    with tempfile.TemporaryFile() as file:
        for _ in range(n):
            file.write(piece)
            file.flush()
            os.fdatasync(file.fileno())
    return piece_bytes * n / (time.monotonic() - begin)


def disk_figures(run):
    run.figure("machine", "disk, 4 MiB and an fdatasync each time, MB/s", written(4 << 20, 64) / 1e6)
    run.figure("machine", "disk, 4 KiB and an fdatasync, ms", 4096e3 / written(4096, 100))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"^model name\s*: (.*)$", file.read(), flags=re.M)
    return {"processor": model.group(1) if model else platform.machine(), "processors": len(os.sched_getaffinity(0)),
            "kernel": platform.release(), "load": round(os.getloadavg()[0], 1), "disk": disk(), "date": time.strftime("%Y-%m-%d", time.gmtime())}


def text_of(value):
    if isinstance(value, list):
        return " to ".join(map(text_of, value))
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def print_table(rows):
    lines = [COLUMNS] + [tuple(text_of(row[name]) for name in COLUMNS) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/cores")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--limit", type=float, default=480, help="seconds for all parts together (480)")
    p.add_argument("--lines", help="the lines of JSON go to this file too")
    p.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all")
    o = p.parse_args()
    run = Run(o)
    run.line(**machine())
    disk_figures(run)
    for name in o.part or PARTS:
        begin = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="embd-cores-") as folder:
                run.env["TMPDIR"] = folder  # what a part that was stopped leaves goes with it
                PARTS[name](run)
        except (Failed, ValueError, KeyError, AttributeError, IndexError) as error:
            run.failed = True
            run.line(part=name, error=repr(error))
        run.line(part=name, seconds=round(time.monotonic() - begin, 1))
    print_table(run.rows)
    sys.exit(1 if run.failed else 0)


if __name__ == "__main__":
    main()
