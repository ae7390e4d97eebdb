"""The last release: its tag, and a build of it beside this one."""

import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def output(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def last_tag():
    """The newest tag v* before this commit, or None: no tag, or no git."""
    if not shutil.which("git"):
        return None
    return output("git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD") or None


def build_of(revision, folder, *targets):
    """Builds a revision below `folder`, once for each commit; returns the build's folder."""
    commit = output("git", "rev-parse", "--short=12", f"{revision}^{{commit}}")
    if not commit:
        raise SystemExit(f"{revision} is not a revision of this repository")
    place = pathlib.Path(folder, commit)
    source, build = place / "source", place / "build"
    if not source.is_dir():
        fresh = place / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", fresh], input=archive, check=True)
        os.rename(fresh, source)
    quiet = {"stdout": subprocess.DEVNULL, "check": True}
    subprocess.run(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DEMBD_CUDA=OFF",
                    "-DEMBD_TESTS=OFF"], **quiet)
    subprocess.run(["ninja", "-C", build, *targets], **quiet)
    return build
