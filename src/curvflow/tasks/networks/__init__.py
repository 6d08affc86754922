"""Networks for a batch of models, their losses and their data."""
