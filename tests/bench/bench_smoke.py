"""embd-bench with tiny sizes against a server of its own: it ends well, its JSON parses, its figures hold."""
import json
import os
import subprocess
import sys

BENCH = os.path.join(os.environ["EMBD_BIN"], "embd-bench")
TINY = ["--keys", "2000", "--batch", "512", "--seconds", "0.05", "--rounds", "2"]


def run(*flags, code=0):
    done = subprocess.run([BENCH, *flags], capture_output=True, text=True, timeout=100)
    assert done.returncode == code, f"{flags}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}"
    return done


def measure(*flags):
    return json.loads(run(*TINY, "-o", "json", *flags).stdout)


def check_results(report, names):
    assert [r["what"] for r in report["results"]] == names, report
    for result in report["results"]:
        assert result["keys_per_s_min"] <= result["keys_per_s"] <= result["keys_per_s_max"], result
        assert result["keys_per_s"] > 0, result
        if result["what"] != "memory gather":
            assert 0 < result["p50_us"] <= result["p99_us"] <= result["p999_us"], result


def mixes():
    pull = ["bare transport", "gather ceiling", "memory gather", "embd"]
    check_results(measure("--dist", "zipf:1.05"), pull)
    check_results(measure("--clients", "2", "--shards", "2", "--in-flight", "3"), pull)
    check_results(measure("--mix", "pooled:8", "--plan", "rows", "--wire", "f16"),
                  ["bare transport", "pooling ceiling", "memory gather", "embd"])
    check_results(measure("--mix", "push"), ["bare transport", "adding ceiling", "embd"])
    check_results(measure("--mix", "train"),
                  ["bare transport", "gather and add ceiling", "memory gather", "embd"])


def latencies():
    report = measure("--rate", "500")
    check_results(report, ["bare transport", "gather ceiling", "embd"])
    assert report["run"]["ratio_of"] == "p50_us", report
    assert measure("--small")["run"]["batch"] == 64


def suite():
    report = measure("--suite", "--dim", "16")
    kinds = {bar["what"] for bar in report["bars"]}
    assert len(report["bars"]) == 14 and len(kinds) == 7, report
    missed = sum(bar["verdict"] == "missed" for bar in report["bars"])
    assert report["run"]["missed"] == missed, report


def refusals():
    for flags in (["--batch", "x"], ["--mix", "pooled:7"], ["--dist", "zipf"], ["--suite=pull,speed"], ["word"]):
        assert "embd-bench" in run(*flags, code=2).stderr
    run("--server-bin", "/nonexistent/embd", code=3)
    run(*TINY, "--servers", "127.0.0.1:1", code=3)


def main():
    assert "embd/this" in run(*TINY).stdout
    mixes()
    latencies()
    suite()
    refusals()


if __name__ == "__main__":
    sys.exit(main())
