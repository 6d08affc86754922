"""Probes of extreme eigenvalues, a file per kind."""
