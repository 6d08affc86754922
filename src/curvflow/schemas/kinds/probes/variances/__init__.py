"""Declarations of probes of variances over samples."""
