"""record.py BIN FOLDER: the figures of this commit, as FOLDER/COMMIT.json.

One file holds the bars of bench-suite on a table of 1 M rows of 16 columns, some workloads of embd-bench, and on which
machine and when they were measured. It takes about two minutes."""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = ["--seconds", "0.4", "--rounds", "5", "-o", "json"]
SUITE = ["--keys", "1M", "--dim", "16"]
WORKLOADS = {
    "pull": ["--mix", "pull"],
    "pooled": ["--mix", "pooled:8"],
    "push": ["--mix", "push"],
    "train": ["--mix", "train", "--in-flight", "2"],
    "small": ["--small"],
}


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def measure(program, *flags):
    return json.loads(subprocess.run([program, *flags, *SHORT], stdout=subprocess.PIPE, check=True).stdout)


def main():
    bin_folder, folder = map(pathlib.Path, sys.argv[1:])
    commit = git("rev-parse", "--short=12", "HEAD") + ("-changed" if git("status", "--porcelain", "-uno") else "")
    record = {
        "commit": commit,
        "committed": git("log", "-1", "--format=%cI"),
        "measured": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"processor": processor(), "processors": os.cpu_count(), "kernel": platform.release()},
        "suite": measure(bin_folder / "bench-suite", *SUITE),
        "workloads": {name: measure(bin_folder / "embd-bench", *flags) for name, flags in WORKLOADS.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{commit}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
