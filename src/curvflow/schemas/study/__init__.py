"""A study file: read, checked and connected."""
