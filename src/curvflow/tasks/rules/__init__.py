"""Learning rules, one file each: `init` and `step`, over the models of a batch.

What a rule keeps between steps is a tensor, None, or a tuple of these, named or not, to
any depth; the first dimension of every tensor is the model. A tensor may be None where
no model of the batch needs it, as a velocity without momentum. Such a state is kept,
stored and gone on from without the rule's doing; all that `step` depends on beside its
arguments belongs into it, such as a count of steps, one per model.
"""
