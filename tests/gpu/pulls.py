"""usage: pulls.py BIN... - pulls of 4096 to 262,144 keys of 256 bytes over TCP by one client: medians of latency and keys a second,
of the servers in these folders of programs, in turn. On a machine with a GPU, where embd takes the store cuda by itself."""
import json
import os
import statistics
import subprocess
import sys

SIZES, TURNS = (4096, 8192, 16384, 65536, 262144), 5


def measure(folder, size):
    command = [os.path.join(folder, "embd-bench"), f"--batch={size}", "--dim=64", "--keys=4M", "--clients=1", "--rounds=3",
               "--seconds=0.5", "--output=json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(out)["results"][0]
    return found["p50_us"], found["keys_per_s"] / 1e6


def main(folders):
    print(f"{'keys':>8}  {'p50 us':>9} {'M keys/s':>9}  of")
    for size in SIZES:
        found = {folder: [] for folder in folders}
        for _ in range(TURNS):
            for folder in folders:
                found[folder].append(measure(folder, size))
        for folder in folders:
            p50, rate = (statistics.median(values) for values in zip(*found[folder]))
            print(f"{size:8}  {p50:9.1f} {rate:9.2f}  {folder}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
