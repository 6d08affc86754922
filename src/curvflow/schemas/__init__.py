"""WHAT is asked and recorded. No disk, no torch."""
