"""Comments and pages name files and functions that exist.

Every word like `index.h` has to be the name of a file in the tree. In comments every `verb_object()` has to be a name that
the code uses, of ours or of a library; and so does every word that begins with embd_ or EMBD_, in pages too."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("include", "proto", "client", "server", "tests", "deploy", ".github")
CODE = {".c", ".h", ".cu", ".cuh", ".cpp", ".cc"}
SCRIPTS = {".py", ".sh", ".cmake", ".yaml", ".service", ".sbatch"}
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(/\*.*?\*/|//[^\n]*)', re.S)
FILE = re.compile(r"(?<![\w.*/<$\"{-])((?:[\w-]+/)*[\w-]+\.(?:c|h|cu|cuh|py|sh|md))(?![\w*(-]|\.\w)")
FUNCTION = re.compile(r"(?<![\w.>])([a-z_]\w*)\(\)")
PUBLIC = re.compile(r"(?<![\w/.-])((?:embd_|EMBD_)\w*[A-Za-z0-9])(?![\w*{-])")
# Files of others, and what a reader makes.
ELSEWHERE = {"app.c", "train.py", "nccl.h", "cuda_runtime.h"}
PATTERNS = {"embd_verb_object", "embd__stem_verb"}  # of names


def split(path):
    """The comments of a C source as (line, text), and its code without them and without strings."""
    text = path.read_text(encoding="utf-8")
    comments = [(text.count("\n", 0, m.start()) + 1, m[1]) for m in COMMENT.finditer(text) if m[1]]
    return comments, COMMENT.sub(" ", text)


def sources(kinds):
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in kinds and "build" not in path.relative_to(ROOT).parts:
                yield path


def words_of(texts):
    return set(re.findall(r"[A-Za-z_]\w*", " ".join(texts)))


def offences():
    paths = [path for path in ROOT.rglob("*") if not {".git", "build"} & set(path.relative_to(ROOT).parts)]
    files = {path.name for path in paths} | ELSEWHERE
    split_sources = {path: split(path) for path in sources(CODE)}
    names = words_of(code for _, code in split_sources.values())
    scripts = [path for path in paths if path.suffix in SCRIPTS or path.name == "CMakeLists.txt"]
    strings = (re.sub(r"/\*.*?\*/", " ", path.read_text(encoding="utf-8"), flags=re.S) for path in split_sources)
    public = words_of([*strings, *(path.read_text(encoding="utf-8") for path in scripts)])
    texts = [(path, line, text) for path, (comments, _) in split_sources.items() for line, text in comments]
    texts += [(path, 1, path.read_text(encoding="utf-8")) for path in [*sources({".md"}), ROOT / "README.md"]]
    for path, line, text in texts:
        missing = [f"{name}: no such file" for name in FILE.findall(text) if name.rsplit("/", 1)[-1] not in files]
        missing += [f"{name}: no such name" for name in PUBLIC.findall(text) if name not in public | PATTERNS]
        if path.suffix in CODE:
            missing += [f"{name}(): no such function" for name in FUNCTION.findall(text) if name not in names]
        yield from (f"{path.relative_to(ROOT)}:{line}: {what}" for what in missing)


def main():
    found = sorted(set(offences()))
    print("\n".join(found) or "names in comments: no offence")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
