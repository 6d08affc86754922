"""Runs of a study: tiles computed and published."""
