"""Which files a call passes through: the way of a pull and of a push, in the client and in the server.

    /usr/bin/python3 tests/layers/trace_calls.py [--build DIR] [-v] [--order]

Builds the server and a small driver with -finstrument-functions and without CUDA into DIR (build/trace), makes each call warm,
records the functions entered, and resolves them with addr2line. For each side it prints how many .c files and functions of the
project the call enters, how often it moves from one .c file to another, and how many of these moves return to a file that was
left before. The row "both" has the files and functions of the two sides together. Functions of headers are not counted. -v adds
the files in the order they are first entered, with their functions, and the pairs of files between which most returns are: for
each, how often, and the functions that are entered there. --order prints every function in the order it is entered.

Neither side looks at its sockets before it sleeps (EMBD_SPIN_US, --local-spin): how often it would depends on the machine. Of
five traces the one with the fewest files counts, since the others also have what a timer did meanwhile.
"""

import argparse
import collections
import os
import pathlib
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CALLS = {
    "pull": "pull 64 keys, 1 shard, raw",
    "pull-bags": "pull 8 bags x 8 keys, 2 shards",
    "push": "push 64 keys, 1 shard",
    "push-durable": "push 64 keys, 2 shards, durable",
}
RECORD = struct.Struct("<QQ")
RUNS = 5
PAIRS = 30  # that -v names
LOADED = 2**64 - 1  # the thread of a file's first record


def build(folder):
    flags = "-O0 -gdwarf-4 -finstrument-functions"  # addr2line misplaces functions of headers in version 5
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DEMBD_CUDA=OFF",
                    "-DEMBD_PYTHON=OFF", f"-DCMAKE_C_FLAGS_DEBUG={flags}",
                    *(f"-D{name}={value}" for name, value in launchers().items())],
                   check=True, stdout=subprocess.DEVNULL)
    # An object that ccache has from another checkout names the files of that one: they would not count.
    environment = {name: value for name, value in os.environ.items() if name not in ("CCACHE_BASEDIR", "CCACHE_NOHASHDIR")}
    subprocess.run(["ninja", "-C", folder, "embd-server", "trace-driver", "trace-recorder"], env=environment, check=True,
                   stdout=subprocess.DEVNULL)


def launchers():
    """ccache, where it is there."""
    found = any(os.access(os.path.join(folder, "ccache"), os.X_OK) for folder in os.get_exec_path())
    return {"CMAKE_C_COMPILER_LAUNCHER": "ccache", "CMAKE_CXX_COMPILER_LAUNCHER": "ccache"} if found else {}


def read_records(path):
    """Entries as (thread, address within the program)."""
    entries, base = [], 0
    with open(path, "rb") as file:
        while True:
            thread, address = RECORD.unpack(file.read(RECORD.size))
            if thread == 0:
                return entries
            if thread == LOADED:
                base = address
            else:
                entries.append((thread, address - base))


def resolve(program, addresses):
    """address -> (function, path from the root), for functions of the project's .c files."""
    asked = "\n".join(hex(address) for address in addresses)
    lines = subprocess.run(["addr2line", "-f", "-e", program], input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {}
    for address, function, place in zip(addresses, lines[::2], lines[1::2]):
        path = pathlib.Path(os.path.normpath(place.split(":")[0]))
        if path.suffix == ".c" and path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "tests"):
            found[address] = (function, str(path.relative_to(ROOT)))
    return found


def count(entries):
    """What stands in the table, the functions of each file in the order they are first entered, and (from, to, function) of
    the returns."""
    files, moves, returns, at, seen = {}, 0, collections.Counter(), {}, {}
    for thread, function, path in entries:
        files.setdefault(path, {})[function] = True
        before = at.get(thread)
        if before is not None and before != path:
            moves += 1
            if path in seen[thread]:
                returns[before, path, function] += 1
        at[thread] = path
        seen.setdefault(thread, set()).add(path)
    return {"files": len(files), "functions": sum(map(len, files.values())), "moves": moves, "returns": returns.total()}, files, returns


def both(sides):
    """The files and functions of all sides, once each."""
    files = {}
    for _, _, of_side, *_ in sides:
        for path, functions in of_side.items():
            files.setdefault(path, {}).update(functions)
    figures = {name: sum(figures[name] for _, figures, *_ in sides) for name in ("moves", "returns")}
    return {"files": len(files), "functions": sum(map(len, files.values())), **figures}


def show_pairs(returns):
    """The pairs with most returns, either way."""
    pairs = {}
    for (before, path, function), times in returns.items():
        pairs.setdefault(tuple(sorted((before, path))), collections.Counter())[function] += times
    for (one, other), functions in sorted(pairs.items(), key=lambda pair: -pair[1].total())[:PAIRS]:
        words = ", ".join(f"{function} {times}" for function, times in functions.most_common())
        print(f"    {functions.total():4} {one} -- {other}: {words}")


def show_order(entries):
    at = {}
    for thread, function, path in entries:
        print(f"    {thread:3} {'' if at.get(thread) == path else path:36} {function}")
        at[thread] = path


def trace(folder, call):
    """The shortest of some runs."""
    return min((trace_once(folder, call) for _ in range(RUNS)), key=lambda sides: (both(sides)["files"], both(sides)["moves"]))


def trace_once(folder, call):
    """[(side, figures, files, returns, entries)] of one call."""
    driver, server = folder / "bin/trace-driver", folder / "bin/embd"
    with tempfile.TemporaryDirectory(prefix="embd-trace-") as where:
        environment = {**os.environ, "EMBD_TRACE_DIR": where, "EMBD_SPIN_US": "0", "LD_PRELOAD": str(folder / "bin/libtrace-recorder.so")}
        subprocess.run([driver, server, call, where], env=environment, check=True, timeout=60)
        sides = []
        for side, program in (("client", driver), ("server", server)):
            (path,) = pathlib.Path(where).glob(f"{program.name}.*")
            entries = read_records(path)
            names = resolve(program, sorted({address for _, address in entries}))
            named = [(thread, *names[address]) for thread, address in entries if address in names]
            sides.append((side, *count(named), named))
        return sides


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/trace")
    parser.add_argument("-v", action="store_true", help="name the files and functions, and the pairs of files with most returns")
    parser.add_argument("--order", action="store_true", help="name each function in the order it is entered")
    options = parser.parse_args()
    build(options.build.resolve())
    print(f"{'call':36}{'side':8}{'files':>7}{'functions':>11}{'moves':>7}{'returns':>9}")
    for call, words in CALLS.items():
        sides = trace(options.build.resolve(), call)
        for side, figures, files, returns, entries in [*sides, ("both", both(sides), {}, {}, [])]:
            print(f"{words:36}{side:8}{figures['files']:7}{figures['functions']:11}{figures['moves']:7}{figures['returns']:9}")
            for path, functions in files.items() if options.v else ():
                print(f"    {path}: {', '.join(functions)}")
            show_pairs(returns if options.v else {})
            show_order(entries if options.order else [])


if __name__ == "__main__":
    main()
