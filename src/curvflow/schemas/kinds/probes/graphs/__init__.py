"""Declarations of probes of graphs."""
