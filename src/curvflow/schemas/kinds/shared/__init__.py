"""Parameters and variables that several kinds share."""
