"""Worlds by name: what the command line runs policies in.

``make_world("letor", policies, data=…)`` is a pure function from options to an environment, and to what is run and
measured there by default.
"""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jaxrank.click_models import graded_user
from jaxrank.core import own_code, registry
from jaxrank.core.checks import choice, integer, renamed
from jaxrank.core.limits import refuse_beyond
from jaxrank.core.pytrees import num_instances, take_instances
from jaxrank.core.types import BY_POSITION, Environment, Policy, learns_ranker
from jaxrank.datasets import (
    letor,
    movielens,
    synthetic,
    synthetic_letor,
    synthetic_ratings,
    topic_bandit,
    yahoo_music,
    yandex,
)
from jaxrank.environments import Changing, ClickBandit, Corrupted, QueryStream, change
from jaxrank.learning.probes import OfflineNDCG
from jaxrank.output.tables import counted
from jaxrank.policies import Delayed
from jaxrank.policies.baselines import OracleRanking, RandomRanking, StaticRanking
from jaxrank.policies.linear_cascade import LinearCascade

POLICIES = {  # the default policies of each world
    "click": ("bubblerank", "static"),
    "topics": ("cascade_hybrid", "cascade_lin_ucb"),
    "letor": ("pairrank", "pdgd"),
}
OPTIONS = {  # the options of each world
    "click": ("data", "queries", "items", "list_size", "click_model", "top", "reference", "change", "delay", "corrupt"),
    "topics": ("data", "queries", "items", "list_size", "trade_off", "normalize_relevance", "delay", "corrupt"),
    "letor": ("data", "queries", "list_size", "user", "grades", "delay", "corrupt"),
}
_OF_CHANGE = ("every", "random", "at", "drift", "worlds", "keep", "seed")
_OF_CORRUPTION = ("fraction", "budget", "target")

_TYPED = {
    "path": "--data",
    "model": "--click-model",
    "click_model": "--click-model",
    "a graded user": "--user",
    "num_items": "--items",
    "num_users": "--queries",
} | {  # what messages say, what was typed
    f"{prefix}{option}": f"--{option.replace('_', '-')}"
    for prefix in ("", "ClickBandit.", "TopicBandit.", "QueryStream.")
    for option in ("list_size", "top", "trade_off", "reference")
}


class World(NamedTuple):
    """An environment, and the defaults of a run in it."""

    environment: Environment
    summary: str  # e.g. "60 synthetic cm queries"
    metrics: tuple[str, ...]  # of the environment or of the probes
    probes: dict[str, Any]  # what can be measured besides the environment's metrics
    num_steps: int
    names: tuple[str, ...] = ()  # of the instances, if they have any
    delay: dict[str, Any] | None = None  # of the clicks: the options of ``Delayed``

    def delayed(self, policy: Policy) -> Policy:
        """The policy as it learns here: from delayed clicks if the world has a delay."""
        return Delayed(policy, **self.delay) if self.delay else policy

    def measured(self, names: Sequence[str] | None) -> dict[str, Any]:
        """The ``metrics`` and ``probes`` of a request for these names, or for the world's own if None."""
        names = self.metrics if names is None else names
        return {
            "metrics": tuple(name for name in names if name not in self.probes),
            "probes": {name: self.probes[name] for name in names if name in self.probes},
        }


def find_world(policies: Mapping[str, Policy], data: str | None) -> str:
    """The world that these policies, or these data, are made for: "click", "topics" or "letor"."""
    found = {_made_for(policy): name for name, policy in policies.items()}
    special = [world for world in ("letor", "topics") if world in found]
    if len(special) == 2 or ("letor" in found and "click" in found):
        names = " and ".join(found[world] for world in ("letor", "topics", "click") if world in found)
        raise ValueError(f"--policy must be policies for one world; {names} are not")
    if special:
        return special[0]
    if "click" in found or data is None:
        return "click"
    if not Path(data).is_dir():
        return "click"
    if any(part in file.name for file in Path(data).iterdir() for part in ("ratings", "u.data", "song")):
        return "topics"
    return "letor" if any("train" in file.name for file in Path(data).iterdir()) else "click"


def make_world(name: str, policies: Mapping[str, Policy], **options: Any) -> World:
    """A world for ``policies``; ``options`` that are None count as not given.

    Args:
      name: "click" (a click bandit), "topics" (a topic bandit) or "letor" (a query stream); or another environment, as
        in ``jr.make``, with options as in "my_environments.py:TwoKinds:share=0.5".
      policies: the policies that will run there, by name.
      options: those of ``OPTIONS[name]``, or the fields of another environment.
    """
    given = {option: value for option, value in options.items() if value is not None}
    delay, corrupt = given.pop("delay", None), given.pop("corrupt", None)
    world = _named(name, policies, given) if name in OPTIONS else _other(name, given)
    if corrupt is not None:
        with renamed({f"Corrupted.{key}": f"--corrupt {key}" for key in _OF_CORRUPTION}):
            environment = Corrupted(world.environment, **_corruption(str(corrupt)))
        world = world._replace(environment=environment, summary=f"{world.summary}, corrupted by {corrupt}")
    if delay is not None and (options_of_delay := _delay(str(delay)))["delay"] > 0:
        world = world._replace(delay=options_of_delay, summary=f"{world.summary}, clicks delayed by {delay}")
    return world


def _named(name: str, policies: Mapping[str, Policy], given: dict[str, Any]) -> World:
    """A world of jaxrank's own, before its clicks are delayed or corrupted."""
    for option, value in given.items():
        if option not in OPTIONS[name]:
            worlds = " or ".join(world for world, known in OPTIONS.items() if option in known)
            flag = option.replace("_", "-")
            raise ValueError(f"--{flag} belongs to --world {worlds}; got {value!r} in --world {name}")
        if option in ("queries", "items", "list_size", "top", "grades"):
            given[option] = integer(f"--{option.replace('_', '-')}", value)
    for label, policy in policies.items():
        made_for = _made_for(policy)
        if made_for != "any" and made_for != name and not (made_for == "click" and name == "topics"):
            raise ValueError(f"--policy {label} needs --world {made_for}; got --world {name}")
    if "list_size" in given:
        refuse_beyond("JAXRANK_MAX_LIST_SIZE", "--list-size", given["list_size"])
    with renamed(_TYPED):
        if name == "letor":
            return _letor(policies, **given)
        return _topics(**given) if name == "topics" else _click(**given)


def _delay(text: str) -> dict[str, Any]:
    """100, fixed:100 or geometric:100 as options of ``Delayed``."""
    kind, _, steps = text.rpartition(":")
    kind = choice("--delay", kind or "fixed", ("fixed", "geometric"))
    return {"kind": kind, "delay": integer("--delay", _number("--delay", steps), 0)}


def _corruption(text: str) -> dict[str, Any]:
    """0.01, or fraction=0.01,budget=100,target=best, as options of ``Corrupted``."""
    given = _pairs("--corrupt", text if "=" in text.split(",")[0] else f"fraction={text}", _OF_CORRUPTION)
    return {key: value if key == "target" else _number(f"--corrupt {key}", value) for key, value in given.items()}


def _change(environment: ClickBandit, text: str) -> Changing:
    """every=50000, random=50000, drift=50000 or at=1000/5000, and worlds, keep and seed, for ``change``."""
    given = _pairs("--change", text, _OF_CHANGE)
    numbers: dict[str, Any] = {
        key: [integer("--change at", _number("--change at", step)) for step in value.split("/")]
        if key == "at"
        else integer(f"--change {key}", _number(f"--change {key}", value), 0)
        for key, value in given.items()
    }
    known = {key: f"--change {key}" for key in ("worlds", "keep", "seed", "random", "drift")}
    with renamed(known | {"Changing.every": "--change every", "Changing.at": "--change at", "change": "--change"}):
        return change(environment, **numbers)


def _pairs(flag: str, text: str, known: Sequence[str]) -> dict[str, str]:
    """{key: value} of KEY=VALUE,KEY=VALUE."""
    pairs = [part.partition("=") for part in text.split(",")]
    for key, equals, value in pairs:
        if key not in known or not equals or not value:
            raise ValueError(f"{flag} must be KEY=VALUE,… with keys among {', '.join(known)}; got {text!r:.60}")
    return {key: value for key, _, value in pairs}


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number; got {text!r:.60}") from None


def _other(text: str, given: dict[str, Any]) -> World:
    """An environment that is not jaxrank's own."""
    name, options = registry.parse("--world", text, "environment")
    if own_code.source_of(name) is None:
        choice("--world", name, registry.available("environment"))
    read = registry.read_options("--world", name, options, "environment")
    environment = registry.make_of(name, "environment", read | given)
    return World(environment, text, ("regret",), {}, num_steps=10_000)


def _made_for(policy: Policy) -> str:
    if isinstance(policy, StaticRanking | RandomRanking | OracleRanking):
        return "any"
    if isinstance(policy, LinearCascade):
        return "topics"
    return "letor" if learns_ranker(policy) else "click"  # a learnt ranker, or statistics of items that stay the same


def _click(
    data: str | None = None,
    queries: int | None = None,
    items: int | None = None,
    list_size: int | None = None,
    click_model: str = "cm",
    top: int | None = None,
    reference: str = "optimal",
    change: str | None = None,
) -> World:

    model: Any
    kind, texts = registry.parse("--click-model", click_model, "click_model")
    parameters = registry.read_options("--click-model", kind, texts, "click_model")
    if data is None:
        model = synthetic(kind, queries or 60, items or 10, **parameters)
    else:
        model = yandex(data, kind, num_items=items, **parameters)
        available = num_instances(model) or 1
        if queries is not None:
            model = take_instances(model, slice(_at_most("--queries", queries, available)))
    positions = _positions(model) if list_size is None else list_size
    refuse_beyond("JAXRANK_MAX_LIST_SIZE", "--list-size, the number of items unless given,", positions)
    # Half of the list, as in the papers: over the whole list, a cascade's reward does not depend on the order.
    top = max(1, positions // 2) if top is None else top
    environment = ClickBandit(model, list_size=positions, top=top, reference=reference)
    summary = counted(environment.num_queries or 1, f"{_kind(data)} {click_model} query")
    if change is not None:
        return World(_change(environment, change), f"{summary} that change, {change}", ("regret",), {}, 100_000)
    return World(environment, summary, ("regret",), {}, num_steps=100_000)


def _positions(model: Any) -> int:
    """All items, or as many as the model has positions for."""
    return min(getattr(model, name).shape[-1] for name in ("attraction", *BY_POSITION) if hasattr(model, name))


def _topics(
    data: str | None = None,
    queries: int = 20,
    items: int = 200,
    list_size: int = 10,
    trade_off: float = 0.5,
    normalize_relevance: bool | str = True,
) -> World:

    if isinstance(normalize_relevance, str):
        normalize_relevance = choice("--normalize-relevance", normalize_relevance, ("true", "false")) == "true"
    if data is None:
        ratings = synthetic_ratings(max(2 * queries, 40) * 2, items)  # half of them click, a few of those like nothing
    elif any(Path(data).glob("song*")):
        ratings = yahoo_music(data, num_items=items)
    else:
        ratings = movielens(data, num_items=items)
    scaled = {"normalize_relevance": normalize_relevance}
    environment = topic_bandit(ratings, trade_off=trade_off, list_size=list_size, num_users=queries, **scaled)
    users = num_instances(environment) or 1
    _at_most("--queries", queries, users)
    summary = f"{counted(users, 'user')} of {_kind(data)} ratings of {counted(environment.num_items, 'item')}"
    return World(environment, summary, ("regret",), {}, num_steps=10_000)


def _letor(
    policies: Mapping[str, Policy],
    data: str | None = None,
    queries: int | None = None,
    list_size: int = 10,
    user: tuple[str, ...] | list[str] = ("perfect",),
    grades: int = 5,
) -> World:

    reader = graded_user(*user, num_grades=grades)  # before the data are read, which takes longer
    sets = synthetic_letor(queries or 100) if data is None else letor(data, num_grades=grades)
    train = sets.train
    if queries is not None:
        train = train.take(range(_at_most("--queries", queries, train.num_queries)))
    environment = QueryStream(train, reader, list_size=list_size)
    probes = {"ndcg@10": OfflineNDCG(sets.test)} if all(map(learns_ranker, policies.values())) else {}
    queries_of_stream = counted(train.num_queries, f"{_kind(data)} query")
    summary = f"a stream of {queries_of_stream}, clicked by {' and '.join(user)} users"
    names = tuple(user) if len(user) > 1 else ()
    return World(environment, summary, ("cndcg", *probes), probes, num_steps=2_000, names=names)


def _register(name: str, summary: str) -> None:
    """Makes ``jr.make(name, kind="environment")`` the environment of a world."""

    def make(**options: Any) -> Environment:
        return make_world(name, {}, **options).environment

    keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY, default=None)
    of_environment = [option for option in OPTIONS[name] if option != "delay"]  # which is the policies' own: jr.Delayed
    make.__signature__ = inspect.Signature([keyword(option) for option in of_environment])  # type: ignore[attr-defined]
    make.__doc__ = summary
    registry.register(name, make, kind="environment")


_register("click", "A click bandit: queries whose items stay the same, clicked by a click model.")
_register("topics", "A topic bandit: users who want relevant items of different topics.")
_register("letor", "A query stream: queries with features, and one ranker for all of them.")


def _kind(data: str | None) -> str:
    return "synthetic" if data is None else "real"


def _at_most(option: str, count: int, available: int) -> int:
    if count > available:
        raise ValueError(f"{option} must be from 1 to the {available} of the data; got {count}")
    return count
