"""Declarations of probes of observables at the draws of chains about weights."""
