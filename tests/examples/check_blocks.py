"""Every block of code in a page or in a comment of the public header is what its language says: C compiles, Python and
shell parse, commands have the flags that they are given, YAML is a configuration that a server takes, JSON is JSON.

Blocks of figures, pictures and output are ```text. The examples of bytes, ```hex NAME, are compared with tests/unit/golden
by the unit tests. README.md is run as well, see test_readme.py."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

from blocks import ROOT, all_blocks

BIN = os.environ["EMBD_BIN"]
C_FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable",
           "-fsyntax-only", f"-I{ROOT}/include", "-xc", "-"]
# What a fragment of C may use without declaring it.
C_FRAGMENT = """#include <embd/embd.h>
#include <embd/data.h>
#include <embd/job.h>
#include <embd/sync.h>
#include <stdio.h>
int train(embd_client *client, const embd_clock *clock, uint64_t i);
int fragment(embd_client *client, embd_clock clock, const uint64_t *keys, float *rows, uint64_t n);
int fragment(embd_client *client, embd_clock clock, const uint64_t *keys, float *rows, uint64_t n)
{
    int status = 0;
    uint64_t i = 0;
    embd_clock_report report;
    (void)client, (void)clock, (void)keys, (void)rows, (void)n, (void)status, (void)i, (void)report;
    {
%s
    }
    return 0;
}
"""
PROGRAMS = ("embd", "embctl", "embd-bench", "embd-example-fm", "embd-example-readme")


def run(command, text):
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)


def c_offence(block):
    source = block.text if "int main(" in block.text else C_FRAGMENT % block.text
    done = run(["cc", *C_FLAGS], source)
    return done.stderr if done.returncode else None


def python_offence(block):
    try:
        compile(block.text, block.where, "exec")
    except SyntaxError as error:
        return str(error)
    return None


_helps = {}


def help_of(*words):
    if words not in _helps:
        _helps[words] = run([os.path.join(BIN, words[0]), *words[1:], "--help"], "").stdout
    return _helps[words]


def commands(text):
    """The simple commands of a shell block, as words; of a pipe each."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()")
        lexer.whitespace_split = True
        words = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|&;()"):
                yield words
                words = []
            else:
                words.append(word)


def flag_offences(words):
    """Flags that the program, or the command of embctl, does not have."""
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    if not words or words[0] not in PROGRAMS:
        return
    shown = help_of(words[0])
    if words[0] == "embctl":
        plain = [word for word in words[1:] if re.fullmatch("[a-z]+", word)]
        if not plain or f"\n  {plain[0]} " not in shown:
            yield f"embctl has no command {plain[:1]}"
            return
        shown = help_of("embctl", plain[0])
        if "\nCommands:\n" in shown:
            shown = help_of("embctl", plain[0], plain[1])
    for word in words[1:]:
        flag = re.match(r"--[a-z][a-z-]*|-[A-Za-z]$", word)
        if flag and not re.search(rf"(?<![\w-]){re.escape(flag[0])}(?![\w-])", shown):
            yield f"{' '.join(words)}: there is no flag {flag[0]}"


def sh_offence(block):
    done = run(["bash", "-n"], block.text)
    if done.returncode:
        return done.stderr
    return "; ".join(offence for words in commands(block.text) for offence in flag_offences(words)) or None


def yaml_offence(block):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(block.text)
        file.flush()
        done = run([os.path.join(BIN, "embctl"), "config", "check", file.name], "")
    return done.stderr if done.returncode else None


def json_offence(block):
    try:
        json.loads(block.text)
    except ValueError as error:
        return str(error)
    return None


def hex_offence(block):
    return None if (ROOT / "tests/unit/golden" / f"{block.words}.hex").exists() else "no golden file has this name"


CHECKS = {"c": c_offence, "python": python_offence, "sh": sh_offence, "yaml": yaml_offence, "json": json_offence,
          "hex": hex_offence, "text": lambda block: None}


def offences(found):
    for block in found:
        check = CHECKS.get(block.language)
        if check is None:
            yield f"{block.where}: a block needs a fence and one of the languages {', '.join(CHECKS)}, not '{block.language}'"
            continue
        offence = check(block)
        if offence:
            yield f"{block.where}: {offence.strip()}"


def main():
    found = list(all_blocks())
    n = {language: sum(block.language == language for block in found) for language in CHECKS}
    assert n["c"] >= 2 and n["sh"] >= 8 and n["python"] >= 3 and n["hex"] >= 20, f"too few blocks found: {n}"
    told = list(offences(found))
    print("\n".join(told) or f"blocks of code, {n}: no offence")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
