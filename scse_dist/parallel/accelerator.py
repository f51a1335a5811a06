"""Says which accelerator DeepSpeed is to use, before anything imports it: left to itself it probes, loudly."""

import os

import torch


def name_accelerator() -> None:
    """Sets DS_ACCELERATOR unless the user has."""
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
