"""How long pushes wait for a snapshot's cut: 8 shards of the host store, two trainers that push to all of them without a
pause, and one snapshot after the other. pause.py BIN PUSHER [SNAPSHOTS] prints the median, the 99th percentile and the
longest of `pushes_waited`, in ms."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

SHARDS, SECONDS = 8, 600


def main(folder, pusher, snapshots):
    os.environ["EMBD_BIN"] = folder
    tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    sys.path[:0] = [os.path.join(tests, "integration"), os.path.join(tests, "fault")]
    from embd_process import Embd
    import oracle
    import wire
    pauses = []
    with tempfile.TemporaryDirectory(prefix="embd-pause-") as data, Embd("--data-dir", data, shards=SHARDS) as server:
        servers = {**os.environ, "EMBD_SERVERS": server.addresses[0]}
        trainers = [subprocess.Popen([pusher, server.addresses[0], str(SECONDS), str(first), "1"], stdout=subprocess.DEVNULL)
                    for first in (0, 10**9)]
        for shard in range(SHARDS):
            with wire.connect(server, shard) as peer:
                oracle.create(peer, "snapshot")
        try:
            for number in range(snapshots):
                done = subprocess.run([os.path.join(folder, "embctl"), "snapshot", "-o", "json", "--keep", "2",
                                       f"s{number}"], env=servers, capture_output=True, text=True, timeout=60, check=True)
                pauses.append(json.loads(done.stdout)["snapshot"][0]["pushes_waited_us"] / 1000)
        finally:
            for trainer in trainers:
                trainer.kill()
                trainer.wait()
    pauses.sort()
    print(f"{snapshots} snapshots of {SHARDS} shards: pushes waited {statistics.median(pauses):.2f} ms (median), "
          f"{pauses[int(0.99 * (len(pauses) - 1))]:.2f} (p99), {pauses[-1]:.2f} (longest)")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 200)
