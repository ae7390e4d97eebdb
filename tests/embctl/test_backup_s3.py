"""embctl backup and restore with an S3 bucket: the same as in a directory, by signed requests that are repeated where the
service fails, and whose errors name bucket, key and HTTP status, and no credentials."""
import concurrent.futures
import contextlib
import itertools
import os
import random
import re
import struct
import subprocess

from embctl import DAMAGED, EMBCTL, FAILED, OK, REFUSED, UNREACHABLE, Embd, Scratch, environment, run_cases
from embctl import embctl as run_embctl
from embctl import embctl_json as run_json
from certificates import Authority
from s3 import S3, SECRET
from test_backup import TABLES, digests
from test_changes import change, create, serve
from wire import connect, keys, owned

PLACE = "s3://backups/shop/a"


@contextlib.contextmanager
def with_environment(made):
    kept = dict(os.environ)
    os.environ.update(made)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def is_without_s3():
    done = subprocess.run([EMBCTL, "backup", "list", "--to", "s3://backups"], env=environment(None), capture_output=True,
                          text=True, check=False)
    return "built without libcurl" in done.stderr


def bucket(**options):
    stack = contextlib.ExitStack()
    s3 = stack.enter_context(S3(**options))
    stack.enter_context(with_environment(s3.environment()))
    return stack, s3


def listed():
    return {b["name"]: b for b in run_json(None, "backup", "list", "--to", PLACE)["backups"]}


def restored(shards, *flags):
    with Embd(shards=shards) as server:
        run_embctl(server, "restore", "--from", PLACE, *flags)
        return digests(server)


def case_a_chain_comes_back_from_a_bucket():
    stack, s3 = bucket(page=7, token="session+token/==")
    with stack, Scratch() as scratch:
        rng, found = random.Random(3), []
        s3.objects["shop/a/other.txt"] = s3.objects["shop/ab/x/0/backup.json"] = b"of somebody else"
        with serve(scratch) as server:
            create(server, TABLES)
            for number in range(3):
                change(server, rng, n=60 if number == 0 else 8, tables=TABLES)
                change(server, rng, "erase", n=6, tables=TABLES)
                run_embctl(server, "backup", "--to", PLACE + "/", "--name", f"b{number}", *(["--incremental"] if number else []))
                found.append(digests(server))
            run_embctl(server, "backup", "--to", PLACE, "--name", "last")
            run_embctl(None, "verify", PLACE)
            assert [b["state"] for b in listed().values()] == ["whole"] * 4
            for number in (0, 2):
                assert restored(3, "--at", f"b{number}") == found[number]
            os.mkdir(scratch("staging"))
            assert restored(1, "--table", "kept", "--at", "b1", "--staging", scratch("staging")) == [
                d for d in found[1] if d["table"] == "kept"]
            assert os.listdir(scratch("staging")) == [], "nothing stays there"
            run_embctl(server, "backup", "--to", PLACE, "--name", "new", "--keep", 1)
            assert set(listed()) == {"new"}
        assert {k for k in s3.objects if not k.startswith("shop/a/new/")} == {"shop/a/other.txt", "shop/ab/x/0/backup.json"}


def case_a_large_file_is_several_objects():
    stack, s3 = bucket()
    with stack as outer, Scratch() as scratch:
        with serve(scratch) as server:
            run_embctl(server, "table", "create", "wide", "--dim", 4096, "--set", "durability=snapshot")
            with connect(server) as wire:  # more than 16 MiB on shard 0
                table = wire.call("table_describe", {"name": "wide"})[0]["id"]
                wire.call("push", {"parts": [{"table": table, "keys": 1040}]}, keys(owned(1040, 0, 2)),
                          struct.pack("<f", 1) * (1040 * 4096))
            run_embctl(server, "backup", "--to", PLACE, "--name", "b")
            found = digests(server)
        pieces = {k: len(data) for k, data in s3.objects.items() if "wide.0.part/" in k}
        first = "shop/a/b/0/wide.0.part/000000"
        assert len(pieces) > 1 and pieces[first] == 16 << 20 and "shop/a/b/0/wide.0.part" not in s3.objects, pieces
        assert restored(2) == found
        run_embctl(None, "verify", PLACE)
        whole, server = dict(s3.objects), outer.enter_context(Embd())
        for piece in pieces:
            s3.objects = {k: data for k, data in whole.items() if k != piece}
            assert listed()["b"]["state"] == "damaged"
            run_embctl(server, "restore", "--from", PLACE, "--at", "b", code=DAMAGED, says="0/wide.0.part is missing")
        s3.objects = {k: data for k, data in whole.items() if k.endswith("backup.json")}
        s3.fails = lambda method, key: s3.objects.update(whole if key.endswith("backup.json") else {})
        assert listed()["b"]["state"] == "whole", "it was finished while the place was listed"
        s3.fails = lambda method, key: None
        for change_it in (lambda: s3.objects.update({first: whole[first][:-1]}),
                          lambda: s3.objects.update({first: whole[first] + b"x"}),
                          lambda: s3.objects.update({first: bytes(16 << 20)})):
            s3.objects = dict(whole)
            change_it()
            run_embctl(server, "restore", "--from", PLACE, code=DAMAGED, says="s3://backups/shop/a/b/0/wide.0.part")
            assert run_json(server, "table", "list")["tables"] == []


def small(scratch, server):
    run_embctl(server, "table", "create", "t", "--dim", 2, "--set", "durability=snapshot")
    change(server, random.Random(2), n=20, tables=[("t", "--dim", 2)])
    return digests(server)


def case_requests_that_fail_for_a_while_are_repeated():
    stack, s3 = bucket()
    with stack, Scratch() as scratch, serve(scratch) as server, Embd() as other:
        found = small(scratch, server)
        for kind in (503, 429, "reset", "cut"):
            turns = itertools.count()
            s3.fails = lambda method, key, kind=kind, turns=turns: kind if next(turns) % 11 == 3 else None
            run_embctl(server, "backup", "--to", PLACE, "--name", f"b-{kind}")
            run_embctl(other, "restore", "--from", PLACE, "--replace", "--at", f"b-{kind}")
            assert digests(other) == found
        s3.fails = lambda method, key: None
        run_embctl(None, "verify", PLACE)


def case_a_backup_that_dies_at_any_request_is_none():
    stack, s3 = bucket()
    with stack, Scratch() as scratch, serve(scratch) as server:
        found = small(scratch, server)
        run_embctl(server, "backup", "--to", PLACE, "--name", "whole")
        n_requests, puts = len(s3.asked), [key for method, key in s3.asked if method == "PUT"]
        assert puts[-1] == "shop/a/whole/backup.json"
        for number in range(n_requests):
            turns, done = itertools.count(), []

            def kill(method, key, number=number, turns=turns, done=done):
                if next(turns) == number:
                    done[0].kill()
                    return "reset"
                return None
            with s3.lock:
                s3.fails = kill
                done.append(subprocess.Popen([EMBCTL, "backup", "--to", PLACE, "--name", f"dead-{number}"],
                                             env=environment(server), stdout=subprocess.DEVNULL))
            done[0].wait(30)
            s3.fails = lambda method, key: None
            state = listed().get(f"dead-{number}", {"state": "cut off"})["state"]
            assert state == "cut off" or f"shop/a/dead-{number}/backup.json" in s3.objects, number
        assert restored(1) == found
        run_embctl(None, "verify", PLACE)


def case_errors_name_bucket_key_and_status_and_no_secret():
    stack, s3 = bucket()
    with stack, Scratch() as scratch, serve(scratch) as server:
        small(scratch, server)

        def told(*arguments, code, says, **variables):
            done = subprocess.run([EMBCTL, *arguments], env={**environment(server), **variables}, capture_output=True, text=True,
                                  timeout=60, check=False)
            assert done.returncode == code and says in done.stderr, (done.returncode, done.stderr)
            assert SECRET not in done.stderr + done.stdout and "AKID" not in done.stderr
        to = ("backup", "--to", PLACE, "--name", "b")
        told(*to, code=REFUSED, says="s3://backups: GET: HTTP 403 (SignatureDoesNotMatch)", AWS_SECRET_ACCESS_KEY="other")
        told(*to, code=REFUSED, says="HTTP 403 (InvalidToken)", AWS_SESSION_TOKEN="old")
        told(*to, code=REFUSED, says="AWS_ACCESS_KEY_ID", AWS_ACCESS_KEY_ID="")
        told("backup", "--to", "s3://nobody", code=FAILED, says="s3://nobody: GET: HTTP 404 (NoSuchBucket)")
        told("backup", "--to", "s3://x", code=REFUSED, says="3 to 63")
        told("backup", "--to", "s3://backups/a b", code=REFUSED, says="prefix")
        told(*to, "--s3-endpoint", "backups.example", code=REFUSED, says="http[s]://HOST[:PORT]")
        told(*to, "--s3-region", "../x", code=REFUSED, says="region")
        s3.fails = lambda method, key: 400 if key.endswith("t.0.part") else None
        told(*to, code=FAILED, says="s3://backups/shop/a/b/0/t.0.part: PUT: HTTP 400 (Other)")
        assert s3.objects == {}, "what was put there is removed"

        def spoil(method, key):
            if method == "GET" and key.endswith("c/0/manifest.json"):
                s3.objects[key] = s3.objects[key][:-1] + b"x"
            if method == "PUT" and key.endswith("d/0/t.0.part"):
                with open(scratch("data/d/t.1.part"), "r+b") as file:
                    file.seek(-1, os.SEEK_END)
                    file.write(b"x")
        s3.fails = spoil
        told(*to[:-1], "c", code=DAMAGED, says="c/0/manifest.json: has the checksum")
        told(*to[:-1], "d", code=DAMAGED, says="t.1.part of the snapshot 'd' has another checksum")
        assert s3.objects == {}
        s3.fails = lambda method, key: None
        for s3.listing, says in ((b"<ListBucketResult><Contents></Contents>", "not a whole list"),
                                 (b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same"
                                  b"</NextContinuationToken></ListBucketResult>", "how it goes on")):
            told(*to, code=FAILED, says=says)
        s3.listing = None
        s3.fails = lambda method, key: 503
        seen = ("backup", "list", "--to", PLACE)
        with concurrent.futures.ThreadPoolExecutor() as both:  # they wait
            slow = both.submit(told, *seen, code=FAILED, says="s3://backups: GET: HTTP 503 (SlowDown), after 6 tries")
            gone = both.submit(told, *seen, code=UNREACHABLE, says="after 6 tries", AWS_ENDPOINT_URL="http://127.0.0.1:9")
            slow.result(), gone.result()


def case_the_service_shows_a_certificate_of_an_authority_that_is_trusted():
    with Scratch() as scratch:
        os.mkdir(scratch("ca"))
        authority = Authority(scratch("ca"), "ca")
        for name, trusted in (("IP:127.0.0.1", True), ("DNS:elsewhere", False)):
            stack, _ = bucket(certificate=authority.issue(name.replace(":", "-"), name))
            with stack, with_environment({"AWS_CA_BUNDLE": authority.path}):
                run_embctl(None, "backup", "list", "--to", PLACE, code=OK if trusted else UNREACHABLE)
                del os.environ["AWS_CA_BUNDLE"]
                run_embctl(None, "backup", "list", "--to", PLACE, code=UNREACHABLE, says="certificate")
                os.environ["AWS_CA_BUNDLE"] = scratch("none")
                run_embctl(None, "backup", "list", "--to", PLACE, code=UNREACHABLE, says="s3://backups: GET")


def case_moto_takes_the_requests_too():
    python = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "embd", "moto", "bin", "python")
    if not os.access(python, os.X_OK):
        print("skipped: moto is not installed (deploy/deps.sh --tools)")
        return
    made = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1"}
    moto = subprocess.Popen([python, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stderr=subprocess.PIPE, text=True,
                            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    try:
        url = next(found.group(1) for line in moto.stderr if (found := re.search(r"(http://127\.0\.0\.1:\d+)", line)))
        with with_environment({**made, "AWS_ENDPOINT_URL": url}), Scratch() as scratch, serve(scratch) as server:
            subprocess.run(["curl", "-sf", "-X", "PUT", "-u", "x:y", "--aws-sigv4", "aws:amz:us-east-1:s3", url + "/backups"],
                           check=True, timeout=20, stdout=subprocess.DEVNULL)
            found = small(scratch, server)
            run_embctl(server, "backup", "--to", PLACE, "--name", "b0", code=OK)
            change(server, random.Random(4), n=5, tables=[("t", "--dim", 2)])
            run_embctl(server, "backup", "--to", PLACE, "--name", "b1", "--incremental")
            run_embctl(None, "verify", PLACE)
            assert restored(3, "--at", "b0") == found and restored(1) == digests(server)
            run_embctl(server, "backup", "--to", PLACE, "--name", "b2", "--keep", 1)
            assert set(listed()) == {"b2"}
    finally:
        moto.kill()
        moto.wait()


if __name__ == "__main__":
    if is_without_s3():
        print("skipped: embctl was built without libcurl")
    else:
        run_cases({name: fn for name, fn in globals().items() if getattr(fn, "__module__", None) == "__main__"})
