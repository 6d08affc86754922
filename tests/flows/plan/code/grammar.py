"""Random modules, edits of them, and what Python makes of both.

    python -m tests.flows.plan.code.grammar [CASES [SEED]]

A case is a few modules beside a study. A number written in one of them takes a random
way to what `start()` returns: it is imported in some manner, and handed on by one to
three binding forms. Then it is edited, or something that `start()` does not need is.
Python says whether the result moved, the fingerprint whether that was noticed: that of
the text alone, and that of the text and of what a run has recorded. Printed are edits
that moved the result in silence by either, and counted are alarms at edits that change
nothing; those that the record spares are counted apart.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from curvflow.flows.plan.code import drift, fingerprints
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.reads import windows
from curvflow.flows.reads.ledgers import source_files
from curvflow.flows.reads.windows import Observed
from tests.flows.plan.code.project import node, own_kind

# Statements of `mine`, and how they take X, an expression, to the next one. N is a
# fresh name.
FORMS = {
    "assigned": ("N = X", "N"),
    "annotated": ("N: int = X", "N"),
    "chained": ("N_a = N = X", "N"),
    "unpacked": ("N, N_b = X, 0", "N"),
    "starred": ("N, *N_b = [X, 0]", "N"),
    "a function": ("def N():\n    return X", "N()"),
    "a lambda": ("N = lambda: X", "N()"),
    "a default": ("def N(v=X):\n    return v", "N()"),
    "a closure": ("def N_o():\n    v = X\n    return lambda: v\nN = N_o()", "N()"),
    "a partial": ("import functools\nN = functools.partial(int, X)", "N()"),
    "a dictionary": ("N = {'k': X}", "N['k']"),
    "an entry": ("N = {}\nN['k'] = X", "N['k']"),
    "an object of values": (
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass N_c:\n"
        "    v: int = 1\n    @property\n    def p(self):\n        return self.v + 1\n"
        "N_i = N_c(2)\nN = (N_i.p, X)",
        "N",
    ),
    "an object of a list": (
        "import dataclasses\nN = []\n@dataclasses.dataclass\nclass N_c:\n"
        "    v: list\n    @property\n    def p(self):\n"
        "        return self.v.append(1)\n"
        "N_i = N_c(N)\nN_v = [N_i.p for i in range(X)]",
        "len(N)",
    ),
    "an object of a list that a field makes": (
        "import dataclasses\nN = []\n@dataclasses.dataclass\nclass N_c:\n"
        "    v: list = dataclasses.field(default_factory=lambda: N)\n"
        "    @property\n    def p(self):\n        return self.v.append(self.w)\n"
        "    w: int = X\nN_i = N_c()\nN_v = N_i.p",
        "N[0]",
    ),
    "an object whose property fills": (
        "import dataclasses\nN = []\n@dataclasses.dataclass\nclass N_c:\n"
        "    v: int = 1\n    @property\n    def p(self):\n"
        "        return N.append(X)\nN_i = N_c(2)\nN_v = N_i.p",
        "N[0]",
    ),
    "an object that is set by a property": (
        "import dataclasses\nN = []\n@dataclasses.dataclass\nclass N_c:\n"
        "    v: int\n    @property\n    def v(self):\n        return 1\n"
        "    @v.setter\n    def v(self, w):\n        N.append(X)\nN_i = N_c(2)",
        "N[0]",
    ),
    "an object of another base": (
        "import dataclasses, logging\nN = []\nclass N_c(logging.Handler):\n"
        "    def createLock(self):\n        N.append(X)\nN_i = N_c(2)",
        "N[0]",
    ),
    "an object of a model": (
        "import pydantic\nN = []\nclass N_c(pydantic.BaseModel):\n"
        "    def model_post_init(self, context):\n        N.append(X)\nN_i = N_c()",
        "N[0]",
    ),
    "an object with a property of another name": (
        "N = []\ndef N_p(f):\n    N.append(X)\nclass N_c:\n    property = N_p\n"
        "    @property\n    def p(self):\n        return 1\nN_i = N_c()",
        "N[0]",
    ),
    "a table of one value": ("N = dict.fromkeys(['k'], X)", "N['k']"),
    "a function of a table of one value": (
        "N = []\nN_t = dict.fromkeys(['k'], N.append)\nN_v = sorted([X], key=N_t['k'])",
        "N[0]",
    ),
    "the keys of a table": (
        "N = []\nclass N_c:\n    def __hash__(self):\n        N.append(X)\n"
        "        return 1\nN_t = dict.fromkeys([N_c()], 0)",
        "N[0]",
    ),
    "a generic class": (
        "import typing\nN_t = typing.TypeVar('N_t')\n"
        "class N(typing.Protocol[N_t]):\n    v = X",
        "N.v",
    ),
    "a generic class's hook": (
        "import typing\nN = []\nclass N_b:\n"
        "    def __class_getitem__(cls, k):\n        N.append(X)\n        return cls\n"
        "N_t = typing.TypeVar('N_t')\nclass N_c(N_b[N_t]):\n    pass",
        "N[0]",
    ),
    "an entry of an alias": ("N = {}\nN_a = N\nN_a['k'] = X", "N['k']"),
    "an entry of a chain": ("N = N_a = {}\nN_a['k'] = X", "N['k']"),
    "a nested entry": ("N = {'a': {}}\nN['a']['k'] = X", "N['a']['k']"),
    "a loop's entry": ("N = {}\nfor N_i in (1,):\n    N[N_i] = X", "N[1]"),
    "a loop that appends": ("N = []\nfor N_i in (1,):\n    N.append(X)", "N[0]"),
    "a loop over functions": (
        "def N_f():\n    return X\nN = {}\nfor N_g in (N_f,):\n"
        "    N[N_g.__name__] = N_g",
        "N['N_f']()",
    ),
    "a loop of an attribute": (
        "class N:\n    v = 0\nfor N_i in (1,):\n    N.v = X",
        "N.v",
    ),
    "while": ("N = []\nwhile not N:\n    N.append(X)", "N[0]"),
    "a comprehension's effect": ("N = []\n[N.append(i) for i in (X,)]", "N[0]"),
    "setdefault": ("N = {}\nN_old = N.setdefault('k', X)", "N['k']"),
    "update": ("N = {}\nN.update(k=X)", "N['k']"),
    "mixed targets": ("N = {}\nN['k'] = N_y = X", "N['k']"),
    "a mixed tuple": ("N = {}\nN['k'], N_y = X, 0", "N['k']"),
    "extended": ("N = []\nN += [X]", "N[0]"),
    "map's effect": ("N = []\nN_m = list(map(N.append, [X]))", "N[0]"),
    "a key's effect": (
        "N = []\nN_m = sorted([X], key=lambda i: N.append(i) or 0)",
        "N[0]",
    ),
    "a library's effect": ("import heapq\nN = []\nN_h = heapq.heappush(N, X)", "N[0]"),
    "setitem": ("import operator\nN = {}\noperator.setitem(N, 'k', X)", "N['k']"),
    "reduce": (
        "import functools\nN = []\n"
        "N_r = functools.reduce(lambda t, i: t.append(i) or t, [X], N)",
        "N[0]",
    ),
    "out=": (
        "import numpy\nN = numpy.zeros(1)\nN_o = numpy.add(0, X, out=N)",
        "float(N[0])",
    ),
    "a registry": (
        "N = {}\ndef N_reg(f):\n    N['k'] = f\n    return f\n"
        "@N_reg\ndef N_f():\n    return X",
        "N['k']()",
    ),
    "a registry with a name": (
        "N = {}\ndef N_reg(name):\n    def into(f):\n        N[name] = f\n"
        "        return f\n    return into\n@N_reg('k')\ndef N_f():\n    return X",
        "N['k']()",
    ),
    "a registering call": (
        "N = {}\ndef N_reg(v):\n    N['k'] = v\nN_reg(X)",
        "N['k']",
    ),
    "singledispatch": (
        "import functools\n@functools.singledispatch\ndef N(x):\n    return 0\n"
        "@N.register\ndef _(x: int):\n    return X",
        "N(1)",
    ),
    "registered subclasses": (
        "N = []\nclass N_b:\n    def __init_subclass__(cls):\n        N.append(cls)\n"
        "class N_s(N_b):\n    v = X",
        "N[0].v",
    ),
    "subclasses": (
        "class N_b:\n    pass\nclass N_s(N_b):\n    v = X",
        "N_b.__subclasses__()[0].v",
    ),
    "a descriptor's name": (
        "N = {}\nclass N_d:\n    def __set_name__(self, o, n):\n        N[n] = X\n"
        "class N_c:\n    k = N_d()",
        "N['k']",
    ),
    "a metaclass": (
        "class N_m(type):\n    v = X\nclass N(metaclass=N_m):\n    pass",
        "N.v",
    ),
    "a class attribute": ("class N:\n    v = X", "N.v"),
    "an attribute set later": ("class N:\n    v = 0\nN.v = X", "N.v"),
    "setattr": ("class N:\n    v = 0\nsetattr(N, 'v', X)", "N.v"),
    "a class's loop": ("class N:\n    for v in (X,):\n        pass", "N.v"),
    "a property": (
        "class N_c:\n    @property\n    def v(self):\n        return X\nN = N_c()",
        "N.v",
    ),
    "a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass N:\n    v: int = X",
        "N().v",
    ),
    "an instance": (
        "class N_c:\n    def __init__(self, v):\n        self.v = v\nN = N_c(X)",
        "N.v",
    ),
    "an instance that registers": (
        "N = []\nclass N_c:\n    def __init__(self, v):\n        N.append(v)\n"
        "N_i = N_c(X)",
        "N[0]",
    ),
    "an enumeration": (
        "import enum\nclass N(enum.Enum):\n    k = X, 'k'",
        "N.k.value[0]",
    ),
    "a condition": ("if X or True:\n    N = X\nelse:\n    N = 0", "N"),
    "not the main part": ("if __name__ != '__main__':\n    N = X", "N"),
    "a walrus": ("if (N := X) or True:\n    pass", "N"),
    "a walrus within": ("N_w = [(N := X)]", "N"),
    "with": (
        "import contextlib\nwith contextlib.nullcontext(X) as N:\n    pass",
        "N",
    ),
    "try": ("try:\n    N = X\nexcept ValueError:\n    N = 0", "N"),
    "finally": ("N = 0\ntry:\n    pass\nfinally:\n    N = X", "N"),
    "match": ("match X:\n    case N:\n        pass", "N"),
    "bound again": ("N = 0\nN = X", "N"),
    "deleted and bound again": ("N = 0\ndel N\nN = X", "N"),
    "global": ("N = 0\ndef N_f():\n    global N\n    N = X\nN_f()", "N"),
    "globals": ("globals()['N'] = X", "N"),
    "exec": ("exec(f'N = {X!r}')", "N"),
    "its own module": ("import sys\nsys.modules[__name__].N = X", "N"),
    "vars": ("import sys\nvars(sys.modules[__name__])['N'] = X", "N"),
    "a name of text": ("N = X", "globals()['N']"),
    "a function's attribute": ("def N():\n    return N.v\nN.v = X", "N()"),
    "a class's decorator": (
        "def N_d(c):\n    c.v = X\n    return c\n@N_d\nclass N:\n    v = 0",
        "N.v",
    ),
    "a method set later": (
        "class N_c:\n    pass\nN_c.m = lambda self: X\nN = N_c()",
        "N.m()",
    ),
    "a named tuple": (
        "import typing\nclass N(typing.NamedTuple):\n    v: int = X",
        "N().v",
    ),
    "a type made": ("N = type('N', (), {'v': X})", "N.v"),
    "a generator": ("def N_g():\n    yield X\nN = next(N_g())", "N"),
    "a reversed registry": (
        "def N_f():\n    return X\nN = {f.__name__: f for f in [N_f]}",
        "N['N_f']()",
    ),
    "a filter's effect": (
        "N = []\nN_m = list(filter(N.append, [X]))",
        "N[0]",
    ),
    "a default dictionary": (
        "import collections\nN = collections.defaultdict(lambda: X)",
        "N['k']",
    ),
    "a cached function": (
        "import functools\n@functools.cache\ndef N():\n    return X",
        "N()",
    ),
    "a subscript's effect": (
        "class N_c(dict):\n    def __missing__(self, k):\n        N.append(X)\n"
        "        return 0\nN = []\nN_v = N_c()['k']",
        "N[0]",
    ),
    "an operator's effect": (
        "class N_c:\n    def __add__(self, o):\n        N.append(X)\n"
        "        return self\nN = []\nN_v = N_c() + 1",
        "N[0]",
    ),
    "a loop's effect": (
        "class N_c:\n    def __iter__(self):\n        N.append(X)\n"
        "        return iter(())\nN = []\nN_v, = [*N_c(), 0]",
        "N[0]",
    ),
    "a text's effect": (
        "class N_c:\n    def __format__(self, s):\n        N.append(X)\n"
        "        return ''\nN = []\nN_v = f'{N_c()}'",
        "N[0]",
    ),
    "an attribute's effect": (
        "class N_c:\n    @property\n    def p(self):\n        N.append(X)\n"
        "N = []\nN_i = N_c()\nN_v = N_i.p",
        "N[0]",
    ),
    "a builtin's name in a comprehension": (
        "N = []\nN_v = [len(X) for len in (N.append,)]",
        "N[0]",
    ),
    "a builtin's name in a class": (
        "N = []\nclass N_c:\n    len = N.append\n    v = len(X)",
        "N[0]",
    ),
    "a method by another name": (
        "import itertools\nN = []\nN_f = N.append\n"
        "N_v = list(itertools.starmap(N_f, [(X,)]))",
        "N[0]",
    ),
    "a key by another name": (
        "N = []\nN_f = N.append\nN_v = sorted([X], key=N_f)",
        "N[0]",
    ),
    "a key with a default": (
        "N = []\nN_v = sorted([X], key=lambda i, len=N.append: len(i) or 0)",
        "N[0]",
    ),
    "a parameter of a builtin's name": (
        "N = []\nN_v = sorted([N.append], key=lambda len: len(X) or 0)",
        "N[0]",
    ),
    "a default's factory": (
        "import dataclasses\nN = []\n@dataclasses.dataclass\nclass N_c:\n"
        "    v: object = dataclasses.field(default_factory=lambda: N.append(X))\n"
        "N_i = N_c()",
        "N[0]",
    ),
    "an annotation": ("N = []\ndef N_f(x: N.append(X)):\n    pass", "N[0]"),
    "an annotated name": ("N = []\nN_v: N.append(X) = 0", "N[0]"),
    "a metaclass's property": (
        "N = []\nclass N_m(type):\n    @property\n    def p(cls):\n"
        "        N.append(X)\nclass N_c(metaclass=N_m):\n    pass\nN_v = N_c.p",
        "N[0]",
    ),
    "an enumeration's mixin": (
        "import enum\nN = []\nclass N_m:\n    def __init__(self, v):\n"
        "        N.append(v)\nclass N_e(N_m, enum.Enum):\n    A = X",
        "N[0]",
    ),
    "an enumeration's base": (
        "import enum\nN = []\nclass N_b(enum.Enum):\n    def __init__(self, v):\n"
        "        N.append(v)\nclass N_e(N_b):\n    A = X",
        "N[0]",
    ),
    "a metaclass by a library's name": (
        "N = []\nclass EnumMeta(type):\n    def __getattribute__(cls, x):\n"
        "        N.append(X)\nclass N_m(EnumMeta):\n    def __contains__(cls, x):\n"
        "        return True\nclass N_c(metaclass=N_m):\n    k = 1\nN_v = N_c.k",
        "N[0]",
    ),
    "checked by nobody": (
        "TYPE_CHECKING = 1\nif TYPE_CHECKING:\n    N = X",
        "N",
    ),
    "checked at run time": (
        "import types as t\nt.TYPE_CHECKING = 1\nif t.TYPE_CHECKING:\n    N = X",
        "N",
    ),
    "checked by a reader": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    N = 1\n"
        "else:\n    N = X",
        "N",
    ),
    "checked never": (
        "TYPE_CHECKING = False\nif not TYPE_CHECKING:\n    N = X",
        "N",
    ),
    "a metaclass taken apart": (
        "N = []\nclass N_m(type):\n    def __iter__(cls):\n        N.append(X)\n"
        "        return iter(())\nclass N_c(metaclass=N_m):\n    pass\nN_v = [*N_c]",
        "N[0]",
    ),
    "a metaclass that holds": (
        "N = []\nclass N_m(type):\n    def __contains__(cls, x):\n        N.append(X)\n"
        "class N_c(metaclass=N_m):\n    k = 1\nN_v = N_c.k\nN_w = 1 in N_c",
        "N[0]",
    ),
    "a metaclass that reads": (
        "N = []\nclass N_m(type):\n    def __getattribute__(cls, x):\n"
        "        N.append(X)\nclass N_c(metaclass=N_m):\n    k = 1\nN_v = N_c.k",
        "N[0]",
    ),
    "a metaclass in a class": (
        "N = []\nclass N_m(type):\n    def __set_name__(cls, o, n):\n"
        "        N.append(X)\nclass N_c(metaclass=N_m):\n    pass\n"
        "class N_d:\n    k = N_c",
        "N[0]",
    ),
    "a metaclass that makes": (
        "N = []\nclass N_m(type):\n    def __new__(m, *a):\n        N.append(X)\n"
        "        return super().__new__(m, *a)\nclass N_c(metaclass=N_m):\n    pass",
        "N[0]",
    ),
    "a class taken apart": (
        "N = []\nclass N_c:\n    def __class_getitem__(cls, k):\n"
        "        N.append(k)\nN_v = N_c[X]",
        "N[0]",
    ),
    "an enumeration's own value": (
        "import enum\nN = []\nclass N_c(enum.Enum):\n"
        "    def _generate_next_value_(*a):\n        N.append(X)\n        return 1\n"
        "    k = enum.auto()",
        "N[0]",
    ),
    "an enumeration's members": (
        "import enum\nN = []\nclass N_c(enum.Enum):\n    def __init__(self, v):\n"
        "        N.append(X)\n    k = 1",
        "N[0]",
    ),
    "a decorator that wraps": (
        "import functools\ndef N_d(f):\n    @functools.wraps(f)\n"
        "    def inner(*a):\n        return f(*a)\n    return inner\n@N_d\n"
        "def N():\n    return X",
        "N()",
    ),
    "a wrapper's default": (
        "N = []\ndef N_d(f):\n    def inner(v=N.append(X)):\n        return v\n"
        "    return inner\n@N_d\ndef N_f():\n    pass",
        "N[0]",
    ),
    "a decorator with an argument": (
        "def N_d(v):\n    def into(f):\n        def inner():\n            return v\n"
        "        return inner\n    return into\n@N_d(X)\ndef N():\n    return 0",
        "N()",
    ),
    "the first of a table": (
        "N_t = {'a': [X, 0]}\nN = max(N_t.values(), key=len)",
        "N[0]",
    ),
    "what a library keeps": (
        "import contextvars\nN = contextvars.ContextVar('N', default=X)",
        "N.get()",
    ),
    "a library's own": (
        "import math\nN_f = math.tau\nmath.tau = X",
        "__import__('math').tau",
    ),
    "a decorator that replaces": (
        "def N_d(f):\n    return lambda: X\n@N_d\ndef N():\n    return 0",
        "N()",
    ),
    "a mutable default": (
        "def N_f(v, into=[]):\n    into.append(v)\n    return into\nN = N_f(X)",
        "N[0]",
    ),
    "a quiet function": ("def N_f(v):\n    w = [v]\n    return w\nN = N_f(X)", "N[0]"),
    "a function that calls": (
        "N = []\ndef N_f(g):\n    return g(X)\nN_v = N_f(N.append)",
        "N[0]",
    ),
    "a function that fills": (
        "N = []\ndef N_f(g):\n    g.append(X)\n    return g\nN_v = N_f(N)",
        "N[0]",
    ),
    "a function that hands on": (
        "N = []\ndef N_f(g):\n    return sorted([X], key=g)\nN_v = N_f(N.append)",
        "N[0]",
    ),
    "a function that compares": (
        "N = []\nclass N_c:\n    def __bool__(self):\n        N.append(X)\n"
        "        return True\ndef N_f(g):\n    if g:\n        return 1\n"
        "N_v = N_f(N_c())",
        "N[0]",
    ),
    "a generator that fills": (
        "N = []\ndef N_f():\n    yield N.append(X)\nN_v = list(N_f())",
        "N[0]",
    ),
    "a file's own name": (
        "N_p = __file__.removesuffix('mine.py')\nN = [X, N_p][0]",
        "N",
    ),
    "a fallback of a variable": (
        "import os\ntry:\n    import nowhere\n    N = os.environ.get('N', 'no')\n"
        "except ImportError:\n    N = X",
        "N",
    ),
    "a fallback of a failure": (
        "try:\n    N_y = {1: 0}[X]\n    N = 1\nexcept KeyError:\n    N = 0",
        "N",
    ),
    "names asked for when called": (
        "N = X\ndef N_f():\n    return globals()",
        "N_f()['N']",
    ),
    "names set when called": (
        "N = 0\ndef N_f():\n    globals()['N'] = X\n    return N",
        "N_f()",
    ),
    "a frame's names": (
        "import sys\nN = X\ndef N_f():\n    return sys._getframe(1).f_globals",
        "N_f()['N']",
    ),
    "text run when called": ("N_v = X\ndef N():\n    return eval('N_v')", "N()"),
    "text run in a method": (
        "N_v = X\nclass N:\n    def m(self):\n        return eval('N_v')",
        "N().m()",
    ),
    "a library's seed": (
        "import random\nN_s = random.seed(X)",
        "random.random()",
    ),
    "a library's state": (
        "import numpy\nN_s = numpy.set_printoptions(precision=X)",
        "str(numpy.array([1.2345]))",
    ),
    "a variable of the process": (
        "import os\nN_s = os.environ.__setitem__('CURVFLOW_N', str(X))",
        "os.environ['CURVFLOW_N']",
    ),
    "filled by its place": (
        "import numpy\nN = numpy.zeros(1)\nN_o = numpy.add(0, X, N)",
        "float(N[0])",
    ),
    "filled at a place": (
        "import numpy\nN = numpy.zeros(1)\nN_o = numpy.add.at(N, [0], X)",
        "float(N[0])",
    ),
    "an object's operator": (
        "import acting\nN = acting.OBJECT + X",
        "acting.LIST[-1]",
    ),
    "an object's reflected operator": (
        "import acting\nN = X - acting.OBJECT",
        "acting.LIST[-1]",
    ),
    "an object's subscript": (
        "from acting import LIST, OBJECT\nN = OBJECT[X]",
        "LIST[-1]",
    ),
    "an object that holds": (
        "from acting import LIST, OBJECT\nN = X in OBJECT",
        "LIST[-1]",
    ),
    "an object's operator by a function": (
        "from acting import LIST, OBJECT\ndef N_f(g):\n    return g + X\n"
        "N = N_f(OBJECT)",
        "LIST[-1]",
    ),
    "a model's field": (
        "import pydantic\nclass N(pydantic.BaseModel):\n    v: int = X",
        "N().v",
    ),
    "another module's name": ("import other\nother.v = X", "other.v"),
    "another module's table": (
        "import other\nother.table['N'] = X",
        "other.table['N']",
    ),
    "another module's register": (
        "import other\nother.add('N', X)",
        "other.table['N']",
    ),
}
NEW = re.compile(r"\bN(?=\b|_)")
# How `mine` comes to V, a name of `far`; `near` stands between.
IMPORTS = {
    "its own": ("V = @", "V", {}),
    "by name": ("from far import V", "V", {}),
    "by module": ("import far", "far.V", {}),
    "by another name": ("import far as f", "f.V", {}),
    "by star": ("from far import *", "V", {}),
    "by the later star": (
        "from early import *\nfrom far import *",
        "V",
        {"early.py": "V = 0\n"},
    ),
    "a star over a name": ("V = 0\nfrom far import *", "V", {}),
    "re-exported": ("from near import V", "V", {"near.py": "from far import V\n"}),
    "re-exported by star": (
        "from near import V",
        "V",
        {"near.py": "from far import *\n"},
    ),
    "a star of a star": ("from near import *", "V", {"near.py": "from far import *\n"}),
    "a star of a package": (
        "from pkg import *",
        "inner.V",
        {
            "pkg/__init__.py": "from . import inner\n",
            "pkg/inner.py": "from far import V\n",
        },
    ),
    "subclasses elsewhere": (
        "import near, through",
        "through.get().v",
        {
            "through.py": "class B:\n    pass\ndef get(): "
            "return B.__subclasses__()[0]\n",
            "near.py": "from through import B\nfrom far import V\n"
            "class P(B):\n    v = V\n",
        },
    ),
    "from the caller's names": (
        "from through import look\nfrom far import V as N_v\nN_w = N_v",
        "look('N_w')",
        {
            "through.py": "import sys\ndef look(name): "
            "return sys._getframe(1).f_globals[name]\n"
        },
    ),
    "from a function's module": (
        "from through import look\nfrom far import V as N_v\nN_w = N_v",
        "look(start)",
        {
            "through.py": "import sys\ndef look(f): "
            "return sys.modules[f.__module__].N_w\n"
        },
    ),
    "by import_module in pieces": (
        "import importlib\nm = importlib.import_module('f' + 'ar')",
        "m.V",
        {},
    ),
    "by __import__ and names": ("m = __import__('far', fromlist=['V'])", "m.V", {}),
    "a module that may fail": (
        "try:\n    import near\n    N_v = 1\nexcept KeyError:\n    N_v = 0",
        "N_v",
        {"near.py": "from far import V\nN_x = {1: 0}[V]\n"},
    ),
    "an object that a loop has put": (
        "from through import N_l, N_t\nfrom far import V\nN_x = N_t[0] + V",
        "N_l[0]",
        {
            "through.py": "from acting import Acting, LIST as N_l\nN_t = []\n"
            "for i in (1,):\n    N_t.append(Acting())\n"
        },
    ),
    "by a loader of objects": (
        "import pkgutil\nN_v = pkgutil.resolve_name('far:V')",
        "N_v",
        {},
    ),
    "in a table": ("import far\nB = {'a': far}", "B['a'].V", {}),
    "by choice": ("import far\nimport other\nb = far if other else 0", "b.V", {}),
    "as an argument": ("import far\ndef of(m):\n    return m.V", "of(far)", {}),
    "by getattr": ("import far", "getattr(far, 'V')", {}),
    "by a computed getattr": ("import far", "getattr(far, chr(86))", {}),
    "by vars": ("import far", "vars(far)['V']", {}),
    "by import_module": (
        "import importlib\nm = importlib.import_module('far')",
        "m.V",
        {},
    ),
    "by __import__": ("m = __import__('far')", "m.V", {}),
    "by a name of a table": (
        "import importlib\nimport far\nN_w = far\nN_t = {'a': 'far'}\n"
        "def N_load(k): return importlib.import_module(N_t[k])",
        "N_load('a').V",
        {},
    ),
    "by a name that is given": (
        "import importlib\nfrom far import W\nN_w = W\n"
        "def N_load(n): return importlib.import_module(n)",
        "N_load('far').V",
        {"far.py": "V = 1\nW = 0\n"},
    ),
    "by a name that __import__ is given": (
        "from far import W\nN_w = W\ndef N_load(n): return __import__(n)",
        "N_load('f' + 'ar').V",
        {"far.py": "V = 1\nW = 0\n"},
    ),
    "by a name, in another module": (
        "import near\nfrom far import W\nN_w = W",
        "near.load('far').V",
        {
            "far.py": "V = 1\nW = 0\n",
            "near.py": "import importlib\n"
            "def load(n): return importlib.import_module(n)\n",
        },
    ),
    "by what loads, handed on": (
        "import importlib\nfrom far import W\nN_w = W\n"
        "def N_load(n): return list(map(importlib.import_module, [n]))[0]",
        "N_load('far').V",
        {"far.py": "V = 1\nW = 0\n"},
    ),
    "by what loads, by another name": (
        "from importlib import import_module as N_i\nfrom far import W\nN_w = W\n"
        "N_load = N_i",
        "N_load('far').V",
        {"far.py": "V = 1\nW = 0\n"},
    ),
    "of one that a name leads to": (
        "import importlib\nfrom far import W\nN_w = W\n"
        "def N_load(n): return importlib.import_module(n)",
        "N_load('near').get()",
        {
            "far.py": "V = 1\nW = 0\n",
            "near.py": "import far\ndef get(): return far.V\n",
        },
    ),
    "of one that a name leads to, in a function": (
        "import importlib\nfrom far import W\nN_w = W\n"
        "def N_load(n): return importlib.import_module(n)",
        "N_load('near').get()",
        {
            "far.py": "V = 1\nW = 0\n",
            "near.py": "def get():\n    from far import V\n    return V\n",
        },
    ),
    "of one whose name another gives": (
        "import importlib\nfrom far import W\nN_w = W\n"
        "def N_load(n): return importlib.import_module(n)",
        "N_load('near').far.V",
        {
            "far.py": "V = 1\nW = 0\n",
            "near.py": "import importlib\nfar = importlib.import_module('fa' + 'r')\n",
        },
    ),
    "by a name on import, left in a library": (
        "import string\nimport through\nfrom far import W\nN_w = W\n",
        "string.curvflow_far.V",
        {
            "far.py": "V = 1\nW = 0\n",
            "through.py": "import importlib\nimport string\n"
            "string.curvflow_far = importlib.import_module(''.join(['f', 'ar']))\n",
        },
    ),
    "by a name that is taken from a package": (
        "import importlib\nimport pkg\nfrom pkg.inner import W\nN_w = W\n"
        "def N_load(n): return importlib.import_module('.' + n, 'pkg')",
        "N_load('inner').V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\nW = 0\n"},
    ),
    "one that fails": (
        "import importlib\nfrom other import table as N_w\ndef N_load(n):\n    try:\n"
        "        return importlib.import_module(n).A\n"
        "    except KeyError:\n        return 0",
        "N_load('near')",
        {"near.py": "from far import V\nA = {2: 5}[V]\n"},
    ),
    "one that fails in Python's own words": (
        "from far import W\nN_w = W\ndef N_load(n):\n    try:\n"
        "        return __import__(n).A\n    except KeyError:\n        return 0",
        "N_load('far')",
        {"far.py": "W = 0\nV = 1\nA = {2: 5}[V] if W else V\n"},
    ),
    "what a loaded one does to another": (
        "import importlib\nimport other\nfrom near import W\nN_w = W\n"
        "def N_load(n):\n    importlib.import_module(n)\n    return other.table",
        "N_load('acting_near')['V']",
        {
            "near.py": "W = 0\n",
            "acting_near.py": "import other\nfrom far import V\nother.add('V', V)\n",
        },
    ),
    "from sys.modules": ("import sys\nimport far", "sys.modules['far'].V", {}),
    "in a function": ("def got():\n    import far\n    return far.V", "got()", {}),
    "a fallback": (
        "try:\n    from nowhere import V\nexcept ImportError:\n    from far import V",
        "V",
        {},
    ),
    "what another module does": (
        "import other\nimport near",
        "other.table['V']",
        {"near.py": "import other\nimport far\nother.table['V'] = far.V\n"},
    ),
    "what a registered one does": (
        "import other\nimport near",
        "other.table['V']()",
        {
            "near.py": "import other\nfrom far import V\n@other.register('V')\n"
            "def f():\n    return V\n"
        },
    ),
    "a module's __getattr__": (
        "import near",
        "near.anything",
        {"near.py": "from far import V\ndef __getattr__(name):\n    return V\n"},
    ),
    "in a package": (
        "from pkg import inner",
        "inner.V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\n"},
    ),
    "by way of relatives": (
        "from pkg import V",
        "V",
        {
            "pkg/__init__.py": "from .inner import V\n",
            "pkg/inner.py": "from .deep import V\n",
            "pkg/deep.py": "from far import V\n",
        },
    ),
    "a package as a value": (
        "import pkg.inner\nB = [pkg]",
        "B[0].inner.V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\n"},
    ),
    "all of a package": (
        "import importlib\nimport pkgutil\nimport pkg\nM = [importlib.import_module"
        "(f'pkg.{i.name}') for i in pkgutil.iter_modules(pkg.__path__)]",
        "M[0].V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\n"},
    ),
    "one of a package": (
        "import importlib\ndef N_load(n): return importlib.import_module('pkg.' + n)",
        "N_load('inner').V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\n"},
    ),
    "one that a package loads": (
        "import pkg",
        "pkg.load('inner').V",
        {
            "pkg/__init__.py": "from importlib import import_module\n"
            "def load(n): return import_module(f'{__name__}.{n}')\n",
            "pkg/inner.py": "from far import V\n",
        },
    ),
    "one of a package, by a format": (
        "import importlib\nimport pkg.inner as i\nN_w = i.W\n"
        "def N_load(n): return importlib.import_module('pkg.%s' % n)",
        "N_load('inner').V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\nW = 0\n"},
    ),
    "one of a package, by a method": (
        "import importlib\nimport pkg.inner as i\nN_w = i.W\n"
        "def N_load(n): return importlib.import_module('pkg.{}'.format(n))",
        "N_load('inner').V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\nW = 0\n"},
    ),
    "one of a package, by another method": (
        "import importlib\nimport pkg.inner as i\nN_w = i.W\n"
        "def N_load(n): return importlib.import_module('no.pkg'.removeprefix(n))",
        "N_load('no.').inner.V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\nW = 0\n"},
    ),
    "one of its package": (
        "import pkg",
        "pkg.loads.load('inner').V",
        {
            "pkg/__init__.py": "from . import loads\n",
            "pkg/loads.py": "from importlib import import_module\n"
            "def load(n): return import_module(__package__ + '.' + n)\n",
            "pkg/inner.py": "from far import V\nW = 0\n",
        },
    ),
    "one of a package whose name another hides": (
        "import importlib\nimport pkg.inner as i\nN_w = i.W\n"
        "def N_load(__name__): return importlib.import_module(f'{__name__}.inner')",
        "N_load('pkg').V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\nW = 0\n"},
    ),
    "one that is relative to a package": (
        "import importlib\nimport pkg.inner as i\nN_w = i.W\n"
        "def N_load(n): return importlib.import_module('.' + n, package='pkg')",
        "N_load('inner').V",
        {"pkg/__init__.py": "", "pkg/inner.py": "from far import V\nW = 0\n"},
    ),
    "one that is relative to the package above": (
        "import importlib\nimport pkg.inner as i\nN_w = i.W\n"
        "def N_load(n): return importlib.import_module('..' + n, 'pkg.deep')",
        "N_load('inner').V",
        {
            "pkg/__init__.py": "",
            "pkg/inner.py": "from far import V\nW = 0\n",
            "pkg/deep.py": "",
        },
    ),
    "one of a package with another name": (
        "import pkg",
        "pkg.load('far').V",
        {
            "pkg/__init__.py": "from importlib import import_module\nimport far\n"
            "__name__ = 'x'\n"
            "def load(n): return import_module(f'{__name__}.{n}'[2:])\n",
        },
    ),
    "an enumeration's base elsewhere": (
        "from through import Base\nfrom far import V as W\nN_t = []\n"
        "class N_e(Base):\n    A = (N_t, W)",
        "N_t[0]",
        {
            "through.py": "import enum\nclass Base(enum.Enum):\n"
            "    def __init__(self, t, v):\n        t.append(v)\n"
        },
    ),
    "a loop that calls a name": (
        "from far import V as W\nN_t = {}\nfor N_i in (1,):\n    N_t[N_i] = W",
        "N_t[1]",
        {},
    ),
    "a name that exec uses": (
        "from far import V as W\nexec('N_t = W')",
        "N_t",
        {},
    ),
    "a function that exec uses": (
        "from through import g\nexec('N_t = g()')",
        "N_t",
        {"through.py": "import far\ndef g(): return h()\ndef h(): return far.V\n"},
    ),
    "a class that exec uses": (
        "from through import G\nexec('N_t = G().h()')",
        "N_t",
        {
            "through.py": "import far\nclass F:\n    def h(self): return far.V\n"
            "class G(F):\n    pass\n"
        },
    ),
    "a module that exec uses": (
        "import through\nexec('N_t = through.g()')",
        "N_t",
        {"through.py": "import far\ndef g(): return far.V\n"},
    ),
    "a package that registers": (
        "import other\nimport pkg.inner",
        "other.table['V']",
        {
            "pkg/__init__.py": "import other\nimport far\nother.add('V', far.V)\n",
            "pkg/inner.py": "",
        },
    ),
    "a namespace": (
        "import types\nimport far\nN_s = types.SimpleNamespace(m=far)",
        "N_s.m.V",
        {},
    ),
    "a module's dictionary": ("import far", "far.__dict__['V']", {}),
    "from its loader": (
        "import importlib.util\nimport far\n"
        "m = importlib.util.find_spec('far').loader.load_module('far')",
        "m.V",
        {},
    ),
    "what __all__ leaves": (
        "V = 0\nfrom near import *",
        "V",
        {"near.py": "from far import V\n__all__ = ['V']\n"},
    ),
}
OTHER = """
v = 0
table = {}


def add(name, value):
    table[name] = value


def register(name):
    def into(function):
        table[name] = function
        return function

    return into
"""
ACTING = """
LIST = []


class Acting:
    def __add__(self, other):
        LIST.append(other)

    __rsub__ = __getitem__ = __contains__ = __add__


OBJECT = Acting()
"""
# Edits of `far`, or of `mine`, that change nothing for `start`.
IDLE = {
    "a comment": "# nothing\n",
    "a function": "def unused(x):\n    return x\n",
    "a constant": "UNUSED = 5\n",
}


@dataclass(frozen=True)
class Case:
    """Modules before and after an edit.

    Attributes:
        forms: the names of what the number goes through.
        before: file to text.
        after: the same, edited.
    """

    forms: tuple[str, ...]
    before: dict[str, str]
    after: dict[str, str]


def draw(random_: random.Random) -> Case:
    """Draw modules, and an edit of the number or of something idle."""
    name = random_.choice(sorted(IMPORTS))
    text, value, files = IMPORTS[name]
    used = [name]
    lines = [text.replace("@", "1")]
    for number in range(random_.randint(1, 3)):
        form = random_.choice(sorted(FORMS))
        statement, then = FORMS[form]
        fresh = f"name{number}"
        lines.append(NEW.sub(fresh, statement).replace("X", value))
        value = NEW.sub(fresh, then)
        used.append(form)
    lines.append(f"def start():\n    return {value}\n")
    before = {"far.py": "V = 1\n", "other.py": OTHER, "acting.py": ACTING, **files}
    before["mine.py"] = "\n".join(lines)
    home = "mine.py" if name == "its own" else "far.py"
    if random_.random() < 0.25:
        idle = random_.choice(sorted(IDLE))
        edited = before[home] + IDLE[idle]
        used.append(f"edit: {idle}")
    else:
        edited = before[home].replace("V = 1", "V = 2", 1)
        used.append("edit: the number")
    return Case(tuple(used), before, before | {home: edited})


@contextmanager
def written(files: dict[str, str]) -> Iterator[Path]:
    """Write modules into a folder that Python imports from, until the block ends."""
    with tempfile.TemporaryDirectory() as name:
        for file, text in files.items():
            Path(name, file).parent.mkdir(exist_ok=True)
            Path(name, file).write_text(text)
        sys.path.insert(0, name)
        try:
            yield Path(name)
        finally:
            sys.path.remove(name)
            for file in files:
                module = file.removesuffix(".py").removesuffix("/__init__")
                sys.modules.pop(module.replace("/", "."), None)


@dataclass(frozen=True)
class Run:
    """What a run of `start()` tells.

    Attributes:
        result: what it returns; an error as its text.
        loads: modules by computed names, as `Loads.whole`.
        files: that count beside the fingerprint of `loads`, relative to the folder.
        others: that count beside the fingerprint of the text alone.
    """

    result: str
    loads: tuple[str, ...] | None = None
    files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def run(files: dict[str, str], look: Callable[[Path], Run]) -> Run:
    """Return what a run of `start()` tells.

    A process of its own runs it, whose signals, folders and libraries it may change.
    """
    with written(files) as folder:
        reader, writer = os.pipe()
        if not (child := os.fork()):
            _answer(writer, folder, look)
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            told = answer.read()
        os.waitpid(child, 0)
    no_answer = Run("Error: it ended without an answer")
    return pickle.loads(told) if told else no_answer


def _answer(writer: int, folder: Path, look: Callable[[Path], Run]) -> NoReturn:
    try:
        atexit._clear()  # what ends with the process that was forked is not the case's
        try:
            told = look(folder)
        except Exception as error:
            told = Run(f"{type(error).__name__}: {error}")
        os.write(writer, pickle.dumps(told))
    finally:
        os._exit(0)


def _alone(_: Path) -> Run:
    """Run `start()` unseen."""
    return Run(repr(importlib.import_module("mine").start()))


def _looked_at(folder: Path) -> Run:
    """Run `start()`, looked at as nodes are."""
    vars(windows)["is_script"] = lambda: False  # as in a command
    fingerprints._known.clear()
    codes, start = Fingerprints(folder), node(own_kind("mine", "mine:start"))
    modules = codes.modules(start)
    drift._import("mine")
    if "mine" not in sys.modules:
        importlib.import_module("mine")  # for its error
    with windows.calling(modules) as window:
        assert window is not None
        result = repr(sys.modules["mine"].start())
        observed = window.observed().with_others(codes.files())
    loads = observed.loads and codes.loads_of(start, observed.loads)
    others = counted(observed, modules, folder)
    if loads is None:
        return Run(result, None, others, others)
    modules = (*codes.modules(start, loads.whole), *loads.passed)
    return Run(result, loads.whole, counted(observed, modules, folder), others)


def counted(
    observed: Observed, modules: Sequence[str], folder: Path
) -> tuple[str, ...]:
    """Return the files that count beside modules that a fingerprint follows."""
    apart = source_files(modules)
    read = [Path(name) for name in windows.files(observed.sights) if name not in apart]
    within = [path for path in read if path.is_relative_to(folder)]
    return tuple(str(path.relative_to(folder)) for path in within)


def fingerprint(files: dict[str, str], loads: tuple[str, ...] | None = None) -> str:
    """Return the fingerprint of `start`; nothing is imported."""
    with written(files) as folder:
        fingerprints._known.clear()
        code = Fingerprints(folder).of(node(own_kind("mine", "mine:start")), loads)
        return code.fingerprint


def judged(case: Case) -> str:
    """Return the outcome of a case: noticed, silent, alarm, spared, quiet or broken."""
    # What was recorded before the edit judges it; after it, the result alone counts.
    before, after = run(case.before, _looked_at), run(case.after, _alone)
    edited = {name for name in case.after if case.before.get(name) != case.after[name]}
    told = noticed(case, None)
    by_text = told or bool(edited & {*before.others})
    if before.loads is not None:  # else the record adds nothing to the text
        told = noticed(case, before.loads)
    by_record = told or bool(edited & {*before.files})
    if "Error" in before.result + after.result:
        return "broken"
    if before.result != after.result:
        return "noticed" if by_text and by_record else "silent"
    return "alarm" if by_record else "spared" if by_text else "quiet"


def noticed(case: Case, loads: tuple[str, ...] | None) -> bool:
    """Return whether the fingerprint says that something was edited."""
    return fingerprint(case.before, loads) != fingerprint(case.after, loads)


def main(cases: int = 500, seed: int = 0) -> int:
    """Judge cases, print the silent ones; return their number."""
    random_, counts = random.Random(seed), Counter[str]()
    for _ in range(cases):
        case = draw(random_)
        outcome = judged(case)
        counts[outcome] += 1
        if outcome == "silent":
            sys.stdout.write(f"{' > '.join(case.forms)}\n{case.before['mine.py']}\n")
    told = ", ".join(f"{n} {word}" for word, n in counts.most_common())
    sys.stdout.write(f"seed {seed}: {told}\n")
    return counts["silent"]


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:3]))))
