"""Declarations of what training loops outside of a study have measured."""
