"""Which settings of a run may differ when it is resumed. Imports no torch."""

from typing import Any

from scse_dist.config.schema import RunConfig

MAY_CHANGE = (
    "run.dir",
    "data.path",
    "data.verify_shards",
    "depth.check_agreement",
    "parallel.recompute",
    "parallel.recompute_interval",
    "parallel.ds_config",
    "parallel.device",
    "parallel.backend",
    "evaluate",
    "checkpoint",
    "telemetry",
)
"""Settings and whole sections that define nothing of the run: results change at most by rounding (a moved data folder
is recognised by its fingerprint)."""

SCHEDULES_THAT_EXTEND = ("constant",)
"""Learning-rate schedules under which a longer run begins exactly like a shorter one."""

_COMPARED_APART = ("train.num_steps", "train.microbatch_size")


def forbidden_changes(old: RunConfig, new: RunConfig) -> list[tuple[str, Any, Any]]:
    """Keys that make ``new`` another run than ``old``, with both values."""
    return [
        (key, before, after)
        for key, before, after in differences(old, new)
        if not _is_free(key)
        and not (key == "train.microbatch_size" and not _depends_on_microbatches(old))
        and not (key == "train.num_steps" and after > before and old.optim.schedule in SCHEDULES_THAT_EXTEND)
    ]


def differences(old: RunConfig, new: RunConfig) -> list[tuple[str, Any, Any]]:
    """Every dotted key whose value differs, with both values (None where a key is absent)."""
    before, after = _flat(old.model_dump(mode="json")), _flat(new.model_dump(mode="json"))
    return [(k, before.get(k), after.get(k)) for k in {**before, **after} if before.get(k) != after.get(k)]


def defining_settings(config: RunConfig) -> dict[str, Any]:
    """All dotted settings that never change between parts of a run."""
    flat = _flat(config.model_dump(mode="json"))
    return {key: value for key, value in flat.items() if not _is_free(key) and key not in _COMPARED_APART}


def _depends_on_microbatches(config: RunConfig) -> bool:
    """Dropout draws its masks, and ``depth.draw=microbatch`` its depths, microbatch by microbatch."""
    return config.model.dropout > 0 or config.depth.draw == "microbatch"


def _is_free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in MAY_CHANGE)


def _flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in section.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
