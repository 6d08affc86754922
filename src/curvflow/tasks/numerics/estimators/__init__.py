"""Estimators of traces, moments, densities and log-determinants."""
