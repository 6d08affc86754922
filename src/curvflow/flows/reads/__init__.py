"""Reads of a user's code while it runs: files, folders, variables, and chance."""
