"""Training of a batch of models in one program."""
