"""compare.py BUILD [--to REVISION] [--rounds N] [--seconds S]: processor time of a key beside an earlier revision.

Both revisions run the same workloads in turn, each with a server and an embd-bench of its own. Compared is the processor
time of server and client together, for each key. The two runs of a pair follow each other, so what the machine does
besides happens to both; it should do little. An alarm, exit status 1, is a workload whose median ratio is above 1.05 and
whose lower quartile is above 1. Without --to the last tag is the earlier revision; 77 says that there is none. With 9
rounds it takes some five minutes, and the first time a build."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import released  # noqa: E402

SKIPPED = 77
ALARM = 1.05
TABLE = ["--keys", "1M", "--rounds", "1", "-o", "json"]
WORKLOADS = {
    "pull, 65,536 keys": ["--mix", "pull"],
    "pull, 8 keys a row": ["--mix", "pooled:8"],
    "push, 65,536 keys": ["--mix", "push"],
    "pull, 1,024 keys": ["--batch", "1024"],
    "push, 1,024 keys": ["--mix", "push", "--batch", "1024"],
    "pull, 64 keys": ["--small"],
}


def cost(build, flags, seconds):
    """Nanoseconds of processor time of a key."""
    command = [build / "bin/embd-bench", *TABLE, "--seconds", str(seconds), *flags]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120).stdout)
    return next(row for row in report["results"] if row["what"] == "embd")["cpu_ns_per_key"]


def compare(builds, flags, options):
    """(ratio of each pair of rounds, ns of a key now): the order within a pair changes from round to round."""
    ratios, costs = [], []
    for number in range(options.rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        found = {which: cost(builds[which], flags, options.seconds) for which in order}
        ratios.append(found[1] / found[0])
        costs.append(found[1])
    return ratios, statistics.median(costs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--to", metavar="REVISION", default=released.last_tag())
    parser.add_argument("--rounds", type=int, default=9, help="at least 2 (9)")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("-o", dest="file", type=pathlib.Path, help="write the ratios as JSON, too")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds is less than 2")
    if options.to is None:
        print("skipped: there is no tag to compare with; --to REVISION names one")
        return SKIPPED
    before = released.build_of(options.to, options.build / "released", "embd-server", "embd-bench")
    results = []
    for name, flags in WORKLOADS.items():
        ratios, ns = compare((before, options.build), flags, options)
        results.append({"what": name, "ns_per_key": ns, "ratio": statistics.median(ratios), "min": min(ratios),
                        "quartile": statistics.quantiles(ratios)[0], "max": max(ratios)})
        print(f"{name:20} {ns:8.1f} ns a key, {results[-1]['ratio']:.3f} of {options.to} "
              f"({min(ratios):.3f} to {max(ratios):.3f})", flush=True)
    if options.file:
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(json.dumps({"to": options.to, "results": results}, indent=1) + "\n", encoding="utf-8")
    slower = [result["what"] for result in results if result["ratio"] > ALARM and result["quartile"] > 1]
    print(f"ALARM: more than {ALARM} in {', '.join(slower)}" if slower else f"no workload above {ALARM}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
