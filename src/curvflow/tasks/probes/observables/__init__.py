"""Probes of observables at the draws of chains about weights."""
