"""Second moments of the rows of gradients, and of the gradients themselves.

Letters of shapes: see `uses` and `layers`; K for O or I.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from curvflow.tasks.numerics.derivatives.passes import Part
from curvflow.tasks.numerics.kronecker.layers import (
    Approximation,
    Pass,
    Piece,
    Sides,
    joined_draws,
)
from curvflow.tasks.numerics.kronecker.uses import FEW

# Numbers that gradients of samples may hold at once.
MOST_NUMBERS = 1 << 21

# Columns and rows of X from which the lower triangle of X'X is computed alone, and in
# how many stripes. Of fewer rows to fill the upper one takes longer than to compute it.
MANY_COLUMNS, MANY_ROWS, STRIPES = 256, 192, 4

# Numbers of the rows of one model that are turned at once.
MOST_ROWS = 1 << 18

# Numbers of the matrices of samples that are held at once.
MOST_AT_ONCE = 1 << 20

# What gives the sum of the squared norms of each sample's own matrices, (M,).
Squares = Callable[[], Tensor]


class Spread(NamedTuple):
    """Relative standard errors of two factors, (M,) each.

    Attributes:
        left: of the left factor, of the samples.
        right: of the right factor, of the samples.
        labels: of the draws alone, of the factor of what comes back; NaN of one, and
            where nothing is drawn.
    """

    left: Tensor
    right: Tensor
    labels: Tensor


@dataclass
class _Sums:
    """Sums over samples of one side, a tensor of each span of models.

    Attributes:
        moments: of the second moments, (M, G, K, K).
        squares: of the squared norms of each sample's own, by what gives those of a
            first pass, for they may never be needed; of several they are added up.
        stripes: in how many the lower triangles of the moments are added up.
        twin: sums of the same rows in all passes, of which these are copies.
    """

    moments: list[Tensor] = field(default_factory=list)
    squares: list[Squares] = field(default_factory=list)
    stripes: int = 1
    twin: _Sums | None = None


# Sums that shared rows of a pass were added to, and the squares of these.
Added = dict[int, tuple[_Sums, Squares]]


@dataclass
class Moments:
    """Second moments of the rows of one block.

    Attributes:
        piece: the block.
        kfac_approx: whether each position counts by itself, or a sample's sum.
        count: samples of all passes, N.
        knows_returned: I stands for the moments of what comes back.
        has_spread: errors of the moments will be requested.
        has_draws: and those of label draws, where there are several.
        is_joined: draws are laid side by side, and sums are divided once all is added
            up. It is slower, and has the bits that training has had.
    """

    piece: Piece
    kfac_approx: Approximation
    count: int
    knows_returned: bool = False
    has_spread: bool = True
    has_draws: bool = True
    is_joined: bool = False
    _left: _Sums = field(default_factory=_Sums)
    _right: _Sums = field(default_factory=_Sums)
    _draws: list[Tensor] = field(default_factory=list)
    _positions: int = 1
    _num_draws: int = 1
    _is_left: bool = True

    def add(self, pass_: Pass, added: Added | None = None) -> None:
        """Add the samples of a pass.

        Args:
            pass_: with what comes back through each use.
            added: sums of others of the same form, by the rows that layers share.
        """
        self._num_draws = pass_.num_draws
        left, right = self._rows(pass_)
        for is_left, rows, into in (
            (True, left, self._left),
            (False, right, self._right),
        ):
            comes_back = is_left == self._is_left
            if self.has_spread and comes_back and self._tells_draws:
                add_to(self._draws, pass_.part, _draw_squares(rows[0]))
            if self.has_spread and comes_back and self.knows_returned:
                scale = pass_.samples * (1 if is_left else self._positions)
                moment = scale * _identity_like(rows[0])
                norms = moment.square().flatten(1).sum(1) / pass_.samples
                squares: Squares = partial(_given, norms)
                add_to(
                    into.moments, pass_.part, moment / self._divisor(is_left=is_left)
                )
            else:
                divisor = self._divisor(is_left=is_left)
                squares = self._add_once(rows, into, pass_, divisor, added)
            if self.has_spread:
                _add_squares(into.squares, pass_.part, squares)

    def _divisor(self, *, is_left: bool) -> int:
        """Return what products are divided by as they are added."""
        if self.is_joined:
            return 1
        return self.count if is_left else self.count * self._positions

    def _rows(self, pass_: Pass) -> tuple[list[Tensor], list[Tensor]]:
        """Return the left and the right rows of a pass, draws apart where that does."""
        if not (self.is_joined or self._tells_draws) and self.kfac_approx == "expand":
            apart = self.piece.draws_apart(pass_)
            if apart is not None:
                self._is_left, left, right = apart
                self._positions = left[0].shape[4]
                return left, right
        sides = self._counted(pass_)
        self._positions = sum(each.left.shape[4] for each in sides)
        if len(sides) == 1:
            return [sides[0].left], [sides[0].right]
        left, right = (
            [_joined(rows)]
            for rows in zip(*((s.left, s.right) for s in sides), strict=True)
        )
        return left, right

    def _add_once(
        self,
        rows: Sequence[Tensor],
        sums: _Sums,
        pass_: Pass,
        divisor: int,
        added: Added | None,
    ) -> Squares:
        """Add r r' of rows to the sums, or copy those of another with the same rows."""
        first, *more = rows
        if added is None or more or pass_.shared is None or first not in pass_.shared:
            return self._add_moment(rows, sums, pass_.part, divisor)
        twin, squares = added.get(id(first), (None, None))
        is_first = pass_.part.rows.start == 0
        # Before this pass they had the same rows as well, or none.
        if twin is None or squares is None or not (is_first or sums.twin is twin):
            sums.twin = None
            squares = self._add_moment(rows, sums, pass_.part, divisor)
            added[id(first)] = sums, squares
            return squares
        sums.twin, sums.stripes = twin, twin.stripes
        if is_first:
            sums.moments.append(twin.moments[-1].clone())
        else:
            sums.moments[-1].copy_(twin.moments[-1])
        return squares

    def _add_moment(
        self, rows: Sequence[Tensor], sums: _Sums, part: Part, divisor: int
    ) -> Squares:
        """Add r r' of rows to the sums, and return the squares of each sample's own."""
        is_first = part.rows.start == 0
        if is_first:
            models, samples, _, groups, positions, size = rows[0].shape
            draws = sum(each.shape[2] for each in rows)
            sums.stripes = num_stripes(samples * draws * positions, size)
            sums.moments.append(rows[0].new_empty(models, groups, size, size))
        into, how = sums.moments[-1], (is_first, sums.stripes)
        shared = _of_one(rows) if is_first and sums.stripes > 1 else None
        target = into if shared is None else into[:1]
        squares = add_moment(
            shared or rows, target, *how, divisor=divisor, has_squares=self.has_spread
        )
        if shared is None:
            return squares
        into[1:] = target
        return lambda: squares().expand(len(into))

    def _counted(self, pass_: Pass) -> list[Sides]:
        """Return the rows as they count: of each position, or of a sample's sum."""
        uses, sides = zip(*self.piece.sides(pass_), strict=True)
        self._is_left = uses[0].form.is_left
        if self.kfac_approx == "expand":
            return list(sides)
        count = sum(each.left.shape[4] for each in sides)
        left, right = (
            torch.stack([rows.sum(4, keepdim=True) for rows in several]).sum(0)
            for several in zip(*((s.left, s.right) for s in sides), strict=True)
        )
        if self._is_left:
            return [Sides(left, right / count)]
        return [Sides(left / count, right)]

    def matrices(self) -> tuple[Tensor, Tensor]:
        """Return both factors, (M, G, O, O) and (M, G, I, I), of all samples.

        Sums are overwritten and handed over, so that they begin anew: memory that has
        not been touched costs as much as the division.
        """
        sides = self._left, self._right
        assert all(side.moments for side in sides), "no samples since the last factors"
        left, right = (_whole(side) for side in sides)
        if self.is_joined:
            left.div_(self.count)
            right.div_(self.count * self._positions)
        return left, right

    @property
    def _tells_draws(self) -> bool:
        return self.has_draws and self._num_draws > 1

    @property
    def squares(self) -> list[Tensor]:
        """Sums of the squared norms of each sample's own matrices, of both sides."""
        left, right = (
            spanned([squares() for squares in side.squares])
            for side in (self._left, self._right)
        )
        return [left, right if self._positions == 1 else right / self._positions**2]

    def label_errors(self, norms: Sequence[Tensor]) -> Tensor | None:
        """Return the relative standard error that draws cause; None of one draw.

        Args:
            norms: of both factors, (M,) each.
        """
        if not self._tells_draws:
            return None
        side, draws = (0 if self._is_left else 1), self._num_draws
        each = spanned(self._draws)
        if not self._is_left:
            each = each / self._positions**2
        within = (draws * each - self.squares[side]) / (draws - 1)
        return within.clamp(min=0).sqrt() / self.count / norms[side]


class Spreads(Mapping[str, Spread]):
    """Relative standard errors of factors, by their names, found when first read."""

    def __init__(
        self, several: Sequence[Moments], made: Sequence[tuple[Tensor, Tensor]]
    ) -> None:
        """Take second moments, and both factors that were made of each."""
        self._several, self._made = several, made

    def __getitem__(self, name: str) -> Spread:
        """Return the errors of a block."""
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of blocks."""
        return iter(self._found)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._several)

    def __repr__(self) -> str:
        """Return the errors by the names of blocks."""
        return repr(self._found)

    @cached_property
    def _found(self) -> dict[str, Spread]:
        if not self._several:
            return {}
        norms = [[_norm(factor) for factor in both] for both in self._made]
        whole = _relative(
            torch.stack([side for each in self._several for side in each.squares]),
            torch.stack([norm for both in norms for norm in both]),
            self._several[0].count,
        )
        nothing = torch.full_like(whole[0], torch.nan)
        spreads, errors = {}, iter(whole.unbind(0))
        for each, both in zip(self._several, norms, strict=True):
            of_labels = each.label_errors(both)
            labels = nothing if of_labels is None else of_labels
            spreads[each.piece.name] = Spread(next(errors), next(errors), labels)
        return spreads


def _given(squares: Tensor) -> Tensor:
    return squares


def _add_squares(sums: list[Squares], part: Part, squares: Squares) -> None:
    """Add what a pass gives to that of its span of models, so that one is kept."""
    if part.rows.start == 0:
        sums.append(squares)
    else:
        sums[-1] = partial(_given, sums[-1]() + squares())


def _whole(sums: _Sums) -> Tensor:
    """Return sums of all models with both triangles, which begin anew."""
    moments = spanned(sums.moments)
    sums.moments.clear()
    _mirror(moments, sums.stripes)
    return moments


def _norm(matrices: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(matrices.flatten(1), dim=1)
    return norms


def _relative(squares: Tensor, norms: Tensor, samples: int) -> Tensor:
    """Return the relative standard errors of means of matrices, by their norms."""
    if samples < 2:
        return torch.full_like(norms, torch.nan)
    spread = (squares / samples - norms.square()).clamp(min=0)
    relative: Tensor = (spread / (samples - 1)).sqrt() / norms
    return relative


def spanned(spans: Sequence[Tensor]) -> Tensor:
    """Return what was added to spans of models, of all models."""
    return spans[0] if len(spans) == 1 else torch.cat(list(spans))


def add_to(sums: list[Tensor], part: Part, added: Tensor) -> None:
    """Add what a pass adds to the sums of its span of models; spans come in order."""
    if part.rows.start == 0:
        sums.append(added)
    else:
        sums[-1] = sums[-1] + added


def _joined(rows: Sequence[Tensor]) -> Tensor:
    """Join positions of several uses; of fewer draws than others, each counts less."""
    most = max(row.shape[2] for row in rows)
    each = [
        row
        if row.shape[2] == most
        else row.expand(-1, -1, most, -1, -1, -1) / most**0.5
        for row in rows
    ]
    return each[0] if len(each) == 1 else torch.cat(each, dim=4)


def add_moment(
    rows: Sequence[Tensor],
    into: Tensor,
    is_first: bool,
    number: int,
    *,
    divisor: int = 1,
    has_squares: bool = True,
) -> Squares:
    """Add the sum of r r' over samples, draws and positions to a matrix.

    Args:
        rows: r, (M, N, R, G, T, K), of some draws each, of the same samples.
        into: sums (M, G, K, K), whose lower stripes are written to.
        is_first: whether nothing has been added yet.
        number: of stripes.
        divisor: what is added is divided by it.
        has_squares: whether norms are wanted.

    Returns:
        What gives the sum of the squared norms of each sample's own, or zeros; not
        divided.
    """
    models, samples, _, groups, positions, size = rows[0].shape
    draws = sum(each.shape[2] for each in rows)
    if models > 1 and draws * rows[0][:, :, :1].numel() > MOST_AT_ONCE:
        # Of one model rows are multiplied where they lie, of several they are copied.
        how: dict[str, Any] = {"divisor": divisor, "has_squares": has_squares}
        by_model = zip(*(torch.split(each, 1) for each in rows), strict=True)
        several = [
            add_moment(row, part, is_first, number, **how)
            for row, part in zip(by_model, torch.split(into, 1), strict=True)
        ]
        return lambda: torch.cat([squares() for squares in several])
    count, scale = draws * positions, 1 / divisor
    if FEW * count <= size or models * groups > 1:
        rows = [joined_draws(rows)]
    flats = [each.permute(0, 3, 1, 2, 4, 5).flatten(3, 4) for each in rows]
    if FEW * count <= size:
        (flat,) = flats  # M, G, N, RT, K
        # Before the moment, which leaves no rows in the cache.
        norms = _inner_squares(flat) if has_squares else None
        _add_gram(flat, into, is_first, number, scale)
        return norms or partial(flat.new_zeros, models)
    squares = rows[0].new_zeros(models)
    into_squares = squares if has_squares else None
    each_how: dict[str, Any] = {"number": number, "scale": scale}
    if samples * size * -(-size // number) <= MOST_AT_ONCE:
        _add_each(flats, into, squares=into_squares, is_first=is_first, **each_how)
        return partial(_given, squares)
    _add_in_turns(flats, into, squares=into_squares, is_first=is_first, **each_how)
    return partial(_given, squares)


def _of_one(rows: Sequence[Tensor]) -> list[Tensor] | None:
    """Return the rows of one model, where all have the same, as inputs of a batch.

    Stripes of rows that meet in one product are multiplied model by model, so that one
    has the bits of each. None where models differ, or where few columns do not meet.
    """
    size, positions = rows[0].shape[5], rows[0].shape[4]
    count = positions * sum(each.shape[2] for each in rows)
    is_alike = all(len(each) > 1 and each.stride(0) == 0 for each in rows)
    if not is_alike or FEW * count > size:
        return None
    return [each[:1] for each in rows]


def _inner_squares(flat: Tensor) -> Squares:
    """Return what gives the squared norms of r r' of samples (M, G, N, n, K), (M,).

    Of what they are made of a number a sample is kept at most, and never the rows.
    """
    if flat.shape[3] == 1:  # its length does, in a fraction of the time
        lengths = torch.linalg.vector_norm(flat, dim=-1)
        return lambda: _squares(lengths.square())
    return partial(_given, _squares(flat @ flat.mT))


def _add_in_turns(
    flats: Sequence[Tensor],
    into: Tensor,
    *,
    squares: Tensor | None,
    is_first: bool,
    number: int,
    scale: float,
) -> None:
    """Add as `_add_each`, model after model, and few samples at a time.

    New memory costs as much as arithmetic, so that matrices of a few samples follow
    each other in the same.
    """
    models, _, samples, _, size = flats[0].shape
    step = max(1, MOST_AT_ONCE * number // size**2)
    for model in range(models):
        alone = slice(model, model + 1)
        for start in range(0, samples, step):
            few = [flat[alone, :, start : start + step] for flat in flats]
            part = None if squares is None else squares[alone]
            _add_each(
                few,
                into[alone],
                squares=part,
                is_first=is_first and start == 0,
                number=number,
                scale=scale,
            )


def _add_each(
    flats: Sequence[Tensor],
    into: Tensor,
    *,
    squares: Tensor | None,
    is_first: bool,
    number: int,
    scale: float,
) -> None:
    """Add what each sample's rows (M, G, N, n, K) give, and the squares of norms."""
    flat, *more = flats
    for start, end in _stripes(flat.shape[-1], number):
        each = flat[..., start:end].mT @ flat[..., :end]
        for other in more:  # of one model and group
            left, right = other[0, 0, ..., start:end].mT, other[0, 0, ..., :end]
            each[0, 0].baddbmm_(left, right)
        stripe = into[:, :, start:end, :end]
        if is_first:
            torch.sum(each, 2, out=stripe)
            if scale != 1:
                stripe *= scale
        else:
            stripe.add_(each.sum(2), alpha=scale)
        if squares is not None:
            squares += _squares(each)
            if start:
                squares += _squares(each[..., :start])


def _squares(matrices: Tensor) -> Tensor:
    """Return the sum of all squares of each model, (M,), without a tensor of them.

    Rows are added up in double precision: all at once single precision loses digits.
    """
    lengths: Tensor = torch.linalg.vector_norm(matrices, dim=-1)
    return lengths.double().square().flatten(1).sum(1).to(matrices.dtype)


def num_stripes(num_rows: int, size: int) -> int:
    """Return how many stripes X'X of rows X (n, K) is worth being computed in.

    Args:
        num_rows: n.
        size: K.
    """
    return STRIPES if num_rows >= MANY_ROWS and size >= MANY_COLUMNS else 1


def _stripes(size: int, number: int) -> Iterator[tuple[int, int]]:
    """Yield the rows of the stripes of which a lower triangle is made."""
    for stripe in range(number):
        yield size * stripe // number, size * (stripe + 1) // number


def _add_gram(
    rows: Tensor, into: Tensor, is_first: bool, number: int, scale: float
) -> None:
    """Add X'X of rows X (M, G, N, n, K) to the lower stripes of (M, G, K, K)."""
    into = into.flatten(0, 1)
    rows = rows.reshape(len(into), -1, rows.shape[-1])
    beta = 0 if is_first else 1
    if number == 1:
        into.baddbmm_(rows.mT, rows, beta=beta, alpha=scale)
        return
    for start, end in _stripes(rows.shape[-1], number):
        left, right = rows[..., start:end].mT, rows[..., :end]
        into[:, start:end, :end].baddbmm_(left, right, beta=beta, alpha=scale)


def _mirror(matrices: Tensor, number: int) -> None:
    """Fill the upper triangle of matrices (..., K, K) of which stripes are known."""
    for start, end in _stripes(matrices.shape[-1], number):
        if start:
            matrices[..., :start, start:end] = matrices[..., start:end, :start].mT


def gram(rows: Tensor) -> Tensor:
    """Return X'X of rows X (..., n, K); of many by the lower triangle."""
    num_rows, size = rows.shape[-2:]
    number = num_stripes(num_rows, size)
    if number == 1:
        return rows.mT @ rows
    product = rows.new_empty(*rows.shape[:-2], size, size)
    for start, end in _stripes(size, number):
        product[..., start:end, :end] = rows[..., start:end].mT @ rows[..., :end]
    _mirror(product, number)
    return product


def _draw_squares(rows: Tensor) -> Tensor:
    """Return the sum of the squared norms of each draw's own second moment, (M,)."""
    is_short = rows.shape[4] <= rows.shape[5]
    return _squares(rows @ rows.mT if is_short else rows.mT @ rows)


def _identity_like(rows: Tensor) -> Tensor:
    size = rows.shape[-1]
    eye = torch.eye(size, dtype=rows.dtype, device=rows.device)
    return eye.expand(len(rows), rows.shape[3], size, size)


def turned(rows: Tensor, basis: Tensor) -> Tensor:
    """Return rows times a matrix of each group.

    Args:
        rows: (M, N, R, G, T, K).
        basis: (M, G, K, K).

    Returns:
        The products, (M, N, R, G, T, K).
    """
    groups_first = rows.movedim(3, 1)
    # A product that spreads the basis over samples would copy it for each.
    flat = groups_first.flatten(2, 4) @ basis
    return flat.view(groups_first.shape).movedim(1, 3)


def gradients(sides: Sequence[Sides], *, transposed: bool = False) -> Iterator[Tensor]:
    """Yield gradients V of some samples at a time, (M, n, R, G, O, I), or V'.

    Args:
        sides: rows of each use.
        transposed: V' is wanted.
    """
    first = sides[0]
    models, samples, draws, groups, _, rows = first.left.shape
    draws = max(draws, first.right.shape[2])
    size = groups * rows * first.right.shape[5]
    step = max(1, MOST_NUMBERS // (models * draws * size))
    for start in range(0, samples, step):
        few = slice(start, start + step)
        parts = [pair.left[:, few].mT @ pair.right[:, few] for pair in sides]
        whole = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
        yield whole.mT if transposed else whole


def some_at_a_time(sides: Sequence[Sides]) -> Iterator[list[Sides]]:
    """Yield rows of some samples at a time, whatever the number of models.

    What is made of them then stays in the cache, and is no less than a few times what
    is added up of it, (G, O, I).
    """
    left, right = sides[0].left, sides[0].right
    samples, groups = left.shape[1], left.shape[3]
    numbers = max(
        rows.shape[2:].numel() for pair in sides for rows in (pair.left, pair.right)
    )
    most = max(MOST_ROWS, 4 * groups * left.shape[5] * right.shape[5])
    step = max(1, most // numbers)
    for start in range(0, samples, step):
        few = slice(start, start + step)
        yield [Sides(pair.left[:, few], pair.right[:, few]) for pair in sides]


def squares_of(sides: Sequence[Sides]) -> Tensor:
    """Return the sum over samples and draws of the squares of V, (M, G, O, I)."""
    (pair, *more) = sides
    if more or pair.left.shape[4] > 1:
        parts = [chunk.square().sum((1, 2)) for chunk in gradients(sides)]
        return torch.stack(parts).sum(0)
    left, right = (rows.square().squeeze(4) for rows in (pair.left, pair.right))
    if left.shape[2] != right.shape[2]:
        left, right = left.sum(2, keepdim=True), right.sum(2, keepdim=True)
    left, right = (rows.flatten(1, 2).transpose(1, 2) for rows in (left, right))
    return left.mT @ right


def squares_along(sides: Sequence[Sides], left: Tensor, right: Tensor) -> Tensor:
    """Return the sum of the squares of U'VW over samples and draws, (M, G, O, I).

    Args:
        sides: rows of each use, whose gradients are V.
        left: U, (M, G, O, O).
        right: W, (M, G, I, I).
    """
    return squares_of(
        [Sides(turned(pair.left, left), turned(pair.right, right)) for pair in sides]
    )


def outer_of(sides: Sequence[Sides]) -> Tensor:
    """Return the sum of vec(V) vec(V)' over samples and draws, (M, P, P)."""
    rows = [chunk.flatten(3).flatten(1, 2) for chunk in gradients(sides)]
    return torch.stack([each.mT @ each for each in rows]).sum(0)
