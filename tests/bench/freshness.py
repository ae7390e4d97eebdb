"""How fresh a replica is while its server takes all pushes that it can, and what the replica costs them. In each round embd-bench pushes
with the replica at rest (stopped), and, once it has all, with the replica. Meanwhile probe rows are pushed to the server and pulled from
the replica: the time from an acknowledgement until a pull shows it stands beside what the replica's histogram counts. A round can
also push at a share of the rate that was found (--share). With --serve-dtype the replica keeps narrow rows; with --no-serve it is a
follower that answers no pull, and nothing but the pushes is measured. With --stranger it is a server that follows nobody and takes as
many pushes from a load of its own: what two servers cost each other on one host. Of these it says the rate, the processor time of the server's
shard for each key, both with the replica at rest and without, and how long the replica took to have all behind them. Server, replica,
load and probes have processors of their own, if there are 14. freshness.py [--dir DIRECTORY] [--keys N] [--dim N] [--batch N]
[--in-flight N] [--rounds N] [--seconds S] [--share F] [--serve-dtype DTYPE] [--no-serve] [--stranger] [-o json]"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

import pinned
import wire
from embd_process import Embd
from ports import free_ports

BENCH = os.path.join(os.environ["EMBD_BIN"], "embd-bench")
NAME = "embd_follow_freshness_seconds"
SERVER, REPLICA, LOAD, PROBES, OTHER_LOAD = (0, 4), (4, 4), (8, 2), (10, 4), (12, 2)  # first processor, and how many


def bench(server, o, rate=None, load=LOAD):
    """Keys a second."""
    with pinned.on(*load):
        said = subprocess.run([BENCH, "--servers", server.addresses[0], "--mix", "push", "--durability", "buffered", "--keys", o.keys,
                               "--dim", str(o.dim), "--batch", str(o.batch), "--in-flight", str(o.in_flight), "--rounds", "1",
                               "--seconds", str(o.seconds), "-o", "json", *(["--rate", str(rate)] if rate else [])],
                              check=True, capture_output=True, text=True)
    return next(row for row in json.loads(said.stdout)["results"] if row["what"] == "embd")["keys_per_s"]


def measured_bench(server, o, found, name, rate=None):
    ns, keys = pinned.shard_ns(server.pid), pushed(server.http)
    found[name].append(bench(server, o, rate))
    found["ns_" + name].append((pinned.shard_ns(server.pid) - ns) / max(1, pushed(server.http) - keys))


def pushed(http):
    return int(re.search(r"^embd_keys_pushed_total\{.*\} (\d+)$", metrics(http), flags=re.M).group(1))


def metrics(http):
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as answer:
        return answer.read().decode()


def histogram(http):
    """[(upper bound in seconds, records up to it)]"""
    found = re.findall(rf'^{NAME}_bucket{{shard="0",le="(\S+)"}} (\d+)$', metrics(http), flags=re.M)
    return [(float(bound), int(n)) for bound, n in found]


def wait_histogram(http):
    """A shard that is busy may not answer in time, and then the page is without it."""
    end = time.monotonic() + 60
    while not (found := histogram(http)):
        if time.monotonic() > end:
            raise AssertionError("the replica's shard shows no figures")
        time.sleep(0.1)
    return found


def bound_of(before, after, quantile):
    """The bucket that has the quantile of what came between: no record was later than that."""
    grown = [(bound, n - m) for (bound, n), (_, m) in zip(after, before)]
    return next((bound for bound, n in grown if n >= quantile * grown[-1][1]), float("nan"))


def value(peer, table):
    """None: the replica does not answer pulls yet."""
    try:
        rows = peer.call("pull", {"parts": [{"table": table, "keys": 1}]}, wire.keys([1]))[1]
    except wire.RpcError as e:
        if e.number != wire.LOADING:
            raise
        return None
    return round(wire.unfloats(rows)[0])


class Probes(threading.Thread):
    """One row, to which a push adds 1 every 20 ms, and which is pulled from the replica all the time."""

    def __init__(self, server, replica, table):
        super().__init__(daemon=True)
        self.server, self.replica, self.table = server, replica, table
        self.stops, self.has_all = threading.Event(), threading.Event()  # acked has all
        self.acked, self.shown, self.first = [], [], 0
        self.reader = threading.Thread(target=self.read, daemon=True)

    def run(self):
        with wire.connect(self.server, timeout=120) as peer:
            self.first = value(peer, self.table)
            self.reader.start()
            while not self.stops.wait(0.02):
                wire.push(peer, self.table, [1], [-1.0] * 4)
                self.acked.append(time.monotonic())
        self.has_all.set()
        self.reader.join()

    def read(self):
        with wire.connect(self.replica, timeout=120) as peer:
            end = float("inf")
            while not self.has_all.is_set() or (len(self.shown) < len(self.acked) and time.monotonic() < end):
                if self.has_all.is_set() and end == float("inf"):
                    end = time.monotonic() + 60
                n, now = value(peer, self.table), time.monotonic()
                if n is not None:  # else a narrow replica has a part of a round
                    self.shown += [now] * (n - self.first - len(self.shown))
                time.sleep(0.001)

    def end(self):
        """Seconds from acknowledged to shown, of each; at least 0: the pull may show it before its acknowledgement has come."""
        self.stops.set()
        self.join()
        if len(self.shown) < len(self.acked):
            raise AssertionError(f"{len(self.acked) - len(self.shown)} probes of {len(self.acked)} were never shown")
        return [max(0.0, b - a) for a, b in zip(self.acked, self.shown)]


def start_replica(data, admin, server, http, o):
    flags = ["--http", http, *pinned.shard_flags(REPLICA[0])]
    if o.stranger:
        return Embd(*flags, "--data-dir", data, "--journal-limit", "0", admin=admin)
    flags += ["--follow", server.admin_path(0)]
    if o.serve:
        flags += ["--serve", "yes"]
    if o.serve_dtype:
        return Embd(*flags, "--serve-dtype", o.serve_dtype, admin=admin, waits=False)
    replica = Embd(*flags, "--data-dir", data, "--journal-limit", "0", admin=admin, waits=False)
    replica.wait_log("follow_has_base shard=0", 60)
    return replica


def start(data, o):
    folders = [os.path.join(data, name) for name in ("primary", "replica", "admin")]
    for name in folders:
        os.mkdir(name)
    with pinned.on(*SERVER):
        address = f"127.0.0.1:{free_ports(1)}"
        server = Embd("--data-dir", folders[0], "--journal-limit", "0", "--http", address, *pinned.shard_flags(SERVER[0]), admin=folders[2])
        server.http = address
    http = f"127.0.0.1:{free_ports(1)}"
    with wire.connect(server) as peer:
        table = wire.create(peer, "probe", durability="buffered", value=0.0,
                            optimizer={"kind": "sgd", "lr": 1.0})
        wire.push(peer, table, [1], [0.0] * 4)
    with pinned.on(*REPLICA):
        replica = start_replica(folders[1], folders[2], server, http, o)
    return server, replica, http, table


def is_behind(http):
    found = re.search(r"^embd_follow_behind_records\{.*\} (\d+)$", metrics(http), flags=re.M)
    return found is None or int(found.group(1)) > 0


def wait_records(http):
    """What the follower says is of the answer that it got last: it has to say so for a while."""
    end, looks = time.monotonic() + 600, 0
    while looks < 10:
        looks = 0 if is_behind(http) else looks + 1
        time.sleep(0.05)
        if time.monotonic() > end:
            raise AssertionError("the follower does not catch up")


def catch_up(server, replica, http, table, o):
    """A push of now is on the replica, and so are all before it."""
    if o.stranger:
        return
    if not o.serve:
        wait_records(http)
        return
    begin = time.monotonic()
    with wire.connect(server, timeout=120) as there, wire.connect(replica, timeout=120) as here:
        wire.push(there, table, [1], [-1.0] * 4)
        wanted = value(there, table)
        while value(here, table) != wanted:
            time.sleep(0.05)
            if time.monotonic() - begin > 600:
                raise AssertionError("the replica does not catch up")


def measure_shown(server, replica, http, table, o, rate, found):
    """A round of pushes with probes beside it."""
    before, probes = wait_histogram(http), Probes(server, replica, table)
    probes.start()
    with pinned.watched({"server": server.pid, "replica": replica.pid}) as found["busy"]:
        measured_bench(server, o, found, "followed", rate)
    begin = time.monotonic()
    took = probes.end()
    catch_up(server, replica, http, table, o)
    found["behind"].append(time.monotonic() - begin)
    after = wait_histogram(http)
    took.sort()
    found["shows"].append(len(took))
    for name, quantile in (("p50", 0.5), ("p99", 0.99)):
        found[name].append(took[min(len(took) - 1, int(quantile * len(took)))])
        found["h" + name[1:]].append(bound_of(before, after, quantile))


def measure_beside(server, replica, o, rate, found):
    """A round of pushes with nothing but a follower, or a stranger, beside it."""
    other = threading.Thread(target=bench, args=(replica, o, None, OTHER_LOAD), daemon=True)
    with pinned.watched({"server": server.pid, "replica": replica.pid}) as found["busy"]:
        if o.stranger:
            other.start()
        measured_bench(server, o, found, "followed", rate)
    if o.stranger:
        other.join()


def measure(server, replica, http, table, o):
    found = {name: [] for name in ("alone", "followed", "ns_alone", "ns_followed", "behind", "p50", "p99", "h50", "h99", "shows")}
    os.sched_setaffinity(0, pinned.place(*PROBES))
    for _ in range(o.rounds):
        replica.pause()
        measured_bench(server, o, found, "alone")
        replica.go_on()
        catch_up(server, replica, http, table, o)
        rate = o.share * found["alone"][-1] / o.batch if o.share else None
        if o.serve:
            measure_shown(server, replica, http, table, o, rate, found)
        else:
            measure_beside(server, replica, o, rate, found)
            begin = time.monotonic()
            catch_up(server, replica, http, table, o)
            found["behind"].append(time.monotonic() - begin)
    return found


def show(found, o):
    ratios = [b / a for a, b in zip(found["alone"], found["followed"])]
    if o.output == "json":
        print(json.dumps({**vars(o), **found, "ratio": ratios}))
        return
    print(f"push, {o.keys} rows, dim {o.dim}, {o.batch} keys, {o.in_flight} under way, {o.rounds} rounds of {o.seconds} s; load "
          f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name in ("alone", "followed"):
        print(f"  {name:9} {statistics.median(found[name]) / 1e6:7.3f} M keys/s  ({', '.join(f'{r / 1e6:.3f}' for r in found[name])})")
    print(f"  ratio     {statistics.median(ratios):.3f}  ({', '.join(f'{r:.3f}' for r in ratios)})" + (" at a given rate" if o.share else ""))
    for name, what in (("ns_alone", "shard, ns a key, alone"), ("ns_followed", "shard, ns a key, followed")):
        print(f"  {what:26} {statistics.median(found[name]):7.1f}  ({', '.join(f'{ns:.1f}' for ns in found[name])})")
    print(f"  {'has all behind them after':26} {statistics.median(found['behind']):7.2f} s  ({', '.join(f'{s:.2f}' for s in found['behind'])})")
    for name, what in () if not o.serve else (("p50", "shown by a pull, p50"), ("p99", "shown by a pull, p99"), ("h50", "histogram, p50 at most"),
                       ("h99", "histogram, p99 at most")):
        print(f"  {what:24} {statistics.median(found[name]) * 1e3:9.1f} ms  ({', '.join(f'{s * 1e3:.1f}' for s in found[name])})")
    print(f"  cores in the last round: {found['busy']}")
    if o.serve:
        print(f"  probes: {sum(found['shows'])}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir")
    parser.add_argument("--keys", default="1M")
    for name, kind, value in (("dim", int, 16), ("batch", int, 4096), ("in-flight", int, 4), ("rounds", int, 5), ("seconds", float, 5.0),
                              ("share", float, 0.0)):
        parser.add_argument(f"--{name}", type=kind, default=value)
    parser.add_argument("--serve-dtype", default="", help="the replica keeps rows as this dtype")
    parser.add_argument("--no-serve", dest="serve", action="store_false", help="a follower that answers no pull")
    parser.add_argument("--stranger", action="store_true", help="a server that follows nobody and has a load of its own; with --no-serve")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embd-freshness-", dir=o.dir) as data:
        server = replica = None
        try:
            server, replica, http, table = start(data, o)
            show(measure(server, replica, http, table, o), o)
        finally:
            for one in (server, replica):
                if one is not None:
                    one.kill()


if __name__ == "__main__":
    main()
