"""Local learning coefficients of the members of a tile."""
