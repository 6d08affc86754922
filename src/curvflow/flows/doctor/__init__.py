"""Checks of the machine, the libraries and services that curvflow needs."""
