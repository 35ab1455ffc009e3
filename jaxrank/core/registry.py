"""Names for policies and click models, for the command line; users may register their own."""

import inspect
from collections.abc import Callable
from typing import Any

from jaxrank.core.checks import choice

_REGISTRY: dict[str, dict[str, Callable[..., Any]]] = {"policy": {}, "click_model": {}}


def register(name: str, factory: Callable[..., Any], kind: str = "policy") -> None:
    """Registers ``factory``, a class or a function that returns an object: ``make(name, ...)`` then calls it.

    Example:
      >>> import jaxrank as jr
      >>> jr.register("careful_bubblerank", lambda horizon=None: jr.BubbleRank(delta=1e-12, horizon=horizon))
      >>> jr.make("careful_bubblerank")
      BubbleRank(delta=1e-12)
    """
    names = _names(kind)
    if not name or not name.replace("_", "").isalnum():
        raise ValueError(f"name must be letters, digits and underscores; got {name!r}")
    if name in names and names[name] is not factory:
        raise ValueError(f"name must be new; {name!r} is already a registered {kind}")
    names[name] = factory


def make(name: str, kind: str = "policy", **options: Any) -> Any:
    """Makes the registered policy (or click model) ``name``."""
    names = _names(kind)
    choice(kind, name, names)
    for option in options:
        choice(f"an option of {name}", option, option_names(name, kind) or [option])
    try:
        return names[name](**options)
    except TypeError as error:
        raise ValueError(f"options of {name}: {error}") from None


def option_names(name: str, kind: str = "policy") -> tuple[str, ...]:
    """The options that ``make`` takes for ``name``; none if its factory takes any."""
    parameters = inspect.signature(_names(kind)[name]).parameters.values()
    return () if any(p.kind is p.VAR_KEYWORD for p in parameters) else tuple(p.name for p in parameters)


def available(kind: str = "policy") -> tuple[str, ...]:
    """The registered names of a kind: "policy" or "click_model"."""
    return tuple(_names(kind))


def factory(name: str, kind: str = "policy") -> Callable[..., Any]:
    """The class or function that ``make`` calls for ``name``."""
    return _names(kind)[name]


def _names(kind: str) -> dict[str, Callable[..., Any]]:
    return _REGISTRY[choice("kind", kind, _REGISTRY)]
