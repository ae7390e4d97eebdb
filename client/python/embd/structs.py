"""Structs of embd.h to and from Python values, by looking at the structs themselves.

A member is named as in C. Durations are seconds here: the member `deadline_ms` is set by `deadline`. Enums are
their lower-case names without the common prefix: EMBD_PLAN_ROWS is "rows", EMBD_OPTIMIZER_ROWWISE_ADAGRAD "rowwise_adagrad"."""
from __future__ import annotations

import functools
import os
from typing import Any

from ._native import ffi, lib


@functools.lru_cache(maxsize=None)
def enum_names(type_name: str) -> dict[int, str]:
    """{number: name} of an enum of embd.h."""
    found: dict[int, str] = ffi.typeof(type_name).elements
    elements = dict(sorted(found.items(), key=lambda item: abs(item[0])))
    names = list(elements.values())
    common = os.path.commonprefix(names)
    cut = common.rfind("_") + 1 if len(names) > 1 else len("EMBD_")
    return {number: name[cut:].lower() for number, name in elements.items()}


@functools.lru_cache(maxsize=None)
def enum_values(type_name: str) -> dict[str, int]:
    return {name: number for number, name in enum_names(type_name).items()}


def enum_value(what: str, type_name: str, name: str) -> int:
    values = enum_values(type_name)
    if name not in values:
        raise ValueError(f"{what} is {name!r}; it can be {', '.join(values)}")
    return values[name]


def begin(struct: Any) -> Any:
    """Sets a struct of embd.h, or one of an array, to its defaults and its struct_bytes."""
    kind = ffi.typeof(struct)
    type_name = (kind.item if kind.kind == "pointer" else kind).cname.removeprefix("struct ")
    init = getattr(lib, f"{type_name}_init_sized", None)
    if init is not None:
        init(struct, ffi.sizeof(type_name))
    else:
        struct.struct_bytes = ffi.sizeof(type_name)
    return struct


def new(type_name: str) -> Any:
    """A struct that begins with its size, of defaults."""
    return begin(ffi.new(f"{type_name} *"))


def new_array(type_name: str, n: int) -> Any:
    array = ffi.new(f"{type_name}[]", n)
    for i in range(n):
        begin(array[i])
    return array


@functools.lru_cache(maxsize=None)
def members(type_name: str) -> dict[str, Any]:
    """{Python name: (C name, C type)}."""
    found = {}
    for name, field in ffi.typeof(type_name).fields:
        if name == "struct_bytes":
            continue
        found[name[:-3] if name.endswith("_ms") else name] = (name, field.type)
    return found


def fill(struct: Any, options: dict[str, Any], keep: list[Any]) -> None:
    """Sets members from keywords. `keep` receives what the struct points to and has to live as long."""
    type_name = ffi.typeof(struct).item.cname
    known = members(type_name)
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(known)}")
        member, kind = known[name]
        setattr(struct, member, _to_c(name, member, kind, value, keep))


def _to_c(name: str, member: str, kind: Any, value: Any, keep: list[Any]) -> Any:
    if kind.kind == "enum":
        return enum_value(name, kind.cname, value)
    if kind.kind == "pointer":
        if value is None:
            return ffi.NULL
        if kind.item.cname in ("char", "char const"):
            keep.append(ffi.new("char[]", os.fsencode(value)))
        else:
            keep.append(ffi.new(f"{kind.item.cname.replace(' const', '')}[]", list(value)))
        return keep[-1]
    if member.endswith("_ms"):
        return max(1, round(value * 1000)) if value else 0
    return value


def read(struct: Any) -> dict[str, Any]:
    """The members of a struct that are numbers, names, text or structs of such."""
    kind = ffi.typeof(struct)
    kind = kind.item if kind.kind == "pointer" else kind
    out: dict[str, Any] = {}
    for name, field in kind.fields:
        if name == "struct_bytes":
            continue
        value = getattr(struct, name)
        if field.type.kind == "enum":
            out[name] = enum_names(field.type.cname)[int(ffi.cast("int", value))]
        elif field.type.kind == "struct":
            out[name] = read(value)
        elif field.type.kind == "array":
            out[name] = ffi.string(value).decode()
        elif field.type.kind == "primitive":
            out[name] = value
    return out
