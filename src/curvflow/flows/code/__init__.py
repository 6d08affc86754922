"""What code computes a node, read from source text; nothing is imported for it."""
