"""Reasons why nodes must run, back to the root causes, and the time it will take."""
