"""Section of K-FAC in the documentation of the rules."""

from __future__ import annotations

from curvflow.schemas.explanations import Section

EXPLANATION = Section(
    group="Rules by Kronecker factors",
    summary="inverts Kronecker factors of the batch's Fisher matrix",
    text="""\
w ← w + α Δ + μ v with Δ = −(P + λ + ζ)⁻¹ (g + λ w), for the loss plus λ |w|² / 2, λ =
`l2`. v is the step before. P has a block for each layer, L ⊗ R: R is the second moment
of what goes into the layer, with a 1 for the bias, and L that of what comes back
through its outputs when labels of `fisher_type` stand at the end. `mc` draws
`mc_samples` labels of each input from the model (K-FAC), `type-2` takes all of them by
their probability (KFLR), `empirical` takes those of the data, which is not the Fisher
matrix. `recursive` (KFRA) takes the mean over the batch of the loss's Hessian by the
outputs back from layer to layer, of dense layers one after another alone. `expand` and
`reduce` differ where a layer is used at several positions of a sample, as convolutions
are. Factors are those of the step's batch, or with
`factor_decay` ε moving averages, where the k-th batch weighs 1 − min(ε, 1 − 1/k).
With `inverse: factored` the root of λ + ζ is added to each factor, divided by π on the
left and times π on the right; `pi: trace` makes π² the mean eigenvalue of R over that
of L. `exact` adds λ + ζ to the product; with `structure: ekfac` the eigenvalues of the
product are replaced by the second moments of the batch's gradients along its
eigenvectors (EKFAC), averaged like factors between inversions. Factors are taken every
`factor_update_steps` and inverted every `inv_update_steps`; between, factored inverses
keep the ζ they had.

α and μ come from the quadratic model q(d) = (g + λ w)·d + d'(G + λ + τ) d / 2, where G
is the Gauss-Newton matrix of the batch, exact, by one derivative along Δ and one along
v. `step: quadratic` takes the α that is best with the momentum given, `momentum:
quadratic` the best μ; both together are the best of the plane. Where the model has no
minimum, and with `step: lr`, α = `lr`. τ = `damping` is in the model alone, and ζ =
`preconditioner_damping` in the blocks alone; null takes τ for ζ.

Every `damping_adaptation_interval` steps the ratio ρ of the change of the loss to q is
taken on the same batch; above `damping_upper_threshold` τ is multiplied by
`damping_adaptation_decay`, below `damping_lower_threshold` divided by it. Every
`preconditioner_adaptation_interval` steps ζ, and ζ times and over
`preconditioner_adaptation_decay` are tried, and the one whose step has the lowest q is
kept. τ stays within `min_damping` and `max_damping` from the first look on, and ζ where
it changes. With `reject` a step that raises the loss of its batch is taken back, and
both dampings are raised once.
`kl_clip` shortens steps d until d'G d / 2, which is the divergence of the model's
labels to second order, is at most that.

A batch norm's statistics are those of the batch, and held in curvature. Scales and
shifts behind a norm have an exact block, those of more than 1,024 entries a multiple of
the identity, as have tensors in no layer that is known, such as positions: the mean of
the diagonal of their Fisher matrix, by one derivative of random signs. Of these, one of
more than 65,536 entries is refused. Losses are those with a likelihood by name, and
labels of tokens take `mc` or `empirical`. Of `gaussian` and `mixture_bernoulli` the
Hessian H by a sample's outputs may be indefinite, and G and the factors of `type-2` and
`recursive` have in its place, by `psd`, H with negative eigenvalues set to 0 (`clip`)
or turned (`abs`), or the Fisher matrix (`fisher`); without it these losses are refused.

The curves `lr` and `chosen_momentum` of `train` are α and μ of the last step of an
epoch, and beside them stand `damping`, `preconditioner_damping`, `reduction_ratio`,
`predicted_change` and `rejected_share`. Singular factors without any damping give steps
that are not finite: the model diverges, and its siblings do not notice. Presets:
`botev-2020/kfac`, `botev-2020/kflr`, `botev-2020/kfra` and `martens-2015/kfac`.
""",
    source="""\
Martens and Grosse (2015), arXiv:1503.05671; Botev (2020), section 4.4 and Algorithm 1.
The printed Algorithm 1 compares τ where ρ is meant, leaves ζ out of its first
candidate, and swaps both factors of Δ; here they are as the text derives them, and α is
positive, for Δ descends. A ratio is taken of the step itself, momentum included. The
rule of averages is that of Martens and Grosse, section 5.
""",
    example="""\
axes:
  rule:
    kfac: {rule: kfac, damping: 1.0, damping_adaptation_interval: 5, mc_samples: 1}
    kflr: {rule: kfac, fisher_type: type-2, inverse: exact, damping: 0.1,
           preconditioner_damping: 0.1, preconditioner_adaptation_interval: 20}
    plain: {rule: kfac, step: lr, lr: 0.05, momentum: 0.9, damping: 0.03, l2: 0.0001,
            damping_adaptation_interval: null, factor_decay: 0.95, inv_update_steps: 10,
            kl_clip: 0.01}
""",
)
