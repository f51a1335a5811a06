"""Typed configuration of a run. Nothing in this package imports torch."""

from scse_dist.config.load import dump_config, load_config, read_config
from scse_dist.config.schema import RunConfig

__all__ = ["RunConfig", "dump_config", "load_config", "read_config"]
