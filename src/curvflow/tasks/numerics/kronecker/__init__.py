"""Kronecker factors of curvature: records of uses, factors, operators."""
