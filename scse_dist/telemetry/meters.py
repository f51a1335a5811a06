"""Time, memory and the machine's speed."""

import functools
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MATMUL_SIZE = {"cpu": 768, "cuda": 8192}
_MATMUL_REPEATS = 5
_MATMUL_SECONDS = 0.2
"""No more repeats after so long: bf16 without hardware support can be a hundred times slower."""


class PhaseTimer:
    """Where the time of the steps since the last report went.

    On CUDA the marks are events in the stream, so that a phase is what the device spends on it, and the host waits for
    the device only when a report is taken.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._spans: list[tuple[str, float | torch.cuda.Event, float | torch.cuda.Event]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time inside towards ``name``."""
        start = self._mark()
        yield
        self._spans.append((name, start, self._mark()))

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        spans, self._spans = self._spans, []
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        seconds: defaultdict[str, float] = defaultdict(float)
        for name, start, end in spans:
            seconds[name] += _seconds_between(start, end)
        return dict(seconds)

    def _mark(self) -> float | torch.cuda.Event:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


@functools.cache
def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product here, as this process has its threads: the yardstick of utilisation."""
    size = _MATMUL_SIZE[device.type]
    a = torch.randn(size, size, device=device, dtype=dtype)
    fastest = float("inf")
    begin = time.perf_counter()
    for _ in range(_MATMUL_REPEATS):
        start = time.perf_counter()
        torch.mm(a, a)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        fastest = min(fastest, time.perf_counter() - start)
        if time.perf_counter() - begin > _MATMUL_SECONDS:
            break
    return 2 * size**3 / fastest


def peak_memory_bytes(device: torch.device) -> int:
    """Highest memory so far: allocated on a CUDA device, resident of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _seconds_between(start: float | torch.cuda.Event, end: float | torch.cuda.Event) -> float:
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    assert isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event)
    return start.elapsed_time(end) / 1000
