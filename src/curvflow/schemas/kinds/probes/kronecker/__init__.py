"""Declarations of probes of Kronecker factors."""
