"""Which way to go: each method's own few lines."""
