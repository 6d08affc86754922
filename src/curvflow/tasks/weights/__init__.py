"""Weights from other sources than a training of the study."""
