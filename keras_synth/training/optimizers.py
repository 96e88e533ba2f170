"""Optimizers of Keras whose weight decay leaves out what it should not pull to zero."""

import re

import keras

_UNDECAYED = re.compile(
    r"bias$"  # of projections and of synthesized logits
    r"|/(gamma|beta|scale)$"  # of normalizations
    r"|/mixture_logits$"  # the alpha of a mixture: equal weights are its zero
    r"|relative_bias\w*/table$"
)


def decays(variable: keras.Variable) -> bool:
    """Whether weight decay is for a variable: it is not for norms, biases and the weights of a mixture.

    `AdamW` and `Adafactor` of this library ask it. For another optimizer, before it is built:

    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> optimizer = keras.optimizers.Lion(1e-4, weight_decay=0.1)
    >>> optimizer.exclude_from_weight_decay([v for v in model.trainable_variables if not decays(v)])

    Args:
        variable: keras.Variable. A variable of any model; its path decides.
    """
    return not _UNDECAYED.search(variable.path)


class _SelectiveDecay:
    """Mixin of optimizers, to stand before the class of Keras, which saves no such choice of variables."""

    def build(self, variables):
        if not self.built:
            self.exclude_from_weight_decay([variable for variable in variables if not decays(variable)])
        super().build(variables)


@keras.saving.register_keras_serializable("keras_synth")
class AdamW(_SelectiveDecay, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` without weight decay of norms, biases and the weights of mixtures.

    The choice is `decays`, and holds after loading too. Arguments are those of Keras.

    Example:

    >>> optimizer = AdamW(1e-3, weight_decay=0.1)
    """


@keras.saving.register_keras_serializable("keras_synth")
class Adafactor(_SelectiveDecay, keras.optimizers.Adafactor):
    """`keras.optimizers.Adafactor` without weight decay of norms, biases and the weights of mixtures.

    The choice is `decays`, and holds after loading too. Arguments are those of Keras. T5 uses it with
    `InverseSquareRoot.t5()` and no decay at all, which is the default.

    Example:

    >>> optimizer = Adafactor(keras.optimizers.schedules.CosineDecay(1e-2, 1000), weight_decay=1e-4)
    """
