"""Writes ``docs/settings.md`` from the sections' own docstrings.

python scripts/settings_page.py > docs/settings.md
"""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from scse_dist.config.schema import RunConfig

INTRODUCTION = """# Settings

Every key of a recipe, its default and what it means; `scse-dist train RECIPE --dry-run` prints the values of a run.
The keys of `model.method` depend on its `name`. Written by `scripts/settings_page.py`.
"""


def page() -> str:
    """The page as Markdown."""
    return "\n".join([INTRODUCTION, *_sections(RunConfig, "")]) + "\n"


def _sections(section: type[BaseModel], prefix: str) -> Iterator[str]:
    inner: list[tuple[type[BaseModel], str]] = []
    rows = []
    for name, field in section.model_fields.items():
        models = list(_models(field.annotation))
        if models:
            inner += [(model, f"{prefix}{name}.") for model in models]
            continue
        default = "" if field.default is PydanticUndefined else f"`{_shown(field.default)}`"
        rows.append(f"| `{prefix}{name}` | {default} | {' '.join((field.description or '').split())} |")
    if rows:
        tag = section.model_fields["name"].default if "name" in section.model_fields else None
        title = tag or prefix.rstrip(".") or "top level"
        summary = " ".join((section.__doc__ or "").split())
        yield f"## {title}\n\n{summary}\n\n| key | default | meaning |\n|---|---|---|"
        yield "\n".join(rows) + "\n"
    for model, inner_prefix in inner:
        yield from _sections(model, inner_prefix)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _models(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for choice in get_args(annotation):
            yield from _models(choice)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case tuple():
            return "[" + ", ".join(map(_shown, value)) + "]"
    return str(value)


if __name__ == "__main__":
    print(page(), end="")
