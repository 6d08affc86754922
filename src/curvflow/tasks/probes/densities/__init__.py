"""Probes of spectral densities."""
