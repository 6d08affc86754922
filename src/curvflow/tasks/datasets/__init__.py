"""Functions that kinds of data share."""
