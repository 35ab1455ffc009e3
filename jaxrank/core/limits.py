"""Limits of what is read or made: checked before the work, so that a mistake or a hostile file costs nothing.

Each has a name and a default, and is raised by setting the environment variable of its name. Its message says so.
"""

import os

DEFAULTS = {
    "JAXRANK_MAX_LINE_BYTES": 2**24,  # of a text file
    "JAXRANK_MAX_UNPACKED": 200,  # times its own size that a gzipped file may hold; small ones may hold 256 MB
    "JAXRANK_MAX_JSON_BYTES": 2**28,  # of a JSON or TOML file
    "JAXRANK_MAX_DENSE_BYTES": 2**30,  # of features; more if at least 1 in 64 of them is not 0
    "JAXRANK_MAX_SYNTHETIC": 2**24,  # numbers of a synthetic dataset
    "JAXRANK_MAX_ITEMS": 20_000,  # of a synthetic query
    "JAXRANK_MAX_LIST_SIZE": 1_000,  # positions: code is written out over them
    "JAXRANK_MAX_SIZE": 100_000,  # a number that is a shape of a policy, such as MGD's num_candidates
    "JAXRANK_MAX_CELLS": 10_000,  # of a sweep
    "JAXRANK_MAX_SETTINGS": 100_000,  # that one run of a sweep has side by side
}


def limit(name: str) -> int:
    """The value of a limit: its default, or that of the environment variable of its name."""
    text = os.environ.get(name)
    if text is None:
        return DEFAULTS[name]
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a number; got {text!r:.60}") from None


def refuse_beyond(name: str, what: str, value: int, unit: str = "") -> None:
    """Raises a ValueError if ``value`` exceeds the limit of this name."""
    if value > limit(name):
        raise ValueError(
            f"{what} must be at most {limit(name):,}{unit}; got {value:,}: to allow more, set the environment variable "
            f"{name}"
        )
