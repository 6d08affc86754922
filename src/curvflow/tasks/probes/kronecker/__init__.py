"""Probes of Kronecker factors."""
