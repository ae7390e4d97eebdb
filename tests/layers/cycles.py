"""Circles among object files: files that need each other by the symbols they define and use.

    cycles.py BUILD [--most-in-circle N] [--most-files N] [--verbose]

Reads BUILD/compile_commands.json for the objects of proto/, client/ and server/, and asks nm for their symbols. File A
needs file B if A uses a symbol that B defines; where programs define the same name, the one of A's own target counts.
A circle is a strongly connected component of more than one file. Objects that were not built are left out; the GPU
stores are there without CUDA too, because tests/cuda and tests/nccl compile them for the emulator.

    --most-in-circle N   fail if a circle has more files
    --most-files N       fail if all circles together have more files
    --verbose            show which symbols lead from file to file"""

import argparse
import collections
import json
import pathlib
import re
import shlex
import subprocess
import sys

FOLDERS = {"proto", "client", "server"}


def objects_of(build):
    """Path of an object -> (target, source relative to the root)."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    root = next(pathlib.Path(line.split("=", 1)[1]) for line in (build / "CMakeCache.txt").read_text().splitlines()
                if line.startswith("CMAKE_HOME_DIRECTORY:"))
    found = {}
    for entry in commands:
        source = pathlib.Path(entry["file"])
        words = shlex.split(entry["command"])
        made = pathlib.Path(entry["directory"], words[words.index("-o") + 1])
        if not source.is_relative_to(root) or not made.is_file():
            continue
        target = re.search(r"CMakeFiles/([^/]+)\.dir/", str(made))[1]
        name = source.relative_to(root)
        if name.parts[0] in FOLDERS:
            found[str(made)] = (target, str(name))
    return found


def symbols_of(objects):
    """(symbol -> objects that define it, object -> symbols that it uses)."""
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    listing = subprocess.run(["nm", "-A", "-P", "-g", *objects], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        path, symbol, kind = line.split()[:3]
        path = path.removesuffix(":")
        if kind in "Uvw":
            used[path].add(symbol)
        else:
            defined[symbol].add(path)
    return defined, used


def needs_of(objects):
    """source -> source that it needs -> the symbols."""
    defined, used = symbols_of(objects)
    needs = {name: collections.defaultdict(set) for _, name in objects.values()}
    for path, symbols in used.items():
        target, name = objects[path]
        for symbol in symbols:
            owners = defined.get(symbol, set())
            own = {owner for owner in owners if objects[owner][0] == target}
            for owner in own or owners:
                if objects[owner][1] != name:
                    needs[name][objects[owner][1]].add(symbol)
    return needs


def finishing_order(graph):
    """The nodes in the order in which a depth-first walk leaves them."""
    order, seen = [], set()
    for start in graph:
        if start in seen:
            continue
        seen.add(start)
        path = [(start, iter(graph[start]))]
        while path:
            node, rest = path[-1]
            following = next((other for other in rest if other not in seen), None)
            if following is None:
                order.append(node)
                path.pop()
            else:
                seen.add(following)
                path.append((following, iter(graph[following])))
    return order


def circles_of(graph):
    """Strongly connected components of more than one node, the largest first (Kosaraju's two walks)."""
    users = {node: [] for node in graph}
    for node, others in graph.items():
        for other in others:
            users[other].append(node)
    placed, circles = set(), []
    for start in reversed(finishing_order(graph)):
        if start in placed:
            continue
        circle, waiting = [], [start]
        placed.add(start)
        while waiting:
            node = waiting.pop()
            circle.append(node)
            fresh = [user for user in users[node] if user not in placed]
            placed.update(fresh)
            waiting += fresh
        if len(circle) > 1:
            circles.append(sorted(circle))
    return sorted(circles, key=lambda circle: (-len(circle), circle))


def show(circle, needs, verbose):
    print(f"\n{len(circle)} files: {' '.join(circle)}")
    for name in circle if verbose else ():
        for other in sorted(set(needs[name]) & set(circle)):
            print(f"  {name} -> {other}: {', '.join(sorted(needs[name][other]))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--most-in-circle", type=int)
    parser.add_argument("--most-files", type=int)
    parser.add_argument("--verbose", action="store_true")
    flags = parser.parse_args()
    objects = objects_of(flags.build.resolve())
    if not objects:
        sys.exit(f"cycles: {flags.build} has no objects of {', '.join(sorted(FOLDERS))}")
    needs = needs_of(objects)
    circles = circles_of(needs)
    largest, files = max(map(len, circles), default=0), sum(map(len, circles))
    print(f"{files} of {len(needs)} files are in {len(circles)} circles, the largest of {largest}")
    for circle in circles:
        show(circle, needs, flags.verbose)
    failed = False
    for what, value, limit in (("the largest circle has", largest, flags.most_in_circle),
                               ("all circles have", files, flags.most_files)):
        if limit is not None and value > limit:
            print(f"\ncycles: {what} {value} files; the limit is {limit}")
            failed = True
        elif limit is not None and value < limit:
            print(f"\ncycles: {what} {value} files; lower the limit of {limit} in tests/layers/CMakeLists.txt")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
