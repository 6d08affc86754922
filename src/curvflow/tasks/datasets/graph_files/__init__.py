"""Readers of files of graphs, by their formats."""
