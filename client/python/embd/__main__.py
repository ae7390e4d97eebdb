"""python -m embd: a tour of the package on a server of its own; python -m embd convert and overlap: data sets."""
from __future__ import annotations

import argparse
import sys

from . import errors, tour
from .data import convert, overlap


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="python -m embd", description="Tools of embd's Python package.")
    commands = out.add_subparsers(dest="command", metavar="COMMAND")
    tour.add_to(commands)
    convert.add_to(commands)
    overlap.add_to(commands)
    out.set_defaults(run=tour.run, servers=None)
    return out


def main() -> int:
    arguments = parser().parse_args()
    try:
        return int(arguments.run(arguments))
    except (errors.Error, ImportError, OSError, ValueError) as error:
        print(f"python -m embd: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
