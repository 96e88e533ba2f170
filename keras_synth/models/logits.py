"""Losses and metrics that take logits, those that take probabilities, and which of them a model needs."""

import inspect

import keras


def check_logits(model, loss, metrics):
    """Checks that the losses and metrics of a task take what it returns.

    Args:
        model: A task, whose `returns_logits` says what it returns.
        loss: As `compile` takes it.
        metrics: A dict with the `"metrics"` and `"weighted_metrics"` of `compile`, among others.

    Raises:
        ValueError: If one takes probabilities where there are logits, or logits where there are
            probabilities.
    """
    if model.returns_logits is None:
        return
    kind = "logits" if model.returns_logits else "probabilities"
    metrics = [metrics.get("metrics"), metrics.get("weighted_metrics")]
    for argument, module, given in (("loss", "losses", loss), ("metrics", "metrics", metrics)):
        for value in keras.tree.flatten(given):
            if takes_logits(value, getattr(keras, module)) in (None, model.returns_logits):
                continue
            raise ValueError(
                f"{type(model).__name__} '{model.name}' returns {kind}, which `{argument}` must take, as "
                f"`keras.{module}.SparseCategoricalCrossentropy(from_logits={model.returns_logits})` does. "
                f"Received: {argument}={value!r}"
            )


def takes_logits(identifier, module):
    """Whether a loss or metric takes logits, or else probabilities; `None` if it is neither, or unknown.

    Args:
        identifier: A name, a function or an object, as `compile` takes it.
        module: `keras.losses` or `keras.metrics`, which know the names.
    """
    if str(identifier).lower() in ("crossentropy", "ce"):  # names that `compile` alone knows
        return False
    if isinstance(identifier, str):
        try:
            identifier = module.get(identifier)
        except ValueError:
            return None
    if hasattr(identifier, "from_logits"):
        return bool(identifier.from_logits)
    function = getattr(identifier, "fn", getattr(identifier, "_fn", identifier))
    if function is keras.losses.kl_divergence:
        return False
    try:
        parameter = inspect.signature(function).parameters.get("from_logits")
    except (TypeError, ValueError):  # not a function of Python
        return None
    if parameter is None:
        return None
    return bool(getattr(identifier, "_fn_kwargs", {}).get("from_logits", parameter.default))
