"""README.md's C block is client/examples/readme.c, so what the README shows is what the build compiles."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    blocks = re.findall(r"^```c\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    source = (ROOT / "client/examples/readme.c").read_text()
    if len(blocks) != 1:
        print(f"README.md has {len(blocks)} blocks of C; there should be one")
        return 1
    if blocks[0] != source:
        print("README.md's block of C differs from client/examples/readme.c")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
