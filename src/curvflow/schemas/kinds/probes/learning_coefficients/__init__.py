"""Declarations of probes of the learning coefficient and the free energy."""
