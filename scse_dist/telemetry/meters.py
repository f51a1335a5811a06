"""Time, memory and the machine's speed."""

import functools
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MATMUL_SIZE = {"cpu": 1024, "cuda": 8192}
_MATMUL_REPEATS = 5


class PhaseTimer:
    """Where the time of the steps since the last report went.

    On CUDA the phases of a step are those of the host's calls; the device is waited for only when a report is due, so
    that their sum is true then and no other step pays for it.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time inside towards ``name``."""
        start = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - start

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        if self._device.type == "cuda":
            with self.phase("forward_backward"):
                torch.cuda.synchronize(self._device)
        taken, self._seconds = dict(self._seconds), defaultdict(float)
        return taken


@functools.cache
def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product here, as this process has its threads: the yardstick of utilisation."""
    size = _MATMUL_SIZE[device.type]
    a = torch.randn(size, size, device=device, dtype=dtype)
    fastest = float("inf")
    for _ in range(_MATMUL_REPEATS):
        start = time.perf_counter()
        torch.mm(a, a)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * size**3 / fastest


def peak_memory_bytes(device: torch.device) -> int:
    """Highest memory so far: allocated on a CUDA device, resident of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
