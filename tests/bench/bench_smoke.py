"""embd-bench and bench-suite with tiny sizes on servers of their own: they end well, their JSON parses, figures hold."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
from embd_process import Embd  # noqa: E402

BENCH, SUITE = (os.path.join(os.environ["EMBD_BIN"], name) for name in ("embd-bench", "bench-suite"))
TINY = ["--keys", "2000", "--batch", "512", "--seconds", "0.05", "--rounds", "2"]


def run(*flags, code=0, program=BENCH):
    done = subprocess.run([program, *flags], capture_output=True, text=True, timeout=100)
    assert done.returncode == code, f"{flags}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
    return done


def measure(*flags, program=BENCH):
    return json.loads(run(*flags, *TINY, "-o", "json", program=program).stdout)


def beside(*flags):
    return measure("beside", *flags, program=SUITE)


def check_results(report, names):
    assert [r["what"] for r in report["results"]] == names, report
    for result in report["results"]:
        assert result["keys_per_s_min"] <= result["keys_per_s"] <= result["keys_per_s_max"], result
        assert result["keys_per_s"] > 0, result
        if result["what"] != "memory gather":
            assert 0 < result["p50_us"] <= result["p99_us"] <= result["p999_us"], result


def mixes():
    for flags in (["--dist", "zipf:1.05"], ["--clients", "2", "--shards", "2", "--in-flight", "3"],
                  ["--mix", "pooled:8", "--plan", "rows", "--wire", "f16"], ["--mix", "push", "--wire", "i8"], ["--mix", "train", "--wire", "i4"],
                  ["--rate", "500"]):
        check_results(measure(*flags), ["embd"])
    assert measure("--small")["run"]["batch"] == 64


def peers():
    pull = ["bare transport", "gather ceiling", "memory gather", "embd"]
    check_results(beside("--dist", "zipf:1.05"), pull)
    check_results(beside("--clients", "2", "--shards", "2", "--in-flight", "3"), pull)
    check_results(beside("--mix", "pooled:8", "--plan", "rows", "--wire", "f16"),
                  ["bare transport", "pooling ceiling", "memory gather", "embd"])
    check_results(beside("--mix", "push", "--wire", "i8", "--dim", "1"), ["bare transport", "adding ceiling", "embd"])
    check_results(beside("--mix", "train"), ["bare transport", "gather and add ceiling", "memory gather", "embd"])
    report = beside("--rate", "500")
    check_results(report, ["bare transport", "gather ceiling", "embd"])
    assert report["run"]["ratio_of"] == "p50_us", report
    assert beside("--small")["run"]["batch"] == 64


def suite():
    report = measure("--dim", "16", program=SUITE)
    kinds = {bar["what"] for bar in report["bars"]}
    assert len(report["bars"]) == 14 and len(kinds) == 7, report
    missed = sum(bar["verdict"] == "missed" for bar in report["bars"])
    assert report["run"]["missed"] == missed, report


def transports():
    """Both programs take the way they are told: a server without data sockets has no local one."""
    server = Embd("--local-socket", "off")
    there = ["--servers", f"127.0.0.1:{server.port()}", *TINY]
    for program, what in ((BENCH, []), (SUITE, ["beside"])):
        run(*what, *there, "--transport", "tcp", program=program)
        assert "EMBD_TRANSPORT" in run(*what, *there, "--transport", "local", code=3, program=program).stderr
    server.kill()


def refusals():
    for flags in (["--batch", "x"], ["--mix", "pooled:7"], ["--dist", "zipf"], ["--suite"], ["word"]):
        assert "embd-bench" in run(*flags, code=2).stderr
    for flags in (["--parts", "pull,speed"], ["--servers", "127.0.0.1:1"], ["--small"], ["word"]):
        assert "bench-suite" in run(*flags, code=2, program=SUITE).stderr
    run("--server-bin", "/nonexistent/embd", code=3)
    run(*TINY, "--servers", "127.0.0.1:1", code=3)


def main():
    assert "M keys/s" in run(*TINY).stdout
    mixes()
    peers()
    suite()
    transports()
    refusals()


if __name__ == "__main__":
    sys.exit(main())
