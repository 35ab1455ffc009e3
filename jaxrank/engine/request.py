"""One description of a run: every option of it, with its name, its default, its check and its help text.

``simulate``, ``compare`` and ``estimate`` take the fields of ``Request`` as arguments, the command line and the sweep
file take those that have a ``flag`` under that name. ``takes_request`` gives a function these arguments.
"""

import dataclasses
import functools
import inspect
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, dataclass_transform

import numpy as np
from jax.sharding import Mesh

from jaxrank.core import checks, random
from jaxrank.core.types import Array

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", contravariant=True)
E = TypeVar("E", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R", bound="Request", contravariant=True)

Probe = Callable[[Any, Any, Any], Array]  # (policy, state, environment) -> any array
Check = Callable[[str, Any], Any]  # (name, value) -> the value as the engine wants it

MAX_RECORDS = 1_000_000
RENAMED = {"chunk_intervals": "call_intervals"}  # the names of 0.1.0; they go with 0.3.0


def option(
    check: Check,
    help: str,
    *,
    flag: str | None = None,
    default: Any = dataclasses.MISSING,
    in_command: Any = None,
    of_machine: bool = False,
) -> Any:
    """A field of ``Request``.

    Args:
      check: raises a ValueError, or returns the value as the engine wants it.
      help: for the docstrings and for ``jaxrank run --help``.
      flag: its name on the command line and in a sweep file, if it has one.
      default: its value unless given; an option without a default must be given.
      in_command: its default on the command line and in a sweep file, if that is another one.
      of_machine: it is about the machine, not about what is run: a sweep file does not have it.
    """
    metadata = {
        "check": check,
        "help": " ".join(help.split()),
        "flag": flag,
        "in_command": in_command,
        "of_machine": of_machine,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, field_specifiers=(option,))
def options(cls: type[T]) -> type[T]:
    """A frozen dataclass of options."""
    return dataclasses.dataclass(frozen=True)(cls)


def _integer(minimum: int = 1, maximum: int = checks.MAX_INT32) -> Check:
    return lambda name, value: checks.integer(name, value, minimum, maximum)


def _or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        several = [part.strip() for part in value.split(",") if part.strip()]
        raise ValueError(f"{name} must be a sequence of names, not text; got {value!r:.60}: write {several!r:.90}")
    names = tuple(value) if isinstance(value, Iterable) else ()
    if not names or not all(isinstance(one, str) for one in names):
        raise ValueError(f"{name} must be a sequence of at least one name; got {value!r:.60}")
    return names


def _numbers(limit: int) -> Check:
    """Different integers from 0 to ``limit``."""

    def check(name: str, value: Any) -> tuple[int, ...]:
        numbers = checks.integers(name, value)
        if numbers.size == 0 or numbers.min() < 0 or numbers.max() > limit:
            raise ValueError(f"{name} must be integers from 0 to {limit}; got {_short(numbers)}")
        if len(np.unique(numbers)) < numbers.size:
            raise ValueError(f"{name} must not repeat; got {_short(numbers)}")
        return tuple(numbers.tolist())

    return check


def _increasing(name: str, value: Any) -> tuple[int, ...]:
    steps = checks.integers(name, value)
    if steps.size > MAX_RECORDS:
        raise ValueError(f"{name} must be at most {MAX_RECORDS:,} steps; got {steps.size:,}")
    if steps.size == 0 or (np.diff(steps) <= 0).any() or steps[0] < 1:
        raise ValueError(f"{name} must be increasing integers from 1 to the last step; got {_short(steps)}")
    return tuple(steps.tolist())


def _probes(name: str, value: Any) -> dict[str, Probe]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a dict of functions by name; got {value!r:.60}")
    for label, probe in value.items():
        if isinstance(probe, type):
            kind = probe.__name__
            raise ValueError(f"{name}[{label!r}] must be an instance; got the class {kind}: write {kind}(…)")
        if not callable(probe):
            raise ValueError(f"{name} must be functions of (policy, state, environment); got {probe!r} for {label!r}")
    return dict(value)


def _progress(name: str, value: Any) -> Any:
    return value if callable(value) else checks.switch(name, value)


def _mesh(name: str, value: Any) -> Any:
    if value is not None and not isinstance(value, Mesh):
        raise ValueError(f"{name} must be a jax.sharding.Mesh; got {value!r:.60}")
    return value


def _folder(name: str, value: Any) -> Any:
    if value is not None and not isinstance(value, str | os.PathLike):
        raise ValueError(f"{name} must be the path of a folder; got {value!r:.60}")
    return value


def _seconds_or_calls(name: str, value: Any) -> float | str:
    """Seconds, or "N calls"."""
    rule = f"{name} must be seconds, or text such as '5 calls'; got {value!r:.60}"
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,9})\s*(call|chunk)s?\s*", value)
        if not match or int(match[1]) == 0:
            raise ValueError(rule)
        if match[2] == "chunk":
            _warn_renamed(f"{name}={value!r}", f"{name}='{match[1]} calls'")
        return f"{match[1]} calls"
    try:
        return checks.real(name, value, checks.non_negative)
    except ValueError:
        raise ValueError(rule) from None


@options
class Request:
    """What to run, how to record it, and where: all that is asked of a run besides its policy and its environment."""

    num_steps: int = option(
        _integer(maximum=checks.MAX_INT32 - 1),
        """the number of steps of each lane, and the horizon of policies that need one and were given none; one that
        was given must not be smaller.""",
        flag="steps",
    )
    _: dataclasses.KW_ONLY
    num_seeds: int = option(
        _or_none(_integer()),
        "independent repetitions of every instance: seeds 0, 1, …, num_seeds − 1.",
        flag="seeds",
        default=None,
        in_command=10,
    )
    seed: int = option(
        _integer(minimum=0, maximum=2**64 - 1), "the root of all random numbers.", flag="seed", default=0
    )
    prng: str = option(
        functools.partial(checks.choice, allowed=random.PRNG),
        """the generator: "jaxrank", or "threefry2x32" for JAX's own bits, which makes a step 2 to 3 times as
        expensive.""",
        flag="prng",
        default="jaxrank",
    )
    metrics: Sequence[str] = option(
        _names, "which of the environment's metrics to sum up.", flag="metrics", default=("regret",)
    )
    num_records: int = option(
        _integer(maximum=MAX_RECORDS), "the number of points of a curve.", flag="records", default=200
    )
    spacing: str = option(
        functools.partial(checks.choice, allowed=("linear", "log")),
        """how these points lie between 1 and the last step, "linear" or "log".""",
        flag="spacing",
        default="linear",
    )
    record_at: Sequence[int] | None = option(
        _or_none(_increasing),
        "the steps to record, instead of a number of them and a spacing.",
        flag="record-at",
        default=None,
    )
    instances: Sequence[int] | None = option(
        _or_none(_numbers(checks.MAX_INT32)),
        "run only these instances; their numbers are those of the full run.",
        default=None,
    )
    seeds: Sequence[int] | None = option(
        _or_none(_numbers(checks.MAX_INT32)),
        """run only these seeds, instead of ``num_seeds``, which must be their number if it is given too; likewise. If
        neither is given, there is one seed, 0.""",
        default=None,
    )
    skip_settled: bool = option(
        checks.switch,
        "complete the curves of lanes that can no longer change in closed form instead of simulating them.",
        default=True,
    )
    mesh: Mesh | None = option(
        _mesh,
        "the devices to spread the lanes over; by default all accelerators, or all cores of a CPU.",
        default=None,
    )
    progress: bool | Callable[[int], object] = option(
        _progress,
        """show a progress bar, in a terminal or in a notebook; or a function to call with the number of steps done
        so far.""",
        default=True,
    )
    call_intervals: int | None = option(
        _or_none(_integer()),
        """the number of intervals, from one record to the next, that the host asks the devices for in one call; the
        curves do not depend on it.""",
        default=None,
    )
    probes: Mapping[str, Probe] | None = option(
        _or_none(_probes),
        """functions of (policy, state, environment) of a lane, called after every recorded step; their values are
        variables of the result, not summed. ``jr.probes`` has some.""",
        default=None,
    )
    checkpoint_dir: str | os.PathLike[str] | None = option(
        _folder,
        "a folder for checkpoints. SIGTERM and Ctrl-C then save one and raise ``Interrupted``.",
        default=None,
    )
    checkpoint_every: float | str = option(
        _seconds_or_calls,
        """seconds between two checkpoints, or text such as "5 calls": that many calls of the host.""",
        flag="checkpoint-every",
        of_machine=True,
        default=60.0,
    )
    resume: bool = option(
        checks.switch,
        "continue from the checkpoint in ``checkpoint_dir``, if there is one; a finished run is only read.",
        default=False,
    )
    max_memory: float | None = option(
        _or_none(functools.partial(checks.real, check=checks.positive)),
        """bytes that the run may use; by default most of what the devices have free. More lanes than fit run in
        shares, one after the other, which changes nothing but the time.""",
        flag="max-memory",
        of_machine=True,
        default=None,
    )

    way: str | None = option(
        _or_none(functools.partial(checks.choice, allowed=("kernel", "entries", "loop"))),
        """how the steps are run: "kernel", one GPU kernel for all steps of a call; "entries", an XLA loop, entry by
        entry; or "loop", an XLA loop over arrays. By default the first of them that the policy and the devices allow,
        and on a CPU the loop. On a CPU, a kernel is interpreted, which is slow and meant for tests.""",
        default=None,
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, field.metadata["check"](field.name, getattr(self, field.name)))
        if self.num_seeds is None:
            object.__setattr__(self, "num_seeds", 1 if self.seeds is None else len(self.seeds))
        if self.seeds is not None and self.num_seeds != len(self.seeds):
            raise ValueError(
                f"num_seeds must be left out where seeds are given, or be their number, {len(self.seeds)}; got "
                f"num_seeds = {self.num_seeds} and seeds = {_short(np.array(self.seeds))}"
            )
        if self.record_at is not None and self.record_at[-1] > self.num_steps:
            raise ValueError(f"record_at must not pass num_steps = {self.num_steps}; got {self.record_at[-1]}")
        for name in self.probes or ():
            if name in self.metrics:
                raise ValueError(f"probes must not have the name of a metric; got {name!r}")

    def recorded_steps(self) -> np.ndarray:
        """int64[n]: the steps to record, the last step always among them."""
        if self.record_at is not None:
            return np.union1d(np.array(self.record_at), [self.num_steps])
        count = min(self.num_records, self.num_steps)
        if self.spacing == "linear":
            return np.unique(np.linspace(0, self.num_steps, count + 1)[1:].round().astype(np.int64))
        return np.unique(np.geomspace(1, self.num_steps, count).round().astype(np.int64))


def flags() -> dict[str, dataclasses.Field[Any]]:
    """The options that the command line and the sweep file have, by their names there."""
    return {field.metadata["flag"]: field for field in dataclasses.fields(Request) if field.metadata["flag"]}


def command_default(field: dataclasses.Field[Any]) -> Any:
    """What an option is on the command line and in a sweep file unless it is given."""
    default = None if field.default is dataclasses.MISSING else field.default
    return default if field.metadata["in_command"] is None else field.metadata["in_command"]


class _WantsRequest(Protocol[S, E, R, R_co]):
    def __call__(self, subject: S, environment: E, request: R, /) -> R_co: ...


def takes_request(
    request: Callable[P, R],
) -> Callable[[_WantsRequest[S, E, R, R_co]], Callable[Concatenate[S, E, P], R_co]]:
    """Makes ``function(subject, environment, request)`` take the fields of a ``Request`` class instead of a request.

    The fields are in its signature, and in its docstring in the place of the line ``{request}``.
    """

    def decorate(function: _WantsRequest[S, E, R, R_co]) -> Callable[Concatenate[S, E, P], R_co]:
        wanted: Any = function
        make: Any = request
        own = list(inspect.signature(wanted).parameters.values())[:2]
        signature = inspect.Signature([*own, *inspect.signature(request).parameters.values()])

        @functools.wraps(wanted)
        def with_options(*args: Any, **given: Any) -> Any:
            for old, new in RENAMED.items():
                if old in given and new not in given:
                    _warn_renamed(old, new)
                    given[new] = given.pop(old)
            for name in given:
                if name not in signature.parameters:
                    hint = checks.did_you_mean(name, signature.parameters)
                    raise TypeError(f"{wanted.__name__}() has no option {name!r}{hint}")
            bound = signature.bind(*args, **given).arguments
            subject, environment = (bound.pop(parameter.name) for parameter in own)
            return wanted(subject, environment, make(**bound))

        with_options.__signature__ = signature  # type: ignore[attr-defined]
        with_options.__doc__ = (wanted.__doc__ or "").replace("      {request}\n", _described(request))
        return with_options

    return decorate


def _described(request: Any) -> str:
    """The fields as the lines of a docstring's Args."""
    lines = []
    for field in dataclasses.fields(request):
        text = f"{field.name}: {field.metadata['help']}"
        lines.append(textwrap.fill(text, 120, initial_indent=" " * 6, subsequent_indent=" " * 8) + "\n")
    return "".join(lines)


def _warn_renamed(old: str, new: str) -> None:
    warnings.warn(f"{old} is now called {new}; the old name goes with jaxrank 0.3", FutureWarning, stacklevel=3)


def _short(numbers: np.ndarray) -> str:
    return str(numbers.tolist()) if numbers.size <= 10 else f"{numbers[:10].tolist()} and more"
