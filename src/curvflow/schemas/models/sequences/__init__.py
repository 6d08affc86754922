"""Specifications of networks of sequences."""
