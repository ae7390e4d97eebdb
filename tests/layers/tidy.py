"""tidy.py BUILD [FILE...]: clang-tidy, with the checks of .clang-tidy, over the C sources that BUILD compiles.

All of proto/, client/ and server/, or the files that are named. Exit status 1: it found something."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = {"proto", "client", "server"}
FILES_PER_CALL = 8


def sources(build, named):
    commands = json.loads(pathlib.Path(build, "compile_commands.json").read_text(encoding="utf-8"))
    files = {pathlib.Path(entry["file"]) for entry in commands}
    ours = sorted(path for path in files if path.suffix == ".c" and path.is_relative_to(ROOT)
                  and path.relative_to(ROOT).parts[0] in FOLDERS)
    wanted = {pathlib.Path(name).resolve() for name in named}
    return [path for path in ours if not wanted or path in wanted]


def main():
    build, named = sys.argv[1], sys.argv[2:]
    program = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if program is None:
        sys.exit("tidy: there is no clang-tidy (deploy/deps.sh --tools installs it)")
    files = sources(build, named)
    parts = [files[at:at + FILES_PER_CALL] for at in range(0, len(files), FILES_PER_CALL)]

    def run(part):
        return subprocess.run([program, "-p", build, "--quiet", "--extra-arg=-Wno-error", *part], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = list(pool.map(run, parts))
    found = "".join(done.stdout for done in runs)
    print(found or f"tidy: no offence in {len(files)} files")
    return 1 if found or any(done.returncode for done in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
