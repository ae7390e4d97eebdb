"""Processors of their own for the processes of a benchmark, where this process may use enough of them; else all share all. And
how busy their threads are."""
import collections
import contextlib
import os
import time

ALLOWED = sorted(os.sched_getaffinity(0))


def place(first, n):
    """n processors from the first-th on."""
    chosen = ALLOWED[first:first + n]
    return chosen if len(chosen) == n else ALLOWED


def shard_flags(first, shards=1):
    """Each shard's thread stays on one processor, if there are so many."""
    chosen = ALLOWED[first:first + shards]
    return ("--cpus", ",".join(map(str, chosen))) if len(chosen) == shards else ()


@contextlib.contextmanager
def on(first, n):
    """Threads and processes that are started meanwhile stay on these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, place(first, n))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def used(pid):
    """{name: processor seconds} of a process's threads; those with one name are one."""
    found = collections.Counter()
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as file:
            head, _, rest = file.read().rpartition(")")
            found[head.partition("(")[2]] += sum(map(int, rest.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return found


def shard_ns(pid):
    """Processor time of all shards' threads."""
    ns = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as name, \
                open(f"/proc/{pid}/task/{thread}/schedstat", encoding="utf-8") as times:
            ns += int(times.read().split()[0]) if name.read().startswith("embd-shard-") else 0
    return ns


@contextlib.contextmanager
def watched(pids):
    """What it gives has, at the end, the cores that threads had, by the process's name and theirs: those with 0.05 and more."""
    found, begin, before = {}, time.monotonic(), {name: used(pid) for name, pid in pids.items()}
    yield found
    took = time.monotonic() - begin
    for name, pid in pids.items():
        cores = {thread: round((s - before[name][thread]) / took, 2) for thread, s in used(pid).items()}
        found[name] = {thread: n for thread, n in cores.items() if n >= 0.05}
