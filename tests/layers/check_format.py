"""Sources are as clang-format leaves them, by the .clang-format of the tree.

Versions of clang-format differ in their results: 14 decides, the one of Debian 12. Without it the test is skipped.
To mend what is named: clang-format-14 -i FILE..."""

import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("include", "proto", "client", "server", "tests")
SOURCES = {".c", ".h", ".cu", ".cuh", ".cpp"}
VERSION = "14"
SKIPPED = 77
FILES_PER_CALL = 40


def formatter():
    """The path of a clang-format of VERSION, or None."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout if path else ""
        if re.search(rf"\bversion {VERSION}\.", said):
            return path
    return None


def sources():
    for folder in FOLDERS:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SOURCES)


def offences(program, files):
    """The lines of these files that the program would change."""
    run = subprocess.run([program, "--dry-run", *files], capture_output=True, text=True, cwd=ROOT)
    if run.returncode != 0:
        yield run.stderr.strip()
    yield from dict.fromkeys(re.findall(r"^(\S+:\d+):\d+: warning: code should be clang-formatted", run.stderr, re.M))


def main():
    program = formatter()
    if program is None:
        print(f"skipped: no clang-format of version {VERSION} (deploy/deps.sh --tools installs it)")
        return SKIPPED
    files = [str(path.relative_to(ROOT)) for path in sources()]
    parts = [files[at:at + FILES_PER_CALL] for at in range(0, len(files), FILES_PER_CALL)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = [line for part in pool.map(lambda part: list(offences(program, part)), parts) for line in part]
    print("\n".join(found) if found else f"format: no offence in {len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
