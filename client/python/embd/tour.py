"""The tour: the statements a trainer is made of, each shown and then run.

It needs a server: one that is named by --servers, or the program embd, which it starts on a free port and ends
again. Nothing in the tour is special: what is shown is what is executed, in one namespace."""
from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from typing import Any, Optional

STEPS = [
    ("A table: 4 columns, sums of rows, Adagrad on the server.", """
     items = client.create_table("tour", dim=4, optimizer=embd.Optimizer("adagrad", lr=0.5),
                                 initializer=embd.Initializer("uniform", -0.05, 0.05), seed=1)
     items.schema.optimizer
     """),
    ("Two bags of keys, {7, 9} and {7}. Every 64-bit integer is a key; a row that nobody has pushed to has its first value.",
     """
     keys, lengths = np.array([7, 9, 7]), [2, 1]
     items.pull(keys, lengths=lengths)
     """),
    ("A push of the gradient of those two sums: one optimizer step for key 7 and one for key 9.", """
     items.push(keys, np.ones((2, 4), np.float32), lengths=lengths)
     items.pull(keys, lengths=lengths)
     """),
    ("Single rows, and what became of each key.", """
     statuses = np.empty(3, np.uint8)
     items.pull([7, 9, 11], raw=True, statuses=statuses)
     [embd.KeyStatus(status).name for status in statuses]
     """),
    ("Started calls: the next batch is on its way while this one is computed.", """
     call = items.pull_start(np.arange(1000))
     call.wait().shape
     """),
    ("A call that fails says why, and who said so.", """
     try:
         items.push([1], [[float("nan"), 0, 0, 0]])
     except embd.Error as error:
         print(error.status.name, "|", error.server, "|", error.cause)
     """),
    ("What the servers say.", """
     [shard.tables["tour"]["rows"] for shard in client.stats()]
     items.drop()
     """),
]


def add_to(commands: Any) -> None:
    parser = commands.add_parser("tour", help="the tour (also without a command)", description=__doc__)
    parser.add_argument("--servers", metavar="HOST:PORT[,...]", help="a cluster that runs; without it, one is started")
    parser.set_defaults(run=run)


@contextlib.contextmanager
def own_server() -> Iterator[str]:
    """Starts the program embd, from $EMBD_BIN or the path, on a free port; ends it when the block ends."""
    program = shutil.which("embd", path=os.environ.get("EMBD_BIN")) or shutil.which("embd")
    if program is None:
        raise OSError("the program embd is not in PATH or EMBD_BIN; start one elsewhere and name it: "
                      "python -m embd tour --servers HOST:PORT")
    process = subprocess.Popen([program, "--listen", "127.0.0.1:0", "--shards", "2", "--log-level", "error"],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " listening on " not in line:
            raise OSError(f"{program} did not start")
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(20)


def _statements(code: str) -> list[str]:
    """Statements of a step: a line, with the indented lines below it."""
    out: list[str] = []
    for line in textwrap.dedent(code).strip().splitlines():
        if line.startswith((" ", "except")):
            out[-1] += "\n" + line
        else:
            out.append(line)
    return out


def _show(statement: str, names: dict[str, Any]) -> None:
    print(">>> " + statement.replace("\n", "\n... "))
    try:
        code = compile(statement, "<tour>", "eval")
    except SyntaxError:
        exec(statement, names)  # noqa: S102 - the statements above
        return
    value = eval(code, names)  # noqa: S307 - the statements above
    if value is not None:
        print(value)


def run(arguments: Any) -> int:
    with contextlib.ExitStack() as stack:
        servers: Optional[str] = arguments.servers
        address = servers or stack.enter_context(own_server())
        names: dict[str, Any] = {}
        _show("import embd, numpy as np", names)
        _show(f'client = embd.connect("{address}")', names)
        for title, code in STEPS:
            print("\n# " + "\n# ".join(textwrap.wrap(title, 100)))
            for statement in _statements(code):
                _show(statement, names)
        names["client"].close()
    return 0
