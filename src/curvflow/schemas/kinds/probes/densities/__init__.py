"""Declarations of probes of spectral densities."""
