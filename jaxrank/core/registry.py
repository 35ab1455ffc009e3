"""Names for policies, click models and environments, for the command line, for sweep files and for ``make``.

A name is one of

- a registered one, such as ``bubblerank``: jaxrank's own, and those that users register;
- one that an installed package announces by an entry point in the group ``jaxrank.policies``, ``jaxrank.click_models``
  or ``jaxrank.environments``. The package is imported when the name is used, and not before;
- ``FILE.py:NAME`` or ``package.module:NAME``: a class, or a function that returns an object, of one's own. This imports
  the file or the module and so runs its code: do not use a name that you were given unless you trust the code.
"""

import contextlib
import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any

from jaxrank.core import own_code
from jaxrank.core.checks import choice, integer, one_of
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
    return make_of(name, kind, options)


def make_of(name: str, kind: str, options: Mapping[str, Any]) -> Any:
    """``make``, for options of any name, such as "kind"."""
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


def parse(flag: str, text: str, kind: str = "policy") -> tuple[str, dict[str, str]]:
    """(name, options) of a text such as "bubblerank:delta=0.01" or "my_policies.py:ItemTS:prior=2,horizon=100".

    The options are still text, and nothing is imported: ``read_options`` reads them.
    """
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
    for setting in filter(None, re.split(r",(?![^\[]*\])", settings)):  # not at commas of a list
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{flag} must look like name:option=value,option=value; got {text!r:.200}")
        options[key] = value
    return name, options


def read_options(flag: str, name: str, options: Mapping[str, str], kind: str = "policy") -> dict[str, Any]:
    """The values of options that were given as text: as the types say that the class or function declares."""
    known = declared(name, kind)
    for key in options:
        choice(f"an option of {flag}", f"{name}:{key}", [f"{name}:{option}" for option in known or [key]])
    return {key: _read(f"{name}:{key}", text, known.get(key, "any")) for key, text in options.items()}


def refuse_objects(name: str, options: Iterable[str], kind: str = "policy") -> None:
    """A ValueError if an option takes an object, such as a ranker: a file or a command line cannot hold one."""
    for key in options:
        if declared(name, kind).get(key) == "object":
            raise ValueError(f"{name}:{key} must be an object, which only a program in Python can give")


def declared(name: str, kind: str = "policy") -> dict[str, Any]:
    """What each option takes: "switch", "integer", "number", "text", a tuple of names, "any" or "object"."""
    make_it = factory(name, kind)
    fields = {f.name: f for f in dataclasses.fields(make_it)} if dataclasses.is_dataclass(make_it) else {}
    parameters = inspect.signature(make_it).parameters
    return {key: _declared(fields.get(key), parameters[key]) for key in _parameters(make_it)}


def _declared(field: "dataclasses.Field[Any] | None", parameter: inspect.Parameter) -> Any:
    metadata = field.metadata if field else {}
    if metadata.get("choices"):
        return metadata["choices"]
    if "ndim" in metadata:
        return "integer" if metadata.get("dtype", float) is not float and metadata["ndim"] == 0 else "number"
    kinds = _kinds(parameter.annotation) | {type(parameter.default).__name__}
    for python, name in (("bool", "switch"), ("int", "integer"), ("float", "number"), ("str", "text")):
        if python in kinds:
            return name
    return "object" if field else "any"


def _kinds(annotation: Any) -> set[str]:
    """The names of the types in an annotation: {"int", "None"} for ``int | None``."""
    shown = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return set(re.split(r"[^\w.]+", shown))


def _read(name: str, text: str, takes: Any) -> Any:
    """An option's value: ``takes`` is what ``declared`` says of it. Whatever is no such value is refused."""
    if takes == "object":
        raise ValueError(f"{name} must be an object, which only a program in Python can give; got {text!r:.60}")
    if isinstance(takes, tuple):
        return choice(name, text, takes)
    if takes == "text":
        return text
    words = {"true": True, "false": False}
    if takes == "switch":
        if text.lower() not in words:
            raise ValueError(f"{name} must be {one_of(words)}; got {text!r:.60}")
        return words[text.lower()]
    number = _number(text)
    if takes == "integer":
        return integer(name, text if number is None else number, -(2**63), 2**63 - 1)
    if takes == "number":
        if number is None:
            raise ValueError(f"{name} must be a number, or a list of numbers as [0.1,0.2]; got {text!r:.60}")
        return number
    return words.get(text.lower(), text) if number is None else number


def _number(text: str) -> Any:
    """A number, or lists of numbers; None if the text is neither."""
    for kind in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            return kind(text)
    if text.startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(text)
    return None


def _names(kind: str) -> dict[str, Callable[..., Any]]:
    return _REGISTRY[choice("kind", kind, _REGISTRY)]


@cache
def _announced(kind: str) -> dict[str, EntryPoint]:
    built_in = [name for name, made in _names(kind).items() if made.__module__.startswith("jaxrank.")]
    return own_code.announced(kind, _GROUPS[kind], built_in)
