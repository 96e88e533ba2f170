"""What the constructors of classes take."""

import inspect


def parameters(cls):
    """The parameters of a constructor, with those of the base classes that it hands `**kwargs` on to.

    Returns:
        A dict from names to `inspect.Parameter`.
    """
    found = {}
    for base in inspect.getmro(cls):
        if "__init__" not in vars(base):
            continue
        _, *own = inspect.signature(base.__init__).parameters.values()  # without `self`
        named = {p.name: p for p in own if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        found = {**named, **found}
        if all(p.kind is not p.VAR_KEYWORD for p in own):
            break
    return found


def requires(cls, name):
    """Whether a constructor has a parameter of this name without a default."""
    parameter = parameters(cls).get(name)
    return parameter is not None and parameter.default is parameter.empty
