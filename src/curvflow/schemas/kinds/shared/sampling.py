"""Parameters of chains about weights, for a learning coefficient."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, model_validator

from curvflow.schemas.kinds.shared.operators import ModeParams
from curvflow.schemas.params import Names, Neutral, Params

Method = Literal[
    "multiscale_mala",
    "mala",
    "sgld",
    "rmsprop_sgld",
    "adam_sgld",
    "sghmc",
    "sgnht",
]

# Those that accept or reject, over all the data.
EXACT = ("multiscale_mala", "mala")

# Those that may move in a constant metric, as that of factors.
IN_METRIC = ("multiscale_mala", "mala", "sgld")

# What calibration finds where it is not given.
FOUND = ("sampling_method", "lr", "localization", "num_burnin_steps")

# Settings that are of some methods alone, and these.
OF_METHODS = {
    "friction": ("sghmc", "sgnht"),
    "decay": ("rmsprop_sgld", "adam_sgld"),
    "damping": ("rmsprop_sgld", "adam_sgld"),
}


class LlcParams(Params):
    """The posterior about the weights, the sampler, and how long it draws."""

    nbeta: PositiveFloat | Literal["auto", "devinterp"] = Field(
        "auto",
        description="inverse temperature n beta; auto is n / ln n, n the number of "
        "samples; devinterp is b / ln b, b the batch size given, as that package has "
        "it",
    )
    calibrate: Literal["auto", "none"] = Field(
        "auto",
        description="auto finds sampling_method, lr, localization, batch_size and "
        "num_burnin_steps, those that are null, from the measured spectrum and "
        "gradient variance; none wants them given",
    )
    sampling_method: Method | None = Field(
        None, description="the sampler; null as calibrate says"
    )
    lr: float | None = Field(
        None, gt=0, description="its step, epsilon: drift lr / 2, noise of variance lr"
    )
    localization: float | None = Field(
        None, ge=0, description="gamma: how strongly the chains are held to the weights"
    )
    batch_size: int | None = Field(
        None, ge=1, description="samples per step; null takes all, or as calibrated"
    )
    num_chains: int = Field(4, ge=2, description="chains, each with its own stream")
    num_draws: int = Field(500, ge=8, description="draws kept of each chain")
    num_burnin_steps: int | None = Field(
        None, ge=0, description="steps before the first draw"
    )
    num_steps_bw_draws: int = Field(20, ge=1, description="steps from draw to draw")
    at_draws: Literal["full", "control_variate", "batch"] = Field(
        "full",
        description="the loss at a draw: full, over all the data; control_variate, "
        "over the batch, less that batch's loss at the weights, plus their full loss; "
        "batch, over the batch as devinterp takes it",
    )
    layers: Names | None = Field(
        None,
        min_length=1,
        description="parameter tensors, by name or pattern such as layer1.*, that "
        "move; null moves all",
    )
    friction: float = Field(
        0.1, gt=0, le=1, description="of sghmc and sgnht: what a step takes of momentum"
    )
    decay: float = Field(
        0.99, gt=0, lt=1, description="of rmsprop_sgld and adam_sgld: moving averages"
    )
    damping: float = Field(
        0.1, gt=0, description="of the same: added to the root of the second moment"
    )
    max_hold: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="share of the coefficient that the localization may take: "
        "calibration lowers it, and above that the verdict is held",
    )
    keep_draws: bool = Field(False, description="keep the weights of every draw")
    seed: int = Field(0, ge=0, description="seed of all that is drawn")
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of losses, gradients and steps"
    )

    @model_validator(mode="after")
    def _takes_batches(self) -> LlcParams:
        method = self.sampling_method
        if method in EXACT and self.batch_size is not None:
            raise ValueError(
                f"batch_size cannot be combined with sampling_method {method}, which "
                "takes all the data. Remove it, or take sgld."
            )
        return self

    @model_validator(mode="after")
    def _uses_all(self) -> LlcParams:
        method = self.sampling_method
        got = f"sampling_method {method or f'null, which takes {EXACT[0]} or sgld'}"
        for name, methods in OF_METHODS.items():
            is_default = getattr(self, name) == type(self).model_fields[name].default
            if not is_default and method not in methods:
                raise ValueError(
                    f"{name} cannot be combined with {got}. Remove {name}, or take "
                    f"sampling_method {' or '.join(methods)}."
                )
        if method in EXACT and self.at_draws != "full":
            raise ValueError(
                f"at_draws {self.at_draws} cannot be combined with sampling_method "
                f"{method}, which takes all the data. Remove it, or take sgld."
            )
        return self

    @model_validator(mode="after")
    def _has_batch(self) -> LlcParams:
        is_all = self.calibrate == "none" or self.sampling_method in EXACT
        if self.nbeta != "devinterp" or (self.batch_size is None and is_all):
            return self
        if self.batch_size is None or self.batch_size < 2:
            got = "null" if self.batch_size is None else self.batch_size
            raise ValueError(
                "nbeta devinterp, which is b / ln b, cannot be combined with "
                f"batch_size {got}. Set batch_size to 2 or more, or take nbeta auto."
            )
        return self

    @model_validator(mode="after")
    def _is_complete(self) -> LlcParams:
        lacking = [name for name in FOUND if getattr(self, name) is None]
        if self.calibrate == "none" and lacking:
            raise ValueError(
                f"expected {', '.join(lacking)} with calibrate none, got null. "
                "Give them, or leave calibrate at auto."
            )
        return self


class ObservingLlcParams(ModeParams, LlcParams):
    """The same, the mode of the network, and the losses kept at every draw."""

    seed: int = Field(
        0, ge=0, description="seed of all that is drawn, and of masks in mode train"
    )

    keep_losses: Annotated[
        Literal["samples", "tokens", "labels"] | None, Neutral(None)
    ] = Field(
        None,
        description="keep losses at every draw: samples, of each sample; tokens, of "
        "each token; labels, the mean over the samples of each label; null keeps none",
    )
    observed: Annotated[Literal["train", "test", "both"], Neutral("train")] = Field(
        "train", description="samples whose losses are kept"
    )
    max_observed: Annotated[int | None, Neutral(None)] = Field(
        None,
        ge=1,
        description="of the training samples, and of the test samples, the first so "
        "many are observed; null takes all",
    )

    @model_validator(mode="after")
    def _trains_on_all(self) -> ObservingLlcParams:
        if self.mode == "eval":
            return self
        if self.sampling_method not in EXACT:
            raise ValueError(
                "mode train, whose loss is that of batches of training as they are, "
                "cannot be combined with sampling_method "
                f"{self.sampling_method or 'null'}. Take {' or '.join(EXACT)}, or mode "
                "eval."
            )
        if self.keep_losses is not None:
            raise ValueError(
                f"keep_losses {self.keep_losses} cannot be combined with mode train, "
                "in which samples meet in a batch. Remove it, or take mode eval."
            )
        return self

    @model_validator(mode="after")
    def _observes(self) -> ObservingLlcParams:
        if self.keep_losses is not None:
            return self
        for name in ("observed", "max_observed"):
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name} {value} cannot be combined with keep_losses null. Give "
                    f"keep_losses, or remove {name}."
                )
        return self
