"""Rules with a rate for each parameter."""
