"""Manual pages of section 3 for the functions of the public headers, and embd(7), an overview of them.

    python3 deploy/man/reference.py VERSION OUT      writes OUT/man3/*.3.gz and OUT/man7/embd.7.gz
    python3 deploy/man/reference.py --check          says which functions have no comment to make a page of
"""
import re
import sys

import headers
import roff

LIBRARIES = {"embd/data.h": "embd-data", "embd/hugectr.h": "embd-hugectr", "embd/arrays.h": "embd-hugectr"}
# As long as one header has everything.
PREFIXES = {"embd_csr_": "embd-data", "embd_reader_": "embd-data", "embd_writer_": "embd-data",
            "embd_hugectr_": "embd-hugectr", "embd_arrays_": "embd-hugectr"}


def library_of(function):
    by_name = [library for prefix, library in PREFIXES.items() if function.name.startswith(prefix)]
    return LIBRARIES.get(function.header, by_name[0] if by_name else "embd")


def flow(text):
    """On one line."""
    return re.sub(r"\s+", " ", text).strip()


def sentences(text):
    return re.split(r"(?<=[.!])\s+(?=[A-Z`*\"(])", flow(text)) if text.strip() else []


def split_errors(comment, statuses):
    """Of a function's comment: prose before the errors, {status: cause}, sentences that follow them, and those that name
    another function's errors."""
    name = "EMBD_(?:" + "|".join(sorted(statuses, key=len, reverse=True)) + r")\b"
    names = rf"{name}(?:(?:,\s+| and ){name})*"
    text = "\n\n".join(text for is_code, text in comment if not is_code)
    text = re.sub(r"^ +(as embd_\w+)(?:, and)?$", r"Errors \1.", text, flags=re.M)
    text = re.sub(rf"^ *({names})(?:[ ]{{2,}}(.*\n?(?:    .*\n?)*)|$)", lambda m: f"\0{m[1]}: {m[2] or ''}\1", text,
                  flags=re.M)  # a list
    text = re.sub(rf"(?:(?<=[.;)]\s)|^)({names})(?=[:;.])", "\0\\1", text)  # a sentence
    before, *items = re.sub(r"\0+", "\0", text).split("\0")
    errors, after, others = {}, [], []
    for number, item in enumerate(items):
        match = re.match(rf"({names})([:;.]?)\s*(.*)", item, re.S)
        own, _, rest = match[3].partition("\1")
        cause, after = sentences(own), after + sentences(rest)
        if match[2] == "." or number == len(items) - 1:
            n_own = len(cause) if "\1" in match[3] else int(match[2] != ".")
            cause, after = cause[:n_own], cause[n_own:] + after
        for status in re.findall(name, match[1]):
            errors[status] = " ".join(cause).rstrip(" ;.,") or statuses[status.removeprefix("EMBD_")]
    for text in [s for s in after if re.match(names, s)]:  # statuses without a cause
        errors.update({status: statuses[status.removeprefix("EMBD_")] for status in re.findall(name, text)
                       if status not in errors})
        others += [f"Others {also}." for also in re.findall(r"[Oo]thers (as embd_\w+)", text)]
        after.remove(text)
    for text in [s for s in sentences(before) + after if re.match(r"(Other e|E)rrors:? (as|of)\b", s)]:
        others.append(re.sub(r",? and$", "", text).rstrip(".") + ".")
        before = flow(before).replace(text, "") if text not in after else before
        after = [s for s in after if s != text]
    return before, errors, after, others


def parameters(declaration):
    """(name, declaration) of each parameter."""
    inside = re.match(r".*?embd_\w+\((.*)\)$", declaration)[1]
    depth, start, found = 0, 0, []
    for at, letter in enumerate(inside + ","):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            found.append(inside[start:at].strip())
            start = at + 1
    named = re.compile(r"\(\*(\w+)\)|(\w+)$")
    return [((named.search(one)[1] or named.search(one)[2]), one) for one in found if one not in ("", "void")]


def summary(function):
    first = sentences(function.comment[0][1])[0].rstrip(".") if function.comment else function.name
    first = re.split(r"[:;] ", first)[0].replace("`", "")
    return first if re.match(r"[A-Z]{2}|embd", first) else first[0].lower() + first[1:]


def wrapped(declaration):
    """A declaration as it stands in a synopsis, a parameter a line where it is long."""
    if len(declaration) < 76:
        return declaration + ";"
    head = declaration[:declaration.index("(", declaration.index("embd_")) + 1]
    return head + "\n" + ",\n".join("    " + one for _, one in parameters(declaration)) + ");"


def write_parameters(page, function, types, text):
    named = parameters(function.declaration)
    if not named:
        return
    page.heading("PARAMETERS")
    for name, declaration in named:
        about = [s for s in sentences(text) if f"`{name}`" in s or f"`*{name}`" in s or f"*{name} " in s]
        page.item(declaration, " ".join(about))
    for tag in dict.fromkeys(re.findall(r"\bembd_\w+", " ".join(d for _, d in named))):
        if tag in types:
            page.subheading(tag)
            page.literal(types[tag])


def write_return(page, function, errors, after, others):
    page.heading("RETURN VALUE")
    if re.match(r"int embd_", function.declaration):
        page.paragraph("`EMBD_OK` (0), or a negative status (`embd_status_text`(3)). " + " ".join(after))
    elif function.declaration.startswith("void "):
        page.paragraph("None. " + " ".join(after))
    else:
        page.paragraph(f"`{function.declaration[:function.declaration.index('embd_' + function.name[5:] + '(')].strip()}`: "
                       "see the description. " + " ".join(after))
    if errors or others:
        page.heading("ERRORS")
        for text in others:
            page.paragraph(text)
        for status, cause in errors.items():
            is_word = re.match(r"[a-z]+[ ,](?!=)", cause)
            page.item(status, (cause[:1].upper() + cause[1:] if is_word else cause) + ".")


def examples_of(name, all_headers):
    """Code in the headers that calls the function."""
    blocks = [text for header in all_headers for is_code, text in header.essay if is_code]
    blocks += [text for header in all_headers for function in header.functions
               for is_code, text in function.comment if is_code]
    return [block for block in dict.fromkeys(blocks) if f"{name}(" in block]


def write_function(function, sharing, all_headers, types, statuses, version):
    page = roff.Page(function.name, 3, version, "embd")
    before, errors, after, others = split_errors(function.comment, statuses)
    page.heading("NAME")
    page.line(f"{', '.join(f.name for f in sharing)} - {summary(function)}")
    page.heading("SYNOPSIS")
    page.literal(f"#include <{function.header}>\n\n" + "\n\n".join(wrapped(f.declaration) for f in sharing))
    page.paragraph(f"Link with `-l{library_of(function)}`" + ("." if library_of(function) == "embd" else " `-lembd`."))
    page.heading("DESCRIPTION")
    for text in re.split(r"\n\s*\n", before):
        page.paragraph(flow(text))
    write_parameters(page, function, types, before + " " + " ".join(after))
    write_return(page, function, errors, after, others)
    for block in examples_of(function.name, all_headers)[:1]:
        page.heading("EXAMPLE")
        page.literal(block)
    near = [f.main for h in all_headers for f in h.functions
            if (f.header, f.section) == (function.header, function.section) and f.main != function.name]
    page.see_also([*((name, 3) for name in dict.fromkeys(near)), ("embd", 7)])
    return page


def write_overview(all_headers, version):
    page = roff.Page("embd", 7, version, "embd")
    page.heading("NAME")
    page.line("embd - client libraries of an embedding parameter server")
    page.heading("SYNOPSIS")
    page.literal("\n".join(f"#include <{header.name}>" for header in all_headers if header.functions))
    page.paragraph("Link with `-lembd`; for data sets `-lembd-data`, for model folders of HugeCTR `-lembd-hugectr`. CMake "
                   "finds them with find_package(embd) as `embd::embd`, `embd::data` and `embd::hugectr`.")
    page.heading("DESCRIPTION")
    for is_code, text in all_headers[0].essay:
        page.literal(text) if is_code else page.paragraph(flow(re.sub(r"^\s*\w+\.h - ", "", text)))
    page.heading("FUNCTIONS")
    for header in all_headers:
        for section in dict.fromkeys(f.section for f in header.functions):
            page.subheading(section or header.name)
            for f in header.functions:
                if f.section == section and f.main == f.name:
                    page.item(f"{f.name}(3)", summary(f))
    page.see_also([("embd.yaml", 5), ("embctl", 1), ("embd", 8)])
    return page


def main(arguments):
    all_headers, types, statuses = headers.read()
    functions = [f for header in all_headers for f in header.functions]
    silent = [f for f in functions if not f.comment]
    if arguments == ["--check"]:
        for function in silent:
            print(f"include/{function.header}: {function.name} has no comment")
        print(f"{len(functions)} functions, {len({f.main for f in functions})} pages")
        return 1 if silent or len(functions) < 60 else 0
    version, out = arguments
    for function in functions:
        if function.main == function.name:
            sharing = [f for f in functions if f.main == function.name]
            write_function(function, sharing, all_headers, types, statuses, version).write(out)
        else:
            roff.write(out, f"man3/{function.name}.3", f".so man3/{function.main}.3\n")
    write_overview(all_headers, version).write(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
