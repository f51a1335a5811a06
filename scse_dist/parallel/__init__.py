"""Ranks, collectives and the DeepSpeed engine."""
