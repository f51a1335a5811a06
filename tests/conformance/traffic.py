"""What a rank of a traffic job does: many steps of varying depth at ZeRO-3, with every gathered byte counted."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from deepspeed.comm.torch import TorchBackend
from deepspeed.runtime.zero import parameter_offload
from torch import Tensor

from scse_dist.config.schema import DepthSection
from scse_dist.model.depth import depth_at
from scse_dist.parallel.engine import Engine
from scse_dist.parallel.env import World
from tests.conformance.cases import Cell, Outcome, batches, initial_model, run_config
from tests.conformance.worker import run_step


def measure(world: World, cells: list[Cell], num_steps: int, folder: Path) -> dict[Cell, dict[str, list[int]]]:
    """For each cell: depth, gathered bytes, gathers and size of the hook stack, an entry a step."""
    return {cell: _measure_cell(world, cell, num_steps, folder) for cell in cells}


def _measure_cell(world: World, cell: Cell, num_steps: int, folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"num_loops": [], "gathered_bytes": [], "gathers": [], "hook_stack": []}
    engine = Engine(initial_model(cell.method), run_config(cell, world.size, folder), world)
    inputs_BL, labels_BL = batches()[0]
    for step in range(num_steps):
        num_loops = depth_at(DepthSection(min=1, max=8), 0, step)
        with counted_gathers() as sizes:
            run_step(engine, world, inputs_BL, labels_BL, num_loops, 1e-3, Outcome())
        found["num_loops"].append(num_loops)
        found["gathered_bytes"].append(sum(sizes))
        found["gathers"].append(len(sizes))
        found["hook_stack"].append(len(parameter_offload.FWD_MODULE_STACK))
    return found


@contextmanager
def counted_gathers() -> Iterator[list[int]]:
    """Bytes of each gathered result while it lasts, below every layer of DeepSpeed's."""
    sizes: list[int] = []

    def spy(name: str, output: str) -> AbstractContextManager[object]:
        whole = getattr(TorchBackend, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            gathered = options[output] if output in options else arguments[1]
            tensors: list[Tensor] = gathered if isinstance(gathered, list) else [gathered]
            sizes.append(sum(tensor.numel() * tensor.element_size() for tensor in tensors))
            return whole(*arguments, **options)

        return mock.patch.object(TorchBackend, name, counted)

    names = {
        "all_gather": "tensor_list",
        "all_gather_into_tensor": "output_tensor",
        "all_gather_coalesced": "output_tensors",
    }
    with ExitStack() as stack:
        for name, output in names.items():
            stack.enter_context(spy(name, output))
        yield sizes
