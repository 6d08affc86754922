"""Probes of graphs."""
