"""Graphs as data."""
