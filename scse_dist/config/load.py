"""From a recipe and dotted overrides to a RunConfig, and back to a file that reloads to the same object."""

import json
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from scse_dist.config.explain import explain
from scse_dist.config.methods import UnsharedConfig
from scse_dist.config.schema import RunConfig
from scse_dist.errors import UserError


class _Loader(yaml.SafeLoader):
    """Safe YAML, with 1e-3 a number and a key given twice an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, dict | list):
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} cannot be a key", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what ``_Loader`` would not read back as a string, a folder called 1e3 for example."""


_NUMBER = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)$|^[-+]?(\d+\.\d*|\.\d+)$|^[-+]?\.(inf|Inf)$|^\.(nan|NaN)$")
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789."))
# No setting is a date, but a folder may be called like one.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def load_config(recipe: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Reads a recipe and applies ``section.key=value`` overrides, the later one winning.

    Args:
        recipe: a YAML file.
        overrides: dotted settings; values are YAML.

    Raises:
        UserError: an unreadable file, an unknown key, a value out of range.
    """
    settings = read_yaml(recipe)
    changes = [_split_override(text) for text in overrides]
    _change_method(settings, changes)
    for keys, value in changes:
        _assign(settings, keys, value)
    _settle_depth(settings)
    return parse_config(settings, origin=str(recipe))


def read_config(path: Path) -> RunConfig:
    """Reads a resolved configuration such as a run folder's ``config.yaml``.

    Raises:
        UserError: missing, unreadable or of another version of the schema.
    """
    return parse_config(read_yaml(path), origin=str(path))


def dump_config(config: RunConfig) -> str:
    """The configuration as YAML that ``read_config`` turns into an equal object."""
    return yaml.dump(config.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, width=110)


def parse_config(settings: dict[str, Any], origin: str) -> RunConfig:
    """Validates nested settings; the first fault becomes one line.

    Raises:
        UserError: naming the key, the value and a way out.
    """
    try:
        # JSON mode is strict about kinds (no "8" for 8, no true for 1) and still takes lists for tuples.
        return RunConfig.model_validate_json(json.dumps(settings), strict=True)
    except (TypeError, ValueError) as error:
        if isinstance(error, ValidationError):
            raise UserError(f"{origin}: {explain(error, RunConfig)}") from error
        raise UserError(f"{origin}: {error}; use numbers, strings, lists and mappings only") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file whose top is a mapping; an empty file is an empty mapping.

    Raises:
        UserError: unreadable, not UTF-8, not YAML, a key given twice, not a mapping.
    """
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: not valid YAML: {_one_line(error)}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UserError(f"{path}: holds a {type(loaded).__name__}, not sections; see launchers/recipes for examples")
    return loaded


def _split_override(text: str) -> tuple[list[str], Any]:
    key, equals, value = text.partition("=")
    keys = key.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"{text!r} is not an override; write section.key=value, for example train.num_steps=200")
    try:
        return keys, yaml.load(value, _Loader)
    except yaml.YAMLError as error:
        raise UserError(f"{key}={value!r} is not valid YAML: {_one_line(error)}") from error


def _change_method(settings: dict[str, Any], changes: Iterable[tuple[list[str], Any]]) -> None:
    """Another method on the command line drops what the recipe says about the old one."""
    names = [value for keys, value in changes if keys == ["model", "method", "name"]]
    names += [value.get("name") for keys, value in changes if keys == ["model", "method"] and isinstance(value, dict)]
    model = settings.get("model")
    recipe_method = model.get("method") if isinstance(model, dict) else None
    recipe_name = recipe_method.get("name", "scse") if isinstance(recipe_method, dict) else "scse"
    if names and names[-1] != recipe_name:
        if isinstance(model, dict):
            model.pop("method", None)
        if "unshared" in (names[-1], recipe_name):
            settings.pop("depth", None)  # a depth range belongs to looped methods, one depth to unshared


def _settle_depth(settings: dict[str, Any]) -> None:
    """``unshared`` has one depth, its number of layers, unless the user says something else (and is refused)."""
    model = settings.get("model")
    method = model.get("method") if isinstance(model, dict) else None
    if isinstance(method, dict) and method.get("name") == "unshared" and "depth" not in settings:
        num_layers = method.get("num_layers", UnsharedConfig().num_layers)
        settings["depth"] = {"schedule": "fixed", "min": num_layers, "max": num_layers}


def _assign(settings: dict[str, Any], keys: list[str], value: Any) -> None:
    inner = settings
    for depth, key in enumerate(keys[:-1]):
        if inner.get(key) is None:
            inner[key] = {}
        if not isinstance(inner[key], dict):
            raise UserError(f"{'.'.join(keys)}: {'.'.join(keys[: depth + 1])} is a single value, it has no parts")
        inner = inner[key]
    inner[keys[-1]] = deepcopy(value)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
