"""A hash of all that defines a run. Imports no torch."""

import json

import xxhash

from scse_dist.config.changes import defining_settings
from scse_dist.config.schema import RunConfig


def fingerprint(config: RunConfig) -> str:
    """Equal for two configurations that may be the same run; the length of the run is not part of it."""
    return xxhash.xxh3_128_hexdigest(json.dumps(defining_settings(config), sort_keys=True).encode())
