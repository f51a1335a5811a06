"""DeepSpeed files that hold only what DeepSpeed alone owns; sizes, precision and clipping come from the recipe."""

from pathlib import Path

FOLDER = Path(__file__).parent


def stage_file(zero_stage: int) -> Path:
    """The shipped file for a ZeRO stage."""
    return FOLDER / f"zero{zero_stage}.json"
