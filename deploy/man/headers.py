"""What the public headers say: their functions with the comment above each, their structs, their sections.

A comment of a function is its manual page. It says what the function does, then its errors, each `EMBD_STATUS: cause`;
what follows the errors is about the outputs. Functions below one comment share its page."""
import dataclasses
import pathlib
import re

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include/embd"
TOKEN = re.compile(r"/\*(?P<comment>.*?)\*/|EMBD_API\s+(?P<function>[^;#]*?\));|"
                   r"^#define (?P<macro>embd_\w+)\((?:\w+|\.\.\.)\)\s*\\?\n?\s*(?P=macro)_sized\([^\n]*|"
                   r"(?P<type>typedef (?:struct|enum) (?P<tag>\w+) \{.*?^\} \w+;)", re.S | re.M)


@dataclasses.dataclass
class Function:
    name: str
    header: str   # "embd/embd.h"
    section: str  # of the header
    declaration: str
    comment: list  # of paragraphs, each (is_code, text)
    main: str      # the function whose page this one shares


@dataclasses.dataclass
class Header:
    name: str
    essay: list
    functions: list


def paragraphs(comment):
    """The paragraphs of a comment. One whose lines all stand four columns in is code."""
    lines = [re.sub(r"^ ?\*? ?", "", line, count=1) for line in ("*" + comment).split("\n")]
    found = []
    for block in re.split(r"\n[ \t]*\n", "\n".join(lines)):
        is_code = all(line.startswith("    ") for line in block.split("\n") if line.strip())
        if block.strip():
            found.append((is_code, "\n".join(line[4:] for line in block.split("\n")) if is_code else block))
    return found


def statuses(text):
    """Their texts by name."""
    return dict(re.findall(r'^ +X\((\w+), \d+,\s*\\?\s*"([^"]*)"', text, re.M))


def read_header(path, types):
    text = path.read_text(encoding="utf-8")
    header = Header(f"embd/{path.name}", [], [])
    section, comment, main, end, macro = "", [], None, 0, None
    for token in TOKEN.finditer(text):
        if token["comment"] is not None:
            body = paragraphs(token["comment"])
            title = re.match(r"\s*-{4} (.*?)(?:\s-{3,}|$)", token["comment"], re.S)
            if title:
                section = re.sub(r"[\s*]+", " ", title[1]).strip()
            elif not header.essay and not header.functions:
                header.essay = body
            comment, main, end = ([] if title else body), None, token.end()
        elif token["macro"]: # adds the size of the struct that this program knows
            macro, end = token["macro"], token.end()
        elif token["function"]:
            if text[end:token.start()].strip():
                comment, main = [], None
            declaration = re.sub(r"\s+", " ", token["function"])
            if macro:
                declaration = declaration.replace(f"{macro}_sized", macro).replace(", uint32_t struct_bytes", "")
            macro = None
            name = re.search(r"(embd_\w+)\(", declaration)[1]
            main = main or name
            header.functions.append(Function(name, header.name, section, declaration, comment, main))
            end = token.end()
        else:
            types[token["tag"]] = token["type"]
            comment, main = [], None
    return header


def read(folder=HEADERS):
    """Headers, structs and enums by name, and the texts of statuses by name."""
    types, paths = {}, sorted(pathlib.Path(folder).glob("*.h"), key=lambda path: (path.name != "embd.h", path.name))
    headers = [read_header(path, types) for path in paths]
    texts = {}
    for path in paths:
        texts.update(statuses(path.read_text(encoding="utf-8")))
    return headers, types, texts
