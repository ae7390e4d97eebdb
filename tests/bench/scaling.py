"""Measures the constants of deploy/SCALING.md on this machine: scaling.py [--quick]

What a pull costs a server is the processor time of its threads over a burst of pulls, sent by a client that does nothing
else; with sizes far apart it splits into a part of the request and a part of each key. The grid then shows what shards and
clients that share the machine's cores reach together."""
import json
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
os.environ.setdefault("EMBD_BIN", "build/release/bin")
from embd_process import Embd  # noqa: E402
import wire  # noqa: E402

BENCH = os.path.join(os.environ["EMBD_BIN"], "embd-bench")
QUICK = "--quick" in sys.argv


def processor_ns(server):
    """Of all threads, from the scheduler's own account."""
    threads = f"/proc/{server.pid}/task"
    return sum(int(open(f"{threads}/{thread}/schedstat", encoding="ascii").read().split()[0])
               for thread in os.listdir(threads))


def receive(peer, bytes_wanted):
    buffer = bytearray(min(bytes_wanted, 1 << 20))
    while bytes_wanted > 0:
        bytes_wanted -= peer.recv_into(buffer, min(len(buffer), bytes_wanted))


def burst(server, method, dim, keys, in_flight, n):
    """Nanoseconds of processor time of one pull or push; the best of five bursts, as others use the machine too."""
    with wire.connect(server) as peer:
        table = wire.create(peer, f"t{dim}", dim)
        for first in range(0, 65536, 8192):
            wire.push(peer, table, range(first, first + 8192), [0.5] * dim * 8192)
        bins = [wire.keys(range(keys))]
        if method == "push":
            bins.append(wire.floats([0.5] * dim * keys))
        one = wire.request(1, method, {"parts": [{"table": table, "keys": keys}]}, *bins)
        peer.send(one)
        answer = len(wire.msgpack.packb(peer.receive(), use_bin_type=True))
        best = float("inf")
        for _ in range(5):
            before = processor_ns(server)
            for _ in range(n // in_flight):
                peer.send(one * in_flight)
                receive(peer.socket, answer * in_flight)
            best = min(best, (processor_ns(server) - before) / n)
        return best


def measure_requests():
    print("           dim    keys  in flight  us/call  ns/key")
    with Embd("--http", "off") as server:
        for method, dim in (("pull", 16), ("push", 16), ("pull", 64), ("push", 64)):
            for keys, in_flight, n in ((1, 1, 4000), (1, 16, 16000), (64, 16, 16000), (1024, 8, 4000), (16384, 1, 300),
                                       (65536, 1, 80)):
                ns = burst(server, method, dim, keys, in_flight, n // (4 if QUICK else 1))
                print(f"{method:8} {dim:5} {keys:7} {in_flight:10} {ns / 1000:8.2f} {ns / keys:7.1f}", flush=True)


def measure_memory():
    for shards in (1, 16):
        with Embd("--http", "off", shards=shards) as server:
            print(f"resident with {shards} shards: {server.rss_bytes() / 1024:.0f} KiB")
    with Embd("--http", "off") as server:
        before = server.rss_bytes()
        peers = [socket.create_connection(("127.0.0.1", server.port())) for _ in range(900)]
        with wire.connect(server) as peer:  # accepted after all of them
            peer.call("ping", {})
        print(f"a connection at rest: {(server.rss_bytes() - before) / len(peers):.0f} bytes resident\n")
        for peer in peers:
            peer.close()


def measure_grid():
    counts = [1, 4, 16] if QUICK else [1, 2, 4, 8, 16]
    print("\nshards clients  M keys/s    p50 us    p99 us")
    for shards in counts:
        for clients in counts:
            flags = ["--keys", "100K", "--clients", str(clients), "--shards", str(shards), "--batch", "16384", "--dim", "16",
                     "--rounds", "1", "--seconds", "0.3" if QUICK else "1", "-o", "json"]
            done = subprocess.run([BENCH, *flags], capture_output=True, text=True, timeout=300, check=True)
            r = [r for r in json.loads(done.stdout)["results"] if r["what"] == "embd"][0]
            print(f"{shards:6} {clients:7} {r['keys_per_s'] / 1e6:9.2f} {r['p50_us']:9.0f} {r['p99_us']:9.0f}", flush=True)


if __name__ == "__main__":
    measure_memory()
    measure_requests()
    measure_grid()
