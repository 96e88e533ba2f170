"""The classes of the library."""

import importlib
import inspect
import pkgutil


def find_classes(package, bases):
    """The classes that the modules of a package define, also private ones, and that derive from `bases`."""
    found = set()
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for item in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(item) and item.__module__ == module.name and issubclass(item, bases):
                found.add(item)
    return found
