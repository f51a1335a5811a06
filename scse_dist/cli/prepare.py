"""``scse-dist prepare``."""

from data_prep.options import PrepareOptions
from data_prep.prepare import prepare
from scse_dist.errors import ExitCode


def prepare_data(options: PrepareOptions) -> int:
    """Makes a data folder and says what to do with it."""
    prepare(options)
    print(f"next: scse-dist train demo.yaml data.path={options.out} run.dir=runs/first")
    return ExitCode.DONE
