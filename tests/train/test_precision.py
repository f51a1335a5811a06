import pytest
import torch

from scse_dist.config.schema import RunConfig
from scse_dist.errors import UserError
from scse_dist.parallel.env import World
from scse_dist.train.run import check_precision


@pytest.mark.parametrize("precision", ["bf16", "bf16_autocast"])
def test_bf16_on_a_device_without_it_is_refused_by_the_devices_name(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """There is no such device here; what torch would say of one is put in its place."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old GPU")
    world = World(0, 0, 1, 1, torch.device("cuda", 0), "nccl")
    with pytest.raises(UserError, match=f"precision={precision}: Old GPU has no bf16; use precision=fp32"):
        check_precision(RunConfig.model_validate({"precision": precision}), world)
    check_precision(RunConfig(), world)
