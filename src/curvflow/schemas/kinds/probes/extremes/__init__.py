"""Declarations of probes of extreme eigenvalues."""
