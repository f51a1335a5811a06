import re
from pathlib import Path

import pytest
import torch

from scse_dist.telemetry import meters
from scse_dist.telemetry.meters import PhaseTimer, matmul_rate, peak_memory_bytes

CPU = torch.device("cpu")


class Clock:
    """Stands in for ``time`` in the room under test: its time passes only when told, or by a tick at each look."""

    def __init__(self, tick: float = 0.0):
        self.now, self.tick = 0.0, tick

    def perf_counter(self) -> float:
        self.now += self.tick
        return self.now


def test_phases_are_summed_until_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(meters, "time", clock)
    timer = PhaseTimer(CPU)
    for _ in range(3):
        with timer.phase("data"):
            clock.now += 1
        clock.now += 100  # evaluation, say
        with timer.phase("optimizer"):
            clock.now += 2
    assert timer.take() == {"data": 3, "optimizer": 6}
    assert timer.take() == {}
    with timer.phase("data"):
        clock.now += 5
    assert timer.take() == {"data": 5}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda_a_phase_is_what_the_device_spends() -> None:
    device = torch.device("cuda", 0)
    timer = PhaseTimer(device)
    a = torch.randn(8192, 8192, device=device)
    for repeats in (1, 1, 20):
        with timer.phase(f"{repeats} products"):
            for _ in range(repeats):
                torch.mm(a, a)
    seconds = timer.take()
    assert seconds["20 products"] > 3 * seconds["1 products"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_matmul_rate_is_measured_once(dtype: torch.dtype) -> None:
    matmul_rate.cache_clear()
    rate = matmul_rate(CPU, dtype)
    assert 1e7 < rate < 1e15
    assert matmul_rate(CPU, dtype) == rate
    assert matmul_rate.cache_info().hits == 1


def test_the_matmul_rate_counts_two_operations_per_multiply_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "time", Clock(tick=0.5))
    matmul_rate.cache_clear()
    assert matmul_rate(CPU, torch.float32) == 2 * 768**3 / 0.5
    matmul_rate.cache_clear()


def test_peak_memory_on_a_cpu_is_in_bytes_and_does_not_fall() -> None:
    resident = int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024
    before = peak_memory_bytes(CPU)
    assert 0.9 * resident < before  # the kernel's two counters differ by some pages
    block = torch.ones(max(0, before - resident) + 2**26, dtype=torch.uint8)
    grown = peak_memory_bytes(CPU)
    assert before + 2**25 < grown < before + 2**27
    del block
    assert peak_memory_bytes(CPU) >= grown
