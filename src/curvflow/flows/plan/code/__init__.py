"""Fingerprints of the code that computes nodes, and its drift."""
