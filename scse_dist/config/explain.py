"""A pydantic error as one line that names the key, the value and the way out."""

import difflib
import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError


def explain(error: ValidationError, schema: type[BaseModel]) -> str:
    """The first fault of ``error`` in one line, with the number of further ones."""
    first, *others = error.errors()
    more = f" (and {len(others)} more)" if others else ""
    return _explain_one(first, schema) + more


def valid_keys(schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """All dotted keys of a schema, those of every variant of a tagged union included."""
    for name, field in schema.model_fields.items():
        sections = list(_sections_in(field.annotation))
        if not sections:
            yield prefix + name
        for section in sections:
            yield from valid_keys(section, f"{prefix}{name}.")


def _explain_one(fault: Any, schema: type[BaseModel]) -> str:
    key, section = _locate(fault["loc"], schema)
    kind, value = fault["type"], fault["input"]
    if kind == "extra_forbidden":
        return f"unknown key {key}{_suggest(key, section, schema)}"
    if kind == "union_tag_invalid":
        tag, expected = fault["ctx"]["tag"], fault["ctx"]["expected_tags"].replace("'", "")
        near = difflib.get_close_matches(str(tag), expected.split(", "), n=1)
        return f"{key}.name={tag!r} is unknown; " + (f"did you mean {near[0]}? " if near else "") + f"known: {expected}"
    if kind == "union_tag_not_found":
        return f"{key} needs a name, for example {key}.name=scse"
    if kind == "value_error":
        return str(fault["ctx"]["error"])
    if kind == "model_type":
        return f"{key or 'the file'}={value!r} must be a section with keys of its own"
    if kind == "missing":
        return f"{key} is missing"
    message = fault["msg"].removeprefix("Input ")
    return f"{key}={value!r} {message}"


def _suggest(key: str, section: type[BaseModel], schema: type[BaseModel]) -> str:
    """The nearest name in the section it was given in, or else the place where such a key lives."""
    parent, _, last = key.rpartition(".")
    near = difflib.get_close_matches(last, section.model_fields, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {parent + '.' if parent else ''}{near[0]}?"
    elsewhere = [k for k in valid_keys(schema) if k.rpartition(".")[2] == last and k != key]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    owner = section.model_fields["name"].default if "name" in section.model_fields else parent or "the top level"
    return f"; valid for {owner}: {', '.join(section.model_fields)}"


def _locate(loc: tuple[int | str, ...], schema: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """The key as users write it (pydantic puts a union's tag into the location) and the section it was given in."""
    parts: list[str] = []
    section, candidates = schema, [schema]
    for part in loc:
        tagged = {s.model_fields["name"].default: s for s in candidates if "name" in s.model_fields}
        if len(candidates) > 1 and part in tagged:
            candidates = [tagged[str(part)]]
            continue
        parts.append(str(part))
        section = candidates[0] if candidates else section
        field = section.model_fields.get(str(part))
        candidates = list(_sections_in(field.annotation)) if field else []
    return ".".join(parts), section


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _sections_in(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for choice in get_args(annotation):
            yield from _sections_in(choice)
