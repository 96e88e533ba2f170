"""Checks of arguments, with one wording: what must be, of whom, and what came instead."""


def check_positive_int(owner, name, value):
    """Returns `value` as it is, or raises if it is not a positive integer.

    Args:
        owner: The layer whose argument it is; its class where it has no name yet; or a function.
        name: string. The name of the argument.
        value: The argument.

    Raises:
        ValueError: If it is not a positive integer.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(
            f"`{name}` of {describe_owner(owner)} must be a positive integer. Received: {name}={value!r}"
        )
    return value


def check_rate(owner, name, value):
    """Returns `value` as it is, or raises if it is no rate of dropout; arguments as above."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ValueError(
            f"`{name}` of {describe_owner(owner)} must be at least 0 and less than 1. "
            f"Received: {name}={value!r}"
        )
    return value


def check_choice(owner, name, value, choices):
    """Returns `value` as it is, or raises if it is none of `choices`; arguments as above."""
    if value not in choices:
        raise ValueError(
            f"`{name}` of {describe_owner(owner)} must be one of {', '.join(map(repr, choices))}. "
            f"Received: {name}={value!r}"
        )
    return value


def describe_owner(owner):
    """What an error calls a layer, a class or a function."""
    return owner.__name__ if hasattr(owner, "__name__") else f"{type(owner).__name__} '{owner.name}'"
