"""Samplers by their names."""

import keras_hub

from keras_synth.core.checks import check_choice

#: Those of KerasHub, which does not list them.
NAMES = ("beam", "contrastive", "greedy", "random", "speculative", "top_k", "top_p")


def get_sampler(sampler):
    """Makes a sampler of its name or configuration.

    Args:
        sampler: One of `NAMES`, a configuration of a sampler, or a sampler, which is returned as it is.

    Raises:
        ValueError: If it is none of these.
    """
    if isinstance(sampler, str):
        check_choice(get_sampler, "sampler", sampler, NAMES)
    elif isinstance(sampler, type) or not (isinstance(sampler, dict) or callable(sampler)):
        raise ValueError(
            f"`sampler` must be a sampler or one of {', '.join(map(repr, NAMES))}. "
            f"Received: sampler={sampler!r}"
        )
    return keras_hub.samplers.get(sampler)
