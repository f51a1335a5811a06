"""One small file per method; importing the package registers them all."""

import pkgutil
from importlib import import_module

from scse_dist.config.methods import MethodConfig
from scse_dist.model.methods.base import BlockFn, Context, Method, implementation_of

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def build_method(width: int, config: MethodConfig) -> Method:
    """The method a config describes, for states of ``width`` channels."""
    return implementation_of(config)(width, config)


__all__ = ["BlockFn", "Context", "Method", "build_method"]
