"""Products with curvature matrices of modules and networks."""
