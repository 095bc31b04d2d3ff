"""Road networks as arrays, shortest paths on them, and the lines of their edges."""
