"""The sections of a run's configuration: names, units, defaults and the rules between them."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from scse_dist.config.base import Section
from scse_dist.config.methods import AnyMethodConfig, ScseConfig, UnsharedConfig

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Precision = Literal["fp32", "bf16_autocast", "bf16"]


class RunSection(Section):
    """Where a run lives."""

    dir: str = "runs/default"
    """Folder of the run: configuration, metrics, evaluations, checkpoints, logs."""


class DataSection(Section):
    """Which shards are read, and how."""

    path: str | None = None
    """Folder written by ``scse-dist prepare``."""
    window: Count | None = None
    """Tokens predicted per sample; must divide the shards' window, which is the default."""
    verify_shards: bool = True
    """Hash each shard file at its first use and compare it with the manifest."""


class InitSection(Section):
    """Scales of the initial weights; ``null`` means PyTorch's default, U(+-1/sqrt(fan_in))."""

    embedding_std: Annotated[float, Field(gt=0)] = 0.1
    """Standard deviation of token and position embeddings."""
    linear_std: Annotated[float, Field(gt=0)] | None = None
    """Standard deviation of the linear maps of the blocks and of the source map W."""
    projection_std: Annotated[float, Field(gt=0)] | None = None
    """Standard deviation of the projections A and I that make anchor and initial deviation."""


class ModelSection(Section):
    """Architecture."""

    width: Count = 384
    """Channels of the state (d)."""
    num_heads: Count = 6
    """Attention heads; must divide the width."""
    ffn_width: Count | None = None
    """Hidden channels of the SwiGLU (d_ff); four times the width by default."""
    dropout: Fraction = 0.0
    """Probability for embeddings and for both branch outputs of the block, in training only."""
    vocab_size: Count | None = None
    """Size of the vocabulary (V); taken from the data's manifest by default."""
    num_positions: Count | None = None
    """Learned positions; the training window by default."""
    init: InitSection = InitSection()
    method: AnyMethodConfig = ScseConfig()

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.num_heads:
            fitting = [n for n in range(1, self.width + 1) if self.width % n == 0]
            raise ValueError(
                f"model.num_heads={self.num_heads} does not divide model.width={self.width}; choose one of {fitting}"
            )
        return self

    @property
    def resolved_ffn_width(self) -> int:
        """d_ff, with its default filled in."""
        return self.ffn_width or 4 * self.width


class DepthSection(Section):
    """How many loops T a training step runs: a pure function of seed and step (section 5)."""

    schedule: Literal["uniform", "fixed", "poisson", "curriculum"] = "uniform"
    """uniform over min..max; fixed (min = max); poisson around ``mean``, clipped to min..max; curriculum: uniform
    over min..m, where m grows from min to max over ``curriculum_steps``."""
    min: Count = 1
    """Fewest loops."""
    max: Count = 8
    """Most loops."""
    mean: Annotated[float, Field(gt=0)] | None = None
    """Mean of the Poisson draw before clipping."""
    curriculum_steps: Count | None = None
    """Optimizer steps until the curriculum reaches ``max``."""
    draw: Literal["step", "microbatch"] = "step"
    """One draw for the whole global batch, or one for each microbatch index."""
    check_agreement: bool = False
    """Debugging aid: compare the drawn depths across ranks every step (one small collective)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"depth.min={self.min} exceeds depth.max={self.max}: the range of depths is empty")
        if self.schedule == "fixed" and self.min != self.max:
            raise ValueError(
                f"depth.schedule=fixed needs one depth, got depth.min={self.min} and depth.max={self.max}; "
                "set both to the same number"
            )
        for key, owner in (("mean", "poisson"), ("curriculum_steps", "curriculum")):
            given = getattr(self, key) is not None
            if given != (self.schedule == owner):
                raise ValueError(
                    f"depth.{key} would be ignored: it belongs to depth.schedule={owner}, not {self.schedule}"
                    if given
                    else f"depth.schedule={owner} needs depth.{key}"
                )
        return self


class TrainSection(Section):
    """How long and in what portions."""

    num_steps: Count = 1000
    """Optimizer steps of the whole run."""
    global_batch_size: Count = 32
    """Windows per optimizer step, over all ranks."""
    microbatch_size: Count = 8
    """Windows per forward pass on one rank; accumulation follows from it and the number of ranks."""


class OptimSection(Section):
    """AdamW and its learning rate, a pure function of the number of applied steps."""

    lr: Annotated[float, Field(gt=0)] = 3e-4
    """Peak learning rate."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Applied to matrices only."""
    decay_embeddings: bool = False
    """Whether embeddings count as matrices for weight decay."""
    grad_clip: Annotated[float, Field(ge=0)] = 1.0
    """Largest global gradient norm; 0 turns clipping off."""
    schedule: Literal["cosine", "warmup_stable_decay", "constant"] = "cosine"
    warmup_steps: CountOrZero = 500
    """Steps of linear warm-up from 0; may exceed the run."""
    decay_steps: Count | None = None
    """Length of the final linear decay of ``warmup_stable_decay``."""
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Learning rate at the end as a share of the peak (cosine, warmup_stable_decay)."""

    @model_validator(mode="after")
    def _no_idle_settings(self) -> Self:
        if (self.decay_steps is not None) != (self.schedule == "warmup_stable_decay"):
            raise ValueError(
                "optim.schedule=warmup_stable_decay needs optim.decay_steps"
                if self.decay_steps is None
                else f"optim.decay_steps would be ignored by optim.schedule={self.schedule}; "
                "it belongs to warmup_stable_decay"
            )
        if self.schedule == "constant" and self.min_lr_ratio:
            raise ValueError("optim.min_lr_ratio would be ignored by optim.schedule=constant; remove it")
        return self


class ParallelSection(Section):
    """How the work is spread and how memory is saved."""

    zero_stage: Literal[0, 1, 2, 3] = 2
    """What DeepSpeed shards: 1 optimizer, 2 gradients too, 3 parameters too."""
    recompute: Literal["none", "every_loop", "every_k_loops"] = "every_loop"
    """Activation checkpointing along the loop."""
    recompute_interval: Count | None = None
    """The k of ``every_k_loops``."""
    ds_config: str | None = None
    """A DeepSpeed file instead of the shipped ``zero<stage>.json``; holds only what DeepSpeed alone owns."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    backend: Literal["auto", "gloo", "nccl"] = "auto"

    @model_validator(mode="after")
    def _interval_belongs(self) -> Self:
        if (self.recompute_interval is not None) != (self.recompute == "every_k_loops"):
            raise ValueError(
                "parallel.recompute=every_k_loops needs parallel.recompute_interval"
                if self.recompute_interval is None
                else f"parallel.recompute_interval would be ignored by parallel.recompute={self.recompute}; "
                "it belongs to every_k_loops"
            )
        return self

    @property
    def loops_per_segment(self) -> int:
        """Loops between two kept states; 0 keeps everything."""
        return {"none": 0, "every_loop": 1, "every_k_loops": self.recompute_interval or 0}[self.recompute]


class EvaluateSection(Section):
    """The depth curve measured while training."""

    every: CountOrZero = 0
    """Optimizer steps between evaluations; 0 means never."""
    sets: tuple[str, ...] = ("validation",)
    """Splits of the data."""
    depths: tuple[Count, ...] = (1, 2, 4, 8, 12, 16, 24, 32, 48)
    """Loop counts, ascending."""
    batch_size: Count = 16
    """Windows per forward pass on one rank; does not change the figures."""
    max_windows: CountOrZero = 256
    """Windows per set (the first ones); 0 means all."""

    @field_validator("depths")
    @classmethod
    def _ascending(cls, depths: tuple[int, ...]) -> tuple[int, ...]:
        if not depths or list(depths) != sorted(set(depths)):
            raise ValueError(f"evaluate.depths={list(depths)} must be ascending, without repeats and not empty")
        return depths


class CheckpointSection(Section):
    """When the state is saved and what is kept. The last step is always saved."""

    every: CountOrZero = 500
    """Optimizer steps between checkpoints; 0 means only the last."""
    keep_last: CountOrZero = 3
    """How many of the newest remain; 0 keeps all."""


class TelemetrySection(Section):
    """What is written while training."""

    log_every: Count = 10
    """Optimizer steps between records."""
    tensorboard: bool = True


class RunConfig(Section):
    """Everything that defines a run."""

    run: RunSection = RunSection()
    seed: CountOrZero = 0
    """Fixes initial weights, order of samples, depths and dropout."""
    precision: Precision = "fp32"
    """fp32; bf16_autocast over fp32 parameters; bf16 parameters with fp32 masters in the optimizer. The deviation
    carrier is fp32 in all of them."""
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    depth: DepthSection = DepthSection()
    train: TrainSection = TrainSection()
    optim: OptimSection = OptimSection()
    parallel: ParallelSection = ParallelSection()
    evaluate: EvaluateSection = EvaluateSection()
    checkpoint: CheckpointSection = CheckpointSection()
    telemetry: TelemetrySection = TelemetrySection()

    @model_validator(mode="after")
    def _unshared_has_one_depth(self) -> Self:
        method, depth = self.model.method, self.depth
        if isinstance(method, UnsharedConfig) and not depth.min == depth.max == method.num_layers:
            raise ValueError(
                f"model.method.name=unshared trains at its own depth: set depth.schedule=fixed "
                f"depth.min={method.num_layers} depth.max={method.num_layers} (or leave depth out)"
            )
        return self
