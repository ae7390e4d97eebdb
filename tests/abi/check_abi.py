"""check_abi.py BUILD: abidiff of the shared libraries of BUILD with those of the last tag.

A change that breaks programs fails, unless the library has another soname: then both can be installed. Functions that
were added are no offence. Exit status 77: there is nothing to compare with, or nothing to compare by."""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import released  # noqa: E402

SKIPPED = 77
ERROR, USAGE, CHANGED, INCOMPATIBLE = 1, 2, 4, 8  # bits of abidiff's exit status


def soname(library):
    said = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.search(r"\(SONAME\).*\[(.*)\]", said)[1]


def libraries(build):
    """soname without version -> file"""
    return {soname(path).split(".so")[0]: path for path in sorted(pathlib.Path(build, "lib").glob("libembd*.so"))}


def differs(old, new, old_headers):
    """What breaks programs, as abidiff says it; "" if nothing does."""
    if soname(old) != soname(new):
        print(f"{soname(old)} became {soname(new)}: both can be installed")
        return ""
    run = subprocess.run(["abidiff", "--headers-dir1", old_headers, "--headers-dir2", ROOT / "include",
                          "--suppressions", pathlib.Path(__file__).with_name("private.abignore"), old, new],
                         capture_output=True, text=True, check=False)
    if run.returncode & (ERROR | USAGE):
        return f"abidiff failed: {run.stdout}{run.stderr}"
    print(f"{soname(new)}: {'changed' if run.returncode & CHANGED else 'unchanged'}")
    return run.stdout if run.returncode & INCOMPATIBLE else ""


def main():
    build, tag = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else released.last_tag()
    if tag is None or shutil.which("abidiff") is None:
        print("skipped: " + ("there is no tag to compare with" if tag is None else
                             "abidiff is not installed (deploy/deps.sh --tools)"))
        return SKIPPED
    before = released.build_of(tag, pathlib.Path(build, "released"), "client/all")
    old, new = libraries(before), libraries(build)
    lost = [f"{name} of {tag} is gone" for name in old if name not in new]
    broken = lost + [text for name in old if name in new
                     for text in [differs(old[name], new[name], before.parent / "source/include")] if text]
    print("\n".join(broken) or f"no offence since {tag}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
