"""Which files a call passes through: the way of a pull and of a push, in the client and in the server.

    /usr/bin/python3 tests/layers/trace_calls.py [--build DIR] [-v]

Builds the server and a small driver with -finstrument-functions and without CUDA into DIR (build/trace), makes each call warm,
records the functions entered, and resolves them with addr2line. For each side it prints how many .c files and functions of the
project the call enters, how often it moves from one .c file to another, and how many of these moves return to a file that was
left before. The row "both" has the files and functions of the two sides together. Functions of headers are not counted. -v adds
the files in the order they are first entered, with their functions.

Neither side looks at its sockets before it sleeps (EMBD_SPIN_US, --local-spin): how often it would depends on the machine. Of
five traces the one with the fewest files counts, since the others also have what a timer did meanwhile.
"""

import argparse
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
LOADED = 2**64 - 1  # the thread of a file's first record


def build(folder):
    flags = "-O0 -gdwarf-4 -finstrument-functions"  # addr2line misplaces functions of headers in version 5
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DEMBD_CUDA=OFF",
                    "-DEMBD_PYTHON=OFF", f"-DCMAKE_C_FLAGS_DEBUG={flags}",
                    *(f"-D{name}={value}" for name, value in launchers().items())],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", folder, "embd-server", "trace-driver", "trace-recorder"], check=True, stdout=subprocess.DEVNULL)


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


def count(entries, names):
    """What stands in the table, and the functions of each file in the order they are first entered."""
    files, moves, returns, at, seen = {}, 0, 0, {}, {}
    for thread, address in entries:
        if address not in names:
            continue
        function, path = names[address]
        files.setdefault(path, {})[function] = True
        before = at.get(thread)
        if before is not None and before != path:
            moves += 1
            returns += path in seen[thread]
        at[thread] = path
        seen.setdefault(thread, set()).add(path)
    return {"files": len(files), "functions": sum(map(len, files.values())), "moves": moves, "returns": returns}, files


def both(sides):
    """The files and functions of all sides, once each."""
    files = {}
    for _, _, of_side in sides:
        for path, functions in of_side.items():
            files.setdefault(path, {}).update(functions)
    figures = {name: sum(figures[name] for _, figures, _ in sides) for name in ("moves", "returns")}
    return {"files": len(files), "functions": sum(map(len, files.values())), **figures}


def trace(folder, call):
    """The shortest of some runs."""
    return min((trace_once(folder, call) for _ in range(RUNS)), key=lambda sides: (both(sides)["files"], both(sides)["moves"]))


def trace_once(folder, call):
    """[(side, figures, files)] of one call."""
    driver, server = folder / "bin/trace-driver", folder / "bin/embd"
    with tempfile.TemporaryDirectory(prefix="embd-trace-") as where:
        environment = {**os.environ, "EMBD_TRACE_DIR": where, "EMBD_SPIN_US": "0", "LD_PRELOAD": str(folder / "bin/libtrace-recorder.so")}
        subprocess.run([driver, server, call, where], env=environment, check=True, timeout=60)
        sides = []
        for side, program in (("client", driver), ("server", server)):
            (path,) = pathlib.Path(where).glob(f"{program.name}.*")
            entries = read_records(path)
            names = resolve(program, sorted({address for _, address in entries}))
            sides.append((side, *count(entries, names)))
        return sides


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/trace")
    parser.add_argument("-v", action="store_true", help="name the files and functions")
    options = parser.parse_args()
    build(options.build.resolve())
    print(f"{'call':36}{'side':8}{'files':>7}{'functions':>11}{'moves':>7}{'returns':>9}")
    for call, words in CALLS.items():
        sides = trace(options.build.resolve(), call)
        for side, figures, files in [*sides, ("both", both(sides), {})]:
            print(f"{words:36}{side:8}{figures['files']:7}{figures['functions']:11}{figures['moves']:7}{figures['returns']:9}")
            for path, functions in files.items() if options.v else ():
                print(f"    {path}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
