"""How rows get from shard to shard: who receives a row, the form rows travel in, and their order on arrival."""
