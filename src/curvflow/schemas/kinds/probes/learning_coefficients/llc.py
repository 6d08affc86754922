"""Declaration of `probe.llc`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curvflow.schemas.checks.samples import num_training, too_few
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Continues, Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.operators import LOCALIZATION, NBETA, unknown_layers
from curvflow.schemas.kinds.shared.preconditioners import preconditioner_input
from curvflow.schemas.kinds.shared.sampling import IN_METRIC, ObservingLlcParams
from curvflow.schemas.nodes import Data, Draws, Hold, Weights


def _may_continue(shorter: ObservingLlcParams, longer: ObservingLlcParams) -> bool:
    alike = longer.model_copy(update={"num_draws": shorter.num_draws}) == shorter
    return alike and shorter.num_draws < longer.num_draws


def _lacking_samples(params: Any, name: str, data: Any) -> Iterator[ParamProblem]:
    """Yield batches larger than the data, and tests observed of data without."""
    yield from too_few(params, name, data)
    count = num_training(data)
    if count is not None and count < 3 and params.nbeta == "auto":
        message = f"expected a number with the {count} samples of '{name}', got auto"
        yield ("nbeta",), message, "Give it: n / ln n is of three or more."
    if params.observed != "train" and getattr(data, "num_test", None) == 0:
        message = f"observed {params.observed} cannot be combined with '{name}', which "
        message += "has no test samples"
        yield ("observed",), message, "Remove it, or take data with test samples."


def _without_metric(params: Any, name: str, _: Any) -> Iterator[ParamProblem]:
    """Yield samplers that take no metric, and steps of unknown units."""
    method = params.sampling_method
    if method is not None and method not in IN_METRIC:
        message = f"sampling_method {method} cannot be combined with factors '{name}'"
        hint = f"Take one of {', '.join(IN_METRIC)}, or remove preconditioner."
        yield ("sampling_method",), message, hint
    may_be_either = params.calibrate == "auto" and method != "multiscale_mala"
    if may_be_either and params.lr is not None:
        message = f"lr {params.lr} cannot be combined with factors '{name}' and "
        message += "calibrate auto, which take their metric, and its units, if better"
        yield ("lr",), message, "Remove it, or take calibrate none."


CHAIN, DRAW, TRIAL = ("chain",), ("chain", "draw"), ("trial",)
OBSERVABLE = ("observable",)


def _judged(name: str, description: str, dims: tuple[str, ...] = ()) -> Variable:
    return Variable(name, description, dims, judged_by="verdict")


def _of_observable(name: str, description: str, dtype: str = "int64") -> Variable:
    return Variable(
        name, description, OBSERVABLE, dtype=dtype, bulk=True, optional=True
    )


KIND = Kind(
    name="probe.llc",
    version=11,
    summary="Local learning coefficient by sampling, with the state of its chains.",
    params=ObservingLlcParams,
    returns=Draws,
    outputs=(
        _judged("llc_mean", "nbeta (E L - L(w*)), over the chains that did not fail"),
        _judged("llc_std", "standard deviation between the chains' estimates"),
        _judged(
            "llc_sem",
            "standard error: by autocorrelated draws, distances that change slowly or "
            "have yet to be gone, and directions too slow for the chains",
        ),
        _judged("llc_mcse", "the part of it by autocorrelated draws"),
        _judged("llc_along", "the same, given distances that change slowly"),
        _judged("llc_unspread", "the part by distances that chains have yet to go"),
        _judged(
            "llc_unheld",
            "the coefficient without localization, to first order in it of what is not "
            "quadratic",
        ),
        _judged("llc_unheld_sem", "its standard error, half the correction included"),
        Variable(
            "hold_share",
            "part of the coefficient that the localization takes; NaN, as llc_unheld, "
            "if the spectrum was not measured",
        ),
        _judged("llc_per_chain", "the estimate of each chain", CHAIN),
        Variable("r_hat", "rank-normalised split R-hat of the losses"),
        Variable("ess_bulk", "effective number of draws for the mean"),
        Variable("ess_tail", "the same for the 5 and 95 % quantiles"),
        Variable(
            "verdict",
            "converged, or the reason why the chains cannot be trusted",
            dtype="str",
        ),
        Variable("reason", "why, in words, with numbers", dtype="str"),
        Variable("num_failed", "chains that left the finite numbers", dtype="int64"),
        Variable(
            "acceptance",
            "of the step as a Metropolis proposal, over the chains that did not fail",
        ),
        Variable(
            "acceptance_per_chain",
            "the same of each chain; NaN if it was not measured",
            CHAIN,
        ),
        Variable(
            "distance",
            "mean distance of these chains' last draws from the weights",
            units="parameter",
        ),
        Variable("init_loss", "mean loss at the weights, all data", units="loss"),
        NBETA,
        LOCALIZATION,
        Variable(
            "lr",
            "step, epsilon, mean over chains; of rmsprop_sgld and adam_sgld before "
            "their preconditioner; of mala and sgld in the metric of factors, where "
            "metric says so, without units",
            units="parameter^2",
        ),
        Variable(
            "lr_per_chain",
            "that of each chain: mala calibrated adapts them one by one",
            CHAIN,
            units="parameter^2",
        ),
        Variable("batch_size", "samples per step", dtype="int64"),
        Variable("sampling_method", "sampler", dtype="str"),
        Variable("num_burnin_steps", "steps before the first draw", dtype="int64"),
        Variable(
            "num_samples",
            "samples of the data of which a label counts, n",
            dtype="int64",
        ),
        Variable("num_parameters", "parameters that move, d", dtype="int64"),
        Variable(
            "gradient_equivalents",
            "work: gradients over all data, of all chains, calibration included",
        ),
        Variable("calibration_equivalents", "the part of it that calibration took"),
        Variable(
            "loss_trace", "mean loss at the draws", DRAW, units="loss", series=True
        ),
        Variable(
            "batch_loss_trace",
            "loss of the step's batch",
            DRAW,
            units="loss",
            series=True,
        ),
        Variable(
            "distance_trace",
            "distance from the weights",
            DRAW,
            units="parameter",
            series=True,
        ),
        Variable(
            "failed_at", "step at which a chain failed; -1 if not", CHAIN, "int64"
        ),
        Variable(
            "trial_parameter",
            "parameter that a trial varied",
            TRIAL,
            "str",
            optional=True,
        ),
        Variable("trial_value", "its value, in its units", TRIAL, optional=True),
        Variable(
            "trial_lr",
            "its step, the mean over its chains of the adapted steps",
            TRIAL,
            units="parameter^2",
            optional=True,
        ),
        Variable("trial_llc", "estimate of the trial", TRIAL, optional=True),
        Variable("trial_sem", "its standard error", TRIAL, optional=True),
        Variable("trial_acceptance", "its acceptance", TRIAL, optional=True),
        Variable(
            "trial_in_plateau",
            "whether it is on the plateau, less what steps and batches add",
            TRIAL,
            "bool",
            optional=True,
        ),
        Variable(
            "predicted",
            "half the effective dimension of the measured spectrum: the coefficient "
            "of a regular minimum",
            optional=True,
        ),
        Variable(
            "predicted_sem",
            "standard error of predicted, of the random vectors and of the quadrature",
            optional=True,
        ),
        Variable(
            "step_bias",
            "relative bias from the finite step size: the larger of that of the "
            "spectrum at the weights, if it was measured, and that of gradients at the "
            "draws; NaN if the coefficient is not positive",
        ),
        Variable(
            "batch_bias",
            "upper bound of the same of the noise of batches, measured at the draws",
        ),
        Variable(
            "slow_error",
            "bias plus standard error of the coefficient from directions in which the "
            "chains mix too slowly, for a quadratic of the measured spectrum",
            optional=True,
        ),
        Variable(
            "largest_eigenvalue",
            "of the Hessian, or mean curvature met where that is larger",
            units="loss / parameter^2",
            optional=True,
        ),
        Variable(
            "smallest_eigenvalue",
            "of the Hessian, as calibrated",
            units="loss / parameter^2",
            optional=True,
        ),
        Variable(
            "typical_curvature",
            "of a direction that is not flat: median eigenvalue, or mean curvature met",
            units="loss / parameter^2",
            optional=True,
        ),
        Variable(
            "gradient_variance",
            "between samples, S^2, where the draws will be, in the metric of steps; "
            "NaN of mala",
            units="loss^2 / parameter^2",
            optional=True,
        ),
        Variable(
            "ritz_values",
            "of the Hessian, by Lanczos from random vectors; NaN is none",
            ("run", "node"),
            units="loss / parameter^2",
            series=True,
            optional=True,
        ),
        Variable(
            "ritz_weights",
            "their weights, of sum 1 over a run",
            ("run", "node"),
            series=True,
            optional=True,
        ),
        Variable(
            "hold_of_spectrum",
            "second order of what the localization takes of the quadratic directions "
            "of the measured spectrum",
            optional=True,
        ),
        Variable(
            "whitening_vectors",
            "eigenvectors, or Ritz vectors, of the Hessian by which steps are whitened",
            ("free_parameter", "vector"),
            bulk=True,
            optional=True,
        ),
        Variable(
            "whitening_curvatures",
            "their curvatures, and that of all other directions",
            ("curvature",),
            units="loss / parameter^2",
            bulk=True,
            optional=True,
        ),
        Variable(
            "metric",
            "that of steps, with factors given: factors; eigenvectors of the Hessian, "
            "by which multiscale_mala is whitened; or none",
            dtype="str",
            optional=True,
        ),
        Variable(
            "condition",
            "largest over smallest measured curvature of the energy, without factors",
            optional=True,
        ),
        Variable(
            "factors_condition", "the same in the metric of the factors", optional=True
        ),
        Variable(
            "metric_values",
            "curvatures of the energy in the metric of the factors, by Lanczos; NaN is "
            "none",
            ("run", "node"),
            series=True,
            optional=True,
        ),
        Variable(
            "metric_weights",
            "their weights, of sum 1 over a run",
            ("run", "node"),
            series=True,
            optional=True,
        ),
        Variable(
            "metric_parts",
            "part of each that is the loss's, the rest the localization's; 1, a bound, "
            "where not all are known",
            ("run", "node"),
            series=True,
            optional=True,
        ),
        Variable(
            "draws",
            "weights of every draw",
            ("chain", "draw", "parameter"),
            bulk=True,
            optional=True,
        ),
        Variable(
            "observed_losses",
            "loss of what is observed at every draw",
            ("chain", "draw", "observable"),
            units="loss",
            bulk=True,
            optional=True,
        ),
        Variable(
            "observed_init_losses",
            "the same at the weights",
            OBSERVABLE,
            units="loss",
            bulk=True,
            optional=True,
        ),
        _of_observable("observed_is_test", "of a test sample", "bool"),
        _of_observable("observed_row", "number of its sample; -1 of a mean over some"),
        _of_observable("observed_token", "number of its token; -1 of whole samples"),
        _of_observable("observed_label", "its label; -1 of values and of some"),
        _of_observable("observed_count", "samples or tokens it is the mean over"),
        Variable(
            "chain_state",
            "where the chains go on from",
            ("chain", "entry"),
            bulk=True,
        ),
        Variable(
            "chain_state_form", "the shapes of its parts, JSON", dtype="str", bulk=True
        ),
    ),
    accelerated=True,
    main=("llc_mean", "llc_sem"),
    inputs={
        "weights": Input(Weights, lacking=unknown_layers),
        "data": Input(Data, follows="weights", by_rows=True, lacking=_lacking_samples),
        "preconditioner": preconditioner_input(lacking=_without_metric),
        "hold": Input(Hold, optional=True, settles=("localization",)),
    },
    varying=("seed", "nbeta", "lr", "localization"),
    continues=Continues("num_draws", _may_continue),
)

EXPLANATION = Explanation(
    formula="λ̂ = nβ (E L(w) - L(w*)), w ~ p(w) ∝ exp(-nβ L(w) - γ/2 ‖w - w*‖²)",
    source=(
        "Lau et al. (2023), arXiv:2308.12108, equation 20; Watanabe (2013), JMLR "
        "14, 867, for nβ = n / ln n; Vehtari et al. (2021) for R̂ and effective "
        "sizes"
    ),
    cost=(
        "per chain num_burnin_steps + num_draws · num_steps_bw_draws gradients, of "
        "a batch or of all data, and a pass per draw with at_draws: full; "
        "calibration adds 240 products and short trials, and as many products more "
        "with factors (gradient_equivalents has all)"
    ),
    example="""\
study: example
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor,
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 200}
  llc: {use: probe.llc, weights: fit, num_draws: 200}
""",
    page="llc.md",
    units={
        "nbeta": "1 / loss",
        "lr": "parameter^2",
        "localization": "1 / parameter^2",
        "num_burnin_steps": "step",
        "num_steps_bw_draws": "step",
        "damping": "as the gradient",
        "max_hold": "1",
        "max_observed": "sample",
    },
)
