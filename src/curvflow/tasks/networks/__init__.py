"""Networks for a batch of models, and what they are trained on."""
