"""Which folder may include what, and the limits of style that a machine can check.

Every quoted include names the path of a header from the root of the tree (or from include/). It is an offence
where the rule of the including folder does not name the header's folder. System headers that would
let a pure folder reach sockets, threads, clocks or files are offences too. Offenders are listed, one a line.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = (".c", ".h", ".cu", ".cuh", ".cc", ".cpp")
MAX_LINES = 800
MAX_COLUMNS = 100
UNBREAKABLE = re.compile(r'"|://')  # a line with a string or a URL, which clang-format leaves whole

LAYERS = ROOT / "deploy/cmake/layers.txt"

# System headers by what they let a folder reach.
SYSTEM = {
    "network": {"uv.h", "sys/socket.h", "sys/un.h", "netinet/in.h", "netinet/tcp.h", "arpa/inet.h", "netdb.h", "poll.h",
                "sys/epoll.h"},
    "threads": {"pthread.h", "threads.h", "sched.h"},
    "clocks": {"time.h", "sys/time.h"},
    "files": {"fcntl.h", "unistd.h", "dirent.h", "sys/stat.h", "sys/mman.h", "sys/uio.h"},
    "messages": {"msgpack.h"},
    "loop": {"uv.h"},
}


def read_rules():
    """{folder: (folders and headers it may include, besides itself; headers that it reaches through those of others;
    system headers it may not include)}"""
    rules = {}
    for line in LAYERS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        folder, seen, system = (part.split() for part in line.split("|"))
        forbidden = set().union(*(SYSTEM[word] for word in system if not word.startswith("but:")))
        rules[folder[0]] = ({name for name in seen if not name.startswith("via:")},
                            {name.removeprefix("via:") for name in seen if name.startswith("via:")},
                            forbidden - {word.removeprefix("but:") for word in system})
    return rules


RULES = read_rules()

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
FORBIDDEN_NAME = re.compile(r"(^|[_-])(utils?|common|helpers?|manager|misc)([_.-]|$)")
FORBIDDEN_TEXT = [
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "an unfinished place is marked in the source"),
    (re.compile(r"^\s*#\s*if\s+0\b"), "dead code"),
]


def sources(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCES:
                yield path


def folder_of(path):
    """The folder of RULES that decides for a file."""
    relative = path.relative_to(ROOT)
    matches = [f for f in RULES if relative.is_relative_to(f)]
    return max(matches, key=len)


def include_offence(path, kind, name):
    """Why this file may not include that header, or None."""
    folder = folder_of(path)
    allowed, _, forbidden = RULES[folder]
    if kind == "<":
        return f"{folder}/ may not include <{name}>" if name in forbidden else None
    if name in allowed:
        return None
    header = ROOT / ("include" if name.startswith("embd/") else "") / name
    if ".." in name or not header.is_file():
        return f'"{name}" is not the path of a header from the root of the tree'
    owner = folder_of(header)
    if owner == folder or owner in allowed:
        return None
    return f'{folder}/ may not include "{name}"'


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def layer_offences():
    for path in sources("include", "proto", "client", "server"):
        for number, line in enumerate(lines_of(path), 1):
            match = INCLUDE.match(line)
            offence = include_offence(path, match[1], match[2]) if match else None
            if offence:
                yield f"{path.relative_to(ROOT)}:{number}: {offence}"


def default_offences(path, text):
    """A caller of an earlier header gives fewer members: the others are what the struct had before embd__take."""
    for kind, name in set(re.findall(r"embd__take\((\w+), &(\w+),", text)):
        for declared in re.finditer(rf"^ *{kind} {name};", text, re.MULTILINE):
            yield f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, declared.start()) + 1}: embd__take fills it, and it has no defaults"


def style_offences():
    for path in sources("include", "proto", "client", "server", "tests"):
        name, lines = path.relative_to(ROOT), lines_of(path)
        if len(lines) > MAX_LINES:
            yield f"{name}: {len(lines)} lines; the limit is {MAX_LINES}"
        if FORBIDDEN_NAME.search(path.name):
            yield f"{name}: a file is named for the one idea it holds"
        yield from default_offences(path, "\n".join(lines))
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_COLUMNS and not UNBREAKABLE.search(line):
                yield f"{name}:{number}: {len(line)} columns; the limit is {MAX_COLUMNS}"
            for pattern, reason in FORBIDDEN_TEXT:
                if pattern.search(line):
                    yield f"{name}:{number}: {reason}"


def main():
    offences = list({"layers": layer_offences, "style": style_offences}[sys.argv[1]]())
    print("\n".join(offences) if offences else f"{sys.argv[1]}: no offence")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
