"""Checks of a study beyond the types of its fields."""
