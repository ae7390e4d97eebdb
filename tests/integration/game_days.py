"""Runs the tests with the label game-days, one after the other, and makes a table of what they report (game_day.py): the
seconds that a client waited longest, and the errors that it saw.

usage: game_days.py BUILD"""
import re
import subprocess
import sys

from game_day import MARK


def main():
    command = ["ctest", "--test-dir", sys.argv[1], "-L", "game-days", "-V"]
    rows, quiet = [], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tests:
        for line in tests.stdout:
            found = re.match(rf"\d+: .*?{MARK} (.*)", line)
            if found:
                rows.append([cell.strip() for cell in found[1].split("|")])
            ended = re.match(r" *\d+/\d+ Test +#\d+: (.*?) \.*(\*\*\*\S+|   Passed) .*sec", line)
            if ended:
                print(line.strip(), flush=True)
                quiet += [ended[1]] if "Skipped" in ended[2] else []
        status = tests.wait()
    widths = [max(len(row[i]) for row in [*rows, ["scenario", "seconds", "errors"]]) for i in range(3)]
    for row in [["scenario", "seconds", "errors", "which"], *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0])).rstrip())
    for name in quiet:
        print(f"skipped: {name}")
    sys.exit(status)


if __name__ == "__main__":
    main()
