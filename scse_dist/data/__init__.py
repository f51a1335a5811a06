"""Reading prepared shards."""
