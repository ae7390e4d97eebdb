"""What failing.c can make fail: which steps a program passes, and the environment in which one of them fails."""
import collections
import contextlib
import os
import tempfile

PRELOAD = os.path.join(os.environ["EMBD_FAULT_TOOLS"], "libembd-failing.so")

# Steps of no file: which of them fails, and how, is test_nth.py's matter.
NO_FILES = ("memory.", "socket.", "poll.", "event.", "thread.", "name.", "random.")


def variables(directory, point=None, log=None):
    """Of a program whose files in `directory` are watched; `point` is NAME:KIND:N."""
    made = {"LD_PRELOAD": PRELOAD, "EMBD_FAILPOINT_DIR": directory,
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    if point is not None:
        made["EMBD_FAILPOINT"] = point
    if log is not None:
        made["EMBD_FAILPOINT_LOG"] = log
    return made


@contextlib.contextmanager
def environment(made):
    """What starts meanwhile has these variables."""
    before = dict(os.environ)
    os.environ.update(made)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def passed(run):
    """{name: how often} of the steps that run(log) passes; it starts its program with that log."""
    with tempfile.NamedTemporaryFile(prefix="embd-steps-", mode="r") as log:
        run(log.name)
        return collections.Counter(log.read().split())


def points(steps, kinds, most):
    """NAME:KIND:N of all steps of files, N up to `most` and as far as the step was passed. Directories and journals
    are read in pieces, and at the start already: so more of those passings."""
    for name, n_passed in sorted(steps.items()):
        for kind in kinds:
            if name.startswith(NO_FILES):
                continue
            if kind == "torn" and not name.endswith(".write") or kind == "enospc" and name.endswith(".read"):
                continue
            first = 12 * most if kind == "eio" and name in ("directory.read", "journal.read") else most
            for number in range(1, min(first, n_passed) + 1):
                yield f"{name}:{kind}:{number}"
