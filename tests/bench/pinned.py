"""Processors of their own for the processes of a benchmark, where this process may use enough of them; else all share all."""
import contextlib
import os

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
