"""Compares tests/REFERENCE.md with the tests there are.

A row of the map begins with its id in bold, names the files it lives in, and ends in a list of tests: a file of
tests/ and the test's name, which carries the row's id ("S0.14" in a text, S0_14 in an identifier). It is an error
  - that a row of the reference is not in the map, or is there twice, or has no test;
  - that a test in the map does not exist, or does not carry the row's id;
  - that a test carries the id of a row that the map does not have;
  - that a file in the map does not exist.
With --write the lists of tests are made anew from the tests there are.

usage: check_reference.py [--write]"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAP = ROOT / "tests" / "REFERENCE.md"

ROWS = ([f"S0.{i}" for i in range(1, 24)] + [f"S1.{i}" for i in range(1, 10)] + [f"S2.{i}" for i in range(1, 11)] +
        [f"S3.{i}" for i in (1, 2, 3, 4, 5, "5b", "5c", *range(6, 20))] + [f"S4.{i}" for i in range(1, 21)] +
        ["2a", "2b", "2c", "2d", "2e", "2f", "2g", "2h"])

ID = re.compile(r"(?<![A-Za-z0-9])(?:[Ss]([0-4])[._](\d{1,2}[bc]?)|(2[a-h]))(?![A-Za-z0-9])")
ROW = re.compile(r"\*\*(S[0-4]\.\d+[bc]?|2[a-h])\*\* ")
LISTED = re.compile(r"- `(tests/[^`]+)` (.+)")
PATH = re.compile(r"`([a-z][\w.-]*/[\w./-]+)`")

STRING = r'"((?:[^"\\]|\\.)*)"'
C_TEXT = re.compile(r"(?:\bTEST\w*\(|\{)\s*((?:" + STRING + r"\s*)+),\s*\w+")
C_NAME = re.compile(r"cmocka_unit_test\w*\(\s*(\w+)")
PYTHON_NAME = re.compile(r"^\s*def ((?:case|test)_\w+)\(", re.MULTILINE)
CMAKE_NAME = re.compile(r"\b(?:embd_test|embd_script)\(\s*" + STRING + r"|add_test\(NAME\s+" + STRING)


def ids_of(name):
    return {row or f"S{section}.{number}" for section, number, row in ID.findall(name)}


def names_in(path, text):
    if path.suffix == ".py":
        yield from PYTHON_NAME.findall(text)
    elif path.name == "CMakeLists.txt":
        yield from (a or b for a, b in CMAKE_NAME.findall(text))
    else:
        for match in C_TEXT.finditer(text):
            yield "".join(re.findall(STRING, match[1]))
        yield from C_NAME.findall(text)


def tests():
    """{(file, name)} of all tests that carry an id."""
    found = set()
    for path in sorted((ROOT / "tests").rglob("*")):
        if path.suffix in (".c", ".cu", ".cpp", ".py") or path.name == "CMakeLists.txt":
            for name in names_in(path, path.read_text(encoding="utf-8")):
                if ids_of(name):
                    found.add((str(path.relative_to(ROOT)), name))
    return found


def blocks(lines):
    """(row or None, lines) of the map, in order: what begins with an id in bold, and what lies between."""
    row, block = None, []
    for line in lines:
        match = ROW.match(line)
        if match or (row and line.startswith("#")):
            yield row, block
            row, block = match[1] if match else None, []
        block.append(line)
    yield row, block


def offences(lines, found):
    seen = set()
    for row, block in blocks(lines):
        for path in (p for line in block if not line.startswith("- ") for p in PATH.findall(line)):
            if not (ROOT / path).exists():
                yield f"{row}: there is no {path}"
        listed = [(m[1], m[2]) for m in map(LISTED.fullmatch, block) if m]
        if row is None:
            continue
        if row in seen:
            yield f"{row}: is in the map twice"
        seen.add(row)
        if not listed:
            yield f"{row}: has no test"
        for test in listed:
            if test not in found:
                yield f"{row}: there is no test '{test[1]}' in {test[0]}"
            elif row not in ids_of(test[1]):
                yield f"{row}: the test '{test[1]}' in {test[0]} does not carry its id"
    yield from (f"{row}: is not in the map" for row in ROWS if row not in seen)
    yield from (f"{row}: is no row of the reference" for row in seen if row not in ROWS)
    for path, name in sorted(found):
        for row in sorted(ids_of(name) - seen):
            yield f"{row}: the test '{name}' in {path} names a row that the map does not have"


def rewritten(lines, found):
    for row, block in blocks(lines):
        if row is None:
            yield from block
            continue
        text = [line for line in block if not LISTED.fullmatch(line)]
        while not text[-1]:
            text.pop()
        yield from text
        yield from (f"- `{path}` {name}" for path, name in sorted(found) if row in ids_of(name))
        yield ""


def main():
    lines, found = MAP.read_text(encoding="utf-8").splitlines(), tests()
    if sys.argv[1:] == ["--write"]:
        lines = list(rewritten(lines, found))
        MAP.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")
    wrong = list(offences(lines, found))
    print("\n".join(wrong) if wrong else f"{len(ROWS)} rows, {len(found)} tests: no offence")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
