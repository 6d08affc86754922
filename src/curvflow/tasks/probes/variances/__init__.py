"""Probes of variances over samples, a file per kind."""
