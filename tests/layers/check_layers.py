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

NETWORK = {"uv.h", "sys/socket.h", "sys/un.h", "netinet/in.h", "netinet/tcp.h", "arpa/inet.h", "netdb.h",
           "poll.h", "sys/epoll.h"}
THREADS = {"pthread.h", "threads.h", "sched.h"}
CLOCKS = {"time.h", "sys/time.h"}
FILES = {"fcntl.h", "unistd.h", "dirent.h", "sys/stat.h", "sys/mman.h", "sys/uio.h"}
MESSAGES = {"msgpack.h"}
LOOP = {"uv.h"}

CUDA = {"server/store/cuda", "server/store/cuda/kernels"}
SHARD = {"server/engine", "server/engine/rounds", "server/service", "server/service/metrics", "server/snapshot"}

# folder: (folders it may include from, besides itself, system headers it may not include).
# The longest folder that a file lies under decides.
RULES = {
    "include": (set(), NETWORK | THREADS | CLOCKS | FILES | MESSAGES),
    "proto": ({"include"}, NETWORK | THREADS | CLOCKS | FILES),
    "proto/tls": ({"include", "proto"}, NETWORK | THREADS | CLOCKS | MESSAGES),
    "proto/stored": ({"include", "proto"}, NETWORK | THREADS | MESSAGES),
    "client/python": ({"include"}, NETWORK | THREADS | MESSAGES),
    "client/core": ({"include", "proto", "client/call", "client/io", "client/formats"}, set()),
    "client/call": ({"include", "proto", "client/core", "client/io"}, NETWORK | THREADS | CLOCKS | FILES),
    "client/io": ({"include", "proto", "proto/tls"}, set()),
    "client/formats": ({"include", "proto", "proto/stored", "client/core", "client/io"}, MESSAGES),
    "client/data": ({"include", "proto"}, NETWORK | MESSAGES),
    "client/hugectr": ({"include", "proto", "proto/stored"}, NETWORK | MESSAGES),
    "client/embctl": ({"include"}, NETWORK | MESSAGES),
    "client/bench": ({"include"}, LOOP | MESSAGES),
    "client/examples": ({"include"}, NETWORK | MESSAGES),
    "server": ({"include", "proto", "proto/tls", "proto/stored", "server/coordinator", "server/net", "server/net/http", *SHARD, "server/store",
                "server/log", "server/access", "server/journal", "server/member", "server/files"}, MESSAGES),
    # The one boundary between server/ and client/: peers asks other shards over the client's links (embd_io), and
    # includes nothing else of the client; the others of server/ see peers.h alone.
    "server/peers": ({"include", "proto", "proto/tls", "client/io"}, THREADS | CLOCKS | MESSAGES),
    "server/coordinator": ({"include", "proto", "server/peers", "server/log"}, NETWORK | MESSAGES),
    "server/member": ({"include", "proto", "proto/tls", "server/log"}, NETWORK | MESSAGES),
    "server/access": ({"include", "proto"}, NETWORK | THREADS | CLOCKS | MESSAGES),
    "server/log": ({"include", "proto"}, NETWORK | MESSAGES),
    "server/net": ({"include", "proto", "proto/tls", *SHARD, "server/log", "server/access"}, MESSAGES),
    "server/net/http": ({"include", "proto", "server/net", *SHARD, "server/log"}, MESSAGES),
    "server/journal": ({"include", "proto", "server/files", "server/engine", "server/engine/rounds", "server/store", "server/log"}, NETWORK | MESSAGES),
    "server/files": ({"include", "proto"}, NETWORK | CLOCKS | MESSAGES),
    "server/engine": ({"server/engine/rounds", "include", "proto", "server/store"},
                      NETWORK | THREADS | CLOCKS | FILES),
    "server/engine/rounds": ({"server/engine", "include", "proto", "server/store"}, NETWORK | THREADS | CLOCKS | FILES),
    "server/service": ({*SHARD, "server/coordinator", "server/peers", "include", "proto", "server/store", "server/log", "server/access", "server/journal",
                      "server/files"}, NETWORK | THREADS | MESSAGES),
    "server/service/metrics": ({*SHARD, "include", "proto", "server/store"}, NETWORK | THREADS | FILES | MESSAGES),
    "server/snapshot": ({*SHARD, "server/coordinator", "server/peers", "include", "proto", "proto/stored", "server/store", "server/log", "server/journal",
                               "server/files"},
                              NETWORK | THREADS | MESSAGES),
    "server/store": ({"include", "proto"}, NETWORK | THREADS | CLOCKS | FILES | MESSAGES),
    "server/store/host": ({"include", "proto", "server/store"},
                          NETWORK | THREADS | CLOCKS | (FILES - {"sys/mman.h", "unistd.h"}) | MESSAGES),
    "server/store/cuda": ({"include", "proto", "server/store", "server/store/cuda/kernels"},
                          NETWORK | (THREADS - {"pthread.h"}) | CLOCKS | FILES | MESSAGES),
    "server/store/cuda/kernels": ({"include", "proto", "server/store"},
                                  NETWORK | THREADS | CLOCKS | FILES | MESSAGES),
    "server/store/nccl": ({"include", "proto", "server/store", *CUDA, "server/store/nccl/kernels"},
                          NETWORK | (THREADS - {"pthread.h"}) | (CLOCKS - {"time.h"}) | FILES | MESSAGES),
    "server/store/nccl/kernels": ({"include", "proto", "server/store", "server/store/nccl", *CUDA},
                                  NETWORK | THREADS | CLOCKS | FILES | MESSAGES),
}

EXCEPTIONS = {
    # All that libembd-hugectr knows of libembd beyond the public headers.
    ("client/hugectr", "client/formats/table_copy.h"),
    # The buffers that frames are received into come from the store, which may want them pinned for a GPU.
    ("server/net", "server/store/store.h"),
    # Stands in for the device where the compiler is not CUDA's; the tests bring it.
    ("server/store/cuda/kernels", "emulator.h"),
    # Of proto/, kernels may see the arithmetic that client and stores share, and nothing of messages.
    ("server/store/cuda/kernels", "proto/combine.h"),
    ("server/store/cuda/kernels", "proto/dtype.h"),
}

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
    allowed, forbidden = RULES[folder]
    if kind == "<":
        return f"{folder}/ may not include <{name}>" if name in forbidden else None
    if (folder, name) in EXCEPTIONS:
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


def style_offences():
    for path in sources("include", "proto", "client", "server", "tests"):
        name, lines = path.relative_to(ROOT), lines_of(path)
        if len(lines) > MAX_LINES:
            yield f"{name}: {len(lines)} lines; the limit is {MAX_LINES}"
        if FORBIDDEN_NAME.search(path.name):
            yield f"{name}: a file is named for the one idea it holds"
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
