"""From raw text to verified shards: everything before training. Nothing in this package imports torch itself."""
