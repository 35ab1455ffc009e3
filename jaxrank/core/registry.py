"""Names for policies, click models and environments, for the command line, for sweep files and for ``make``.

A name is one of

- a registered one, such as ``bubblerank``: jaxrank's own, and those that users register;
- one that an installed package announces by an entry point in the group ``jaxrank.policies``, ``jaxrank.click_models``
  or ``jaxrank.environments``. The package is imported when the name is used, and not before;
- ``FILE.py:NAME`` or ``package.module:NAME``: a class, or a function that returns an object, of one's own. This imports
  the file or the module and so runs its code: do not use a name that you were given unless you trust the code.
"""

import ast
import dataclasses
import inspect
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

from jaxrank.core import own_code
from jaxrank.core.checks import choice
from jaxrank.core.types import REQUIRED, require

_REGISTRY: dict[str, dict[str, Callable[..., Any]]] = {"policy": {}, "click_model": {}, "environment": {}}
_GROUPS = {"policy": "jaxrank.policies", "click_model": "jaxrank.click_models", "environment": "jaxrank.environments"}


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
    """Makes the policy (or click model, or environment) of this name.

    Args:
      name: a registered name, one that an installed package announces, or ``FILE.py:NAME`` or ``package.module:NAME``
        for code of your own, which is imported and so executed.
      kind: "policy", "click_model" or "environment".
      options: the fields of its class, or the arguments of its function.
    """
    make_it = factory(name, kind)
    known = _parameters(make_it)
    for option in options:
        choice(f"an option of {name}", option, known or [option])
    try:
        made = make_it(**options)
    except TypeError as error:
        raise ValueError(f"options of {name}: {error}") from None
    require(kind, made, f"{kind} {name}")
    return made


def option_names(name: str, kind: str = "policy") -> tuple[str, ...]:
    """The options that ``make`` takes for ``name``; none if its factory takes any."""
    return _parameters(factory(name, kind))


def _parameters(make_it: Callable[..., Any]) -> tuple[str, ...]:
    parameters = inspect.signature(make_it).parameters.values()
    return () if any(p.kind is p.VAR_KEYWORD for p in parameters) else tuple(p.name for p in parameters)


def available(kind: str = "policy") -> tuple[str, ...]:
    """The names of a kind, "policy", "click_model" or "environment": registered, or announced by installed packages."""
    return (*_names(kind), *_announced(kind))


def factory(name: str, kind: str = "policy") -> Callable[..., Any]:
    """The class or function that ``make`` calls for ``name``. Code of one's own is imported for it."""
    names, others = _names(kind), _announced(kind)
    if isinstance(name, str) and own_code.source_of(name):
        found = own_code.load(kind, name)
    elif choice(kind, name, (*names, *others)) in names:
        return names[name]
    else:
        found = own_code.load_announced(kind, others[name])
    if isinstance(found, type):  # what a function returns is seen when it is called
        fields = [field.name for field in dataclasses.fields(found)] if dataclasses.is_dataclass(found) else []
        missing = [member for member in REQUIRED[kind] if not hasattr(found, member) and member not in fields]
        if missing:
            raise ValueError(
                f"{kind} {name} must have the members {', '.join(REQUIRED[kind])}; it has no {', '.join(missing)}"
            )
    return found


def required_fields(name: str, kind: str = "policy") -> tuple[str, ...]:
    """The options that ``make(name)`` needs."""
    parameters = inspect.signature(factory(name, kind)).parameters.values()
    return tuple(p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD)


def origin(name: str, kind: str = "policy") -> str | None:
    """The package that announces ``name``; None for a registered one."""
    return None if name in _names(kind) else own_code.package(_announced(kind)[name])


def parse(flag: str, text: str, kind: str = "policy") -> tuple[str, dict[str, Any]]:
    """(name, options) of a text such as "bubblerank:delta=0.01" or "my_policies.py:ItemTS:prior=2,horizon=100"."""
    name, _, settings = text.partition(":")
    if name not in _names(kind):
        parts = text.rsplit(":", 1)
        if own_code.source_of(text):
            name, settings = text, ""
        elif own_code.source_of(parts[0]):
            name, settings = parts
        elif text.endswith(".py"):
            raise ValueError(f"{flag} must name a class of the file, as in {text}:MyClass; got {text!r}")
    options = {}
    for setting in filter(None, settings.split(",")):
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{flag} must look like name:option=value,option=value; got {text!r}")
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    return name, options


def _names(kind: str) -> dict[str, Callable[..., Any]]:
    return _REGISTRY[choice("kind", kind, _REGISTRY)]


@cache
def _announced(kind: str) -> dict[str, EntryPoint]:
    built_in = [name for name, made in _names(kind).items() if made.__module__.startswith("jaxrank.")]
    return own_code.announced(kind, _GROUPS[kind], built_in)
