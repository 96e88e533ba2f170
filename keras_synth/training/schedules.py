"""Learning rate schedules that Keras does not have."""

import keras
from keras import ops

WARMUPS = ("linear", "constant")


@keras.saving.register_keras_serializable("keras_synth")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Warm-up, then decay with the inverse square root of the step.

    `peak * min(n / warmup_steps, sqrt(warmup_steps / n))` at the `n`-th step, stated by its peak. It needs
    no total number of steps, so training may be stopped, or go on, at any time. `transformer` and `t5` make
    the schedules of those papers. The cosine with warm-up is in Keras:
    `keras.optimizers.schedules.CosineDecay` with `warmup_target` and `warmup_steps`.

    Args:
        peak: float. The highest learning rate, at the end of the warm-up.
        warmup_steps: int. The number of warm-up steps.
        warmup: `"linear"`, or `"constant"`: the peak from the first step on. Defaults to `"linear"`.

    Raises:
        ValueError: If `warmup_steps` is less than 1, or `warmup` another name.

    Example:

    >>> schedule = InverseSquareRoot(peak=1e-3, warmup_steps=100)
    >>> round(float(schedule(49)), 6), round(float(schedule(399)), 6)
    (0.0005, 0.0005)
    """

    def __init__(self, peak: float, warmup_steps: int, warmup: str = "linear"):
        if warmup_steps < 1:
            raise ValueError(f"`warmup_steps` must be at least 1. Received: warmup_steps={warmup_steps}")
        if warmup not in WARMUPS:
            raise ValueError(
                f"`warmup` must be one of {', '.join(map(repr, WARMUPS))}. Received: warmup={warmup!r}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.warmup = warmup

    @classmethod
    def transformer(cls, hidden_dim: int, warmup_steps: int = 4000, factor: float = 1.0):
        """`factor * hidden_dim^-0.5 * min(n^-0.5, n * warmup_steps^-1.5)`.

        Section 5.3 of [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), with Adam of `beta_2=0.98`.
        """
        return cls(factor * (hidden_dim * warmup_steps) ** -0.5, warmup_steps)

    @classmethod
    def t5(cls, warmup_steps: int = 10_000):
        """`1 / sqrt(max(n, warmup_steps))`.

        Section 3.1.2 of [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), with Adafactor.
        """
        return cls(warmup_steps**-0.5, warmup_steps, warmup="constant")

    def __call__(self, step):
        # Keras counts the steps from 0, the papers from 1.
        progress = (ops.cast(step, "float32") + 1.0) / self.warmup_steps
        rise = progress if self.warmup == "linear" else 1.0
        return self.peak * ops.minimum(rise, ops.rsqrt(progress))

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps, "warmup": self.warmup}
