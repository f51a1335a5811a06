"""Sharded checkpoints that are complete or absent."""
