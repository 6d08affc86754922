"""Specifications of rules with a rate for each parameter."""
