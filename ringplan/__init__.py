"""Plan ring attention: memory, traffic, overlap, and why."""
