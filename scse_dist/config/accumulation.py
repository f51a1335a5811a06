"""How a global batch comes out of microbatches and ranks. Imports no torch."""

from scse_dist.config.schema import RunConfig
from scse_dist.errors import UserError


def accumulation_steps(config: RunConfig, world_size: int) -> int:
    """Microbatches per rank and step.

    Raises:
        UserError: the global batch does not come out; names the sizes that would.
    """
    batch, microbatch = config.train.global_batch_size, config.train.microbatch_size
    if batch % (microbatch * world_size) == 0:
        return batch // (microbatch * world_size)
    if batch % world_size:
        fitting = [n for n in range(1, min(batch, 2 * world_size) + 1) if batch % n == 0]
        raise UserError(
            f"train.global_batch_size={batch} cannot be shared by {world_size} ranks; use a multiple of {world_size}, "
            f"or one of {fitting} ranks"
        )
    share = batch // world_size
    fitting = [n for n in range(1, share + 1) if share % n == 0]
    raise UserError(
        f"train.microbatch_size={microbatch} does not divide the {share} windows that each of {world_size} ranks has "
        f"of train.global_batch_size={batch}; use one of {fitting}"
    )
