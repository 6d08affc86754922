"""Statistics of measured variables: intervals, tests, correlations, power laws."""
