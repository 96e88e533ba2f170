"""What the constructors of classes take."""

import inspect


def own_parameters(cls):
    """The parameters of a class's constructor, without `*args` and `**kwargs`.

    Returns:
        A dict from names to `inspect.Parameter`.
    """
    _, *rest = inspect.signature(cls.__init__).parameters.values()  # without `self`
    return {p.name: p for p in rest if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def parameters(cls):
    """As `own_parameters`, with those of the base classes that `**kwargs` are handed on to."""
    found = {}
    for base in inspect.getmro(cls):
        if "__init__" in vars(base):
            found = {**own_parameters(base), **found}
            if not inspect.getfullargspec(base.__init__).varkw:
                break
    return found


def requires(cls, name):
    """Whether a constructor has a parameter of this name without a default."""
    parameter = parameters(cls).get(name)
    return parameter is not None and parameter.default is parameter.empty
