"""What makes two runs the same: a configuration as JSON, with digests of all that is too long to write out.

A checkpoint stores it, and a run with another configuration is refused; the processes of a run compare theirs.
"""

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxrank.core.own_code import classes, code_of
from jaxrank.core.version import __version__
from jaxrank.engine.task import Task

FORMAT = 3  # of checkpoints


def configuration(task: Task) -> dict[str, Any]:
    """All that must be the same for two runs to have the same numbers."""
    request = task.request
    state = jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape[1:])}", task.lane_shapes(1).state)
    return {
        "format": FORMAT,
        "jaxrank": __version__,
        "policy": described(task.policy),
        "environment": described(task.environment),
        **_classes(task.policy, task.environment),
        "state of a lane": str(state),
        "num_steps": request.num_steps,
        "recorded steps": described(task.steps),
        "seed": request.seed,
        "prng": request.prng,
        "instances": described(task.instance_ids),
        "seeds": described(task.seed_ids),
        "metrics": list(task.metrics),
        "probes": {name: described(look) for name, look in task.probes.items()},
        "skip_settled": task.skip_settled,
        "float64": bool(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
    }


def _classes(*trees: Any) -> dict[str, Any]:
    """The fields of every class, whose values alone do not tell that one was renamed, and digests of users' code."""
    fields = {cls.__name__: [f.name for f in dataclasses.fields(cls)] for tree in trees for cls in classes(tree)}
    code = {f"code of {name}": digest for name, digest in code_of(trees).items()}
    return {f"fields of {name}": names for name, names in fields.items()} | code


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, value in one, value in the other), for every name whose values differ; None where it is missing."""
    names = dict.fromkeys([*one, *other])
    return [(name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)]


def described(value: Any) -> str:
    """A policy, an environment or numbers: what they look like, and a digest of what they hold."""
    text = str(value.tolist()) if isinstance(value, np.ndarray) else repr(value)
    return f"{without_addresses(text if len(text) < 200 else text[:200] + '…')} #{digest(value)}"


def digest(tree: Any) -> str:
    """A short hash of a pytree's structure and leaves, the same in every process."""
    leaves, structure = jax.tree.flatten(tree)
    hashed = hashlib.blake2b(without_addresses(str(structure)).encode(), digest_size=8)
    for leaf in leaves:
        values = np.ascontiguousarray(leaf)
        hashed.update(f"{values.dtype}{values.shape}".encode())
        hashed.update(values.view(np.uint8).data if values.size else b"")
    return hashed.hexdigest()


def without_addresses(text: str) -> str:
    """What Python writes of an object that has no name, without where it is in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)
