"""What the evaluations of jaxprs share: how JAX writes calls, loops and equations, and the order of the latter."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from jax.extend.core import Literal

CALLS = {  # primitives that call a jaxpr, and the parameter that holds it
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}


def opened(closed: Any) -> Any:
    """The jaxpr of a closed one; what JAX has in an equation is closed or not, depending on the version."""
    return getattr(closed, "jaxpr", closed)


def primitives(closed: Any) -> Iterator[str]:
    """The names of the primitives in a jaxpr and in those that it holds."""
    for eqn in opened(closed).eqns:
        yield eqn.primitive.name
        for parameter in eqn.params.values():
            for inner in parameter if isinstance(parameter, list | tuple) else (parameter,):
                if hasattr(opened(inner), "eqns"):
                    yield from primitives(inner)


def needed_equations(jaxpr: Any) -> list[Any]:
    """The equations on which the results depend."""
    wanted = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    found = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(var in wanted for var in eqn.outvars):
            found.append(eqn)
            wanted.update(var for var in eqn.invars if not isinstance(var, Literal))
    return found[::-1]


def scan_sizes(eqn: Any) -> tuple[int, int]:
    """The numbers of constants and of carried arrays of a scan, whose sequences have one axis more than in its body."""
    body = opened(eqn.params["jaxpr"])

    def sequences(outside: Any, inside: Any) -> int:
        pairs = zip(outside, inside, strict=True)
        return sum(len(x.aval.shape) > len(y.aval.shape) for x, y in pairs)

    num_carry = len(eqn.outvars) - sequences(eqn.outvars, body.outvars)
    return len(eqn.invars) - num_carry - sequences(eqn.invars, body.invars), num_carry


def most_at_once(closed: Any) -> int:
    """The most values that wait at any time to be used, in the order in which a jaxpr is written."""
    jaxpr = opened(closed)
    steps = [*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars]
    last = {var: i for i, used in enumerate(steps) for var in used if not isinstance(var, Literal)}
    ending = Counter(last.values())
    waiting = most = sum(var in last for var in (*jaxpr.constvars, *jaxpr.invars))
    for i, eqn in enumerate(jaxpr.eqns):
        waiting += sum(var in last for var in eqn.outvars)
        most = max(most, waiting)
        waiting -= ending[i]
    return most


def by_demand(closed: Any) -> Any:
    """The jaxpr with every equation right before the first one that needs it; those that none needs are left out.

    The last result is computed first. So few values wait at any time, and they fit into the registers of a kernel: of
    the 515 that wait in TopRank's step as it is written, 182 are left. Equations with effects keep their order.
    """
    jaxpr = opened(closed)
    before: dict[int, list[Any]] = {}  # by identity of an equation: those that it needs
    makers: dict[Any, Any] = {}
    effect: list[Any] = []  # the latest equation with effects
    for eqn in jaxpr.eqns:
        variables = [var for var in eqn.invars if not isinstance(var, Literal)]
        before[id(eqn)] = [*(effect if eqn.effects else ()), *(makers[var] for var in variables if var in makers)]
        makers.update(dict.fromkeys(eqn.outvars, eqn))
        effect = [eqn] if eqn.effects else effect
    results = [makers[var] for var in jaxpr.outvars if not isinstance(var, Literal) and var in makers]
    stack, started, order = [*effect, *results], set(), {}  # the last one is taken first
    while stack:
        eqn = stack[-1]
        if id(eqn) in started:
            stack.pop()
            order[id(eqn)] = eqn
        else:
            started.add(id(eqn))
            stack += [one for one in reversed(before[id(eqn)]) if id(one) not in started]
    eqns = [eqn.replace(params={name: _inner_by_demand(x) for name, x in eqn.params.items()}) for eqn in order.values()]
    ordered = jaxpr.replace(eqns=eqns)
    return ordered if jaxpr is closed else closed.replace(jaxpr=ordered)


def _inner_by_demand(parameter: Any) -> Any:
    if isinstance(parameter, tuple):
        return tuple(map(_inner_by_demand, parameter))
    return by_demand(parameter) if hasattr(opened(parameter), "eqns") else parameter
