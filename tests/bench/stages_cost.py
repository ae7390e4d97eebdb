"""What the histograms and the split into stages cost a server: stages_cost.py [--generations N] [--rounds N] [--build FOLDER]

Two servers are built from this tree, one as it is, one from a copy in which no clock is read for a stage and nothing is
counted. Bursts of pulls and pushes go to both in turn; the figure is the processor time of a server's threads for a request,
and the ratio of the two in each round. Its median and quartiles are printed, since others use the machine too. A third server,
the first one again, shows what a ratio is worth here: it should be 1. Servers are started anew all the time, since where the
system puts a process's memory is worth more than what is looked for."""
import argparse
import array
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TREE = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(TREE, "tests", "integration"))
os.environ.setdefault("EMBD_BIN", "/nonexistent")  # servers are built here
import embd_process  # noqa: E402
import wire  # noqa: E402

# file, what stands there once, what stands there without stages
WITHOUT = [
    ("service/metrics/stages.h", "    times->weight = bytes >=", "    times->weight = 0;\n    return false;\n    times->weight = bytes >="),
    ("service/metrics/stages.h", "    if (times->method < 0)\n        return;\n", "    return;\n"),
    ("service/metrics/stages.h", "    return now_ns - stages->turned_ns >=", "    return false;\n    return now_ns - stages->turned_ns >="),
]


def build(tree, folder):
    """The server of a tree."""
    for command in (["cmake", "-S", tree, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DEMBD_CUDA=OFF",
                     "-DEMBD_PYTHON=OFF"], ["ninja", "-C", folder, "embd-server"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "bin", "embd")


def without():
    """Files of the server, and what is in them without stages."""
    texts = {}
    for name, there, instead in WITHOUT:
        if name not in texts:
            with open(os.path.join(TREE, "server", name), encoding="utf-8") as file:
                texts[name] = file.read()
        assert texts[name].count(there) == 1, f"{name}: what is to be taken out does not stand there once: {there!r}"
        texts[name] = texts[name].replace(there, instead)
    return texts


def copy_without(folder):
    """A copy of the tree without stages."""
    shutil.copytree(TREE, folder, ignore=shutil.ignore_patterns("build", "__pycache__", ".git"), dirs_exist_ok=True)
    for name, text in without().items():
        with open(os.path.join(folder, "server", name), "w", encoding="utf-8") as file:
            file.write(text)


def processor_ns(server):
    """Of all threads, by the clock that Linux has for each process (clock_getcpuclockid)."""
    return time.clock_gettime_ns(~server.pid << 3 | 2)


GRADIENTS = array.array("f", [0.5]) * (16 * 65536)


class Load:
    """A connection to a server that sends one request again and again, `in_flight` of them at once."""

    def __init__(self, server, method, keys, in_flight, n):
        self.server, self.n, self.in_flight = server, n, in_flight
        self.peer = wire.connect(server)
        table = wire.create(self.peer, f"{method}-{keys}-{in_flight}", 16)
        wire.push(self.peer, table, range(65536), GRADIENTS)
        bins = [wire.keys(range(keys))] + ([wire.floats([0.01] * 16 * keys)] if method == "push" else [])
        one = wire.request(1, method, {"parts": [{"table": table, "keys": keys}]}, *bins)
        self.peer.send(one)
        self.message = one * in_flight
        answer = wire.msgpack.packb(self.peer.receive(), use_bin_type=True)
        self.answer_bytes = len(answer)
        if method == "push":  # its step is a number that grows longer
            self.answer_bytes = None

    def wait(self):
        if self.answer_bytes is None:
            for _ in range(self.in_flight):
                self.peer.receive()
            return
        left = self.answer_bytes * self.in_flight
        while left > 0:
            left -= len(self.peer.socket.recv(min(left, 1 << 20)))

    def burst(self):
        """Nanoseconds of processor time for a request."""
        before = processor_ns(self.server)
        for _ in range(self.n // self.in_flight):
            self.peer.send(self.message)
            self.wait()
        return (processor_ns(self.server) - before) / self.n


def percent(ratios):
    low, middle, high = statistics.quantiles([100 * (ratio - 1) for ratio in ratios], n=4)
    return f"{middle:+6.2f} % ({low:+.2f} to {high:+.2f})"


CASES = (("pull", 1, 16, 4000), ("pull", 64, 1, 1000), ("pull", 64, 16, 4000), ("pull", 1024, 8, 800), ("pull", 16384, 1, 60),
         ("push", 64, 16, 1000), ("push", 16384, 1, 40))
ORDERS = ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1), (0, 2, 1), (1, 2, 0))


def generation(binaries, case, rounds):
    """Rounds on servers that have just started: three lists of times."""
    servers, times = [], [[], [], []]
    try:
        for binary in binaries:
            embd_process.BIN = binary
            servers.append(embd_process.Embd("--http", "off"))
        loads = [Load(server, *case) for server in servers]
        for load in loads:
            load.burst()
        for i in range(rounds):
            for at in ORDERS[i % 6]:
                times[at].append(loads[at].burst())
    finally:
        for server in servers:
            server.kill()
    return times


def measure(binaries, generations, rounds):
    print(f"{generations} times {rounds} rounds: medians, and quartiles of the paired differences; processor time of a server")
    print(f"{'request':28} {'with':>10} {'without':>10}   {'cost of stages':28} the same server twice")
    for case in CASES:
        there, absent, again = [], [], []
        for i in range(generations):  # in turns, so that nobody is always started first
            order = ORDERS[i % 6]
            times = generation([binaries[at] for at in order], case, rounds)
            for at, list_of_it in zip(order, times):
                (there, absent, again)[at].extend(list_of_it)
        method, keys, in_flight, _ = case
        print(f"{method + f' of {keys} keys, {in_flight} at once':28} {statistics.median(there) / 1000:7.2f} us "
              f"{statistics.median(absent) / 1000:7.2f} us   {percent([a / b for a, b in zip(there, absent)]):28} "
              f"{percent([a / b for a, b in zip(there, again)])}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--generations", type=int, default=12)
    parser.add_argument("--build", help="where to build; kept, so that the next time is faster")
    options = parser.parse_args()
    folder = options.build or tempfile.mkdtemp(prefix="embd-stages-")
    try:
        copy_without(os.path.join(folder, "tree"))
        there = build(TREE, os.path.join(folder, "with"))
        absent = build(os.path.join(folder, "tree"), os.path.join(folder, "without"))
        measure((there, absent, there), options.generations, options.rounds)
    finally:
        if not options.build:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
