"""Counts before anything runs: parameters and floating-point operations (SCSE paper, section 4). Imports no torch."""

from scse_dist.config.methods import AnchoredAdapterConfig, LoopedBaselineConfig, ScseConfig, UnsharedConfig
from scse_dist.config.schema import ModelSection


def num_body_steps(model: ModelSection, num_loops: int) -> int:
    """Applications of a block: N_body(T) of the paper."""
    return min(num_loops, model.method.num_layers) if isinstance(model.method, UnsharedConfig) else num_loops


def forward_flops_per_token(model: ModelSection, num_loops: float, length: int) -> float:
    """Operations of one forward pass per token, the readout included: N_body*(8d^2 + 6*d*d_ff + 4*L*d) + 2*d*V."""
    assert model.vocab_size is not None
    d, d_ff = model.width, model.resolved_ffn_width
    steps = min(num_loops, num_body_steps(model, 2**30))
    return steps * (8 * d * d + 6 * d * d_ff + 4 * length * d) + 2 * d * model.vocab_size


def training_flops_per_token(model: ModelSection, num_loops: float, length: int) -> float:
    """Forward and backward, as is usual three times the forward pass; recomputation is not useful work."""
    return 3 * forward_flops_per_token(model, num_loops, length)


def num_parameters(model: ModelSection, *, as_published: bool = False) -> int:
    """Parameters of the model.

    Args:
        as_published: count three d x d maps for every anchored method whether it uses them or not, and leave out the
            scalar gain: the reading under which the paper's sizes come out.
    """
    assert model.vocab_size is not None and model.num_positions is not None
    d, d_ff, method = model.width, model.resolved_ffn_width, model.method
    embeddings = (model.vocab_size + model.num_positions) * d
    block = 4 * d * d + 3 * d * d_ff + 2 * d
    final_norm = d
    match method:
        case UnsharedConfig():
            return embeddings + method.num_layers * block + final_norm
        case LoopedBaselineConfig():
            num_maps, num_scalars = 1, 1
        case ScseConfig():
            num_maps, num_scalars = 2, 0
        case AnchoredAdapterConfig():
            num_maps, num_scalars = 3, 1
        case _:
            raise TypeError(f"count the parameters of {type(method).__name__} here")
    if as_published and not isinstance(method, LoopedBaselineConfig):
        num_maps, num_scalars = 3, 0
    return embeddings + block + final_norm + num_maps * d * d + num_scalars
