"""Modules whose names cannot be followed one by one with certainty.

Following is certain where a module consists of definitions that are bound once, by
plain statements: functions, classes, imports and assignments that run no code which
could change another name of the project. Anything else, such as a loop that fills a
table, a decorator that registers, `import *` or `exec`, is a doubt: then the whole
module counts. A doubt may be needless; what is left without one must not be wrong.
"""

from curvflow.flows.plan.code.doubts.expressions import hiding_of
from curvflow.flows.plan.code.doubts.statements import doubt_of

__all__ = ["doubt_of", "hiding_of"]
