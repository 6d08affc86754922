"""Probes of the learning coefficient and the free energy."""
