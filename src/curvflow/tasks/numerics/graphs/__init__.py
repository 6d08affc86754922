"""Graphs as compressed rows of neighbours: how they are made and multiplied."""
