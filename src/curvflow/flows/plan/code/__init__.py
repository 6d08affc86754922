"""What code computes a node, and what becomes of its results when that changes."""
