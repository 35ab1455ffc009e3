"""Checks of the values that a caller gives: a ValueError names the argument, the value and what is allowed.

There are two kinds. ``integer``, ``real``, ``switch`` and ``choice`` check the value of one argument and return it as
the plain Python object that the code works with. ``finite``, ``probability``, ``positive`` and so on are rules for the
entries of an array; a field of a pytree names one, as in ``array(ndim=0, check=positive)``.
"""

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

Check = Callable[[np.ndarray], tuple[np.ndarray, str]]  # values -> (which are allowed, what is allowed)

MAX_INT32 = 2**31 - 1


def finite(values: np.ndarray) -> tuple[np.ndarray, str]:
    return np.isfinite(values), "finite"


def probability(values: np.ndarray) -> tuple[np.ndarray, str]:
    return (values >= 0) & (values <= 1), "in [0, 1]"


def open_probability(values: np.ndarray) -> tuple[np.ndarray, str]:
    return (values > 0) & (values < 1), "in (0, 1)"


def below_one(values: np.ndarray) -> tuple[np.ndarray, str]:
    return (values >= 0) & (values < 1), "in [0, 1)"


def positive(values: np.ndarray) -> tuple[np.ndarray, str]:
    return np.isfinite(values) & (values > 0), "positive and finite"


def non_negative(values: np.ndarray) -> tuple[np.ndarray, str]:
    return np.isfinite(values) & (values >= 0), "non-negative and finite"


def integer(name: str, value: Any, minimum: int = 1, maximum: int | None = None, what: str = "") -> int:
    """``value`` as an int: an int, a NumPy integer, or a float that is one, such as 5e6; never a boolean.

    Args:
      name: the argument's name, for the message.
      value: the value that was given.
      minimum: the smallest value allowed.
      maximum: the largest value allowed; no limit if None.
      what: text that follows the range in the message, e.g. " items".
    """
    whole = _whole(value)
    if whole is None or whole < minimum or (maximum is not None and whole > maximum):
        if maximum is not None:
            rule = f"an integer from {minimum} to {maximum}{what}"
        else:
            rule = "a positive integer" if minimum == 1 else f"an integer of at least {minimum}{what}"
        raise ValueError(f"{name} must be {rule}; got {value!r:.60}")
    return whole


def integers(name: str, values: Iterable[Any]) -> np.ndarray:
    """int64[n]: a list of any length, each of its values an integer as ``integer`` defines it, of either sign."""
    try:
        listed = list(values)
    except TypeError:
        raise ValueError(f"{name} must be a list of integers; got {values!r:.60}") from None
    wholes = [_whole(value) for value in listed]
    for value, whole in zip(listed, wholes, strict=True):
        if whole is None or not -(2**63) <= whole < 2**63:
            raise ValueError(f"{name} must be integers of at most 64 bits; got {value!r:.60}")
    return np.array(wholes, np.int64)


def rectangular(name: str, values: Any) -> np.ndarray:
    """``values``, an array or lists of numbers, as an array: a ValueError if rows have different lengths."""
    try:
        return np.asarray(values)
    except ValueError:
        lengths = [len(row) if hasattr(row, "__len__") else "a number" for row in values]
        got = "different shapes" if len(set(lengths)) == 1 else f"lengths {lengths!r:.60}"
        raise ValueError(f"{name} must have rows of one length; got {got}") from None


def real(name: str, value: Any, check: Check = finite) -> float:
    """``value`` as a float that ``check`` allows; never a boolean."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number and np.ndim(value) == 0 and getattr(value, "dtype", np.dtype(bool)).kind in "iuf":
        is_number = True  # an array of one number
    if not is_number:
        raise ValueError(f"{name} must be a number; got {value!r:.60}")
    allowed, rule = check(np.asarray(float(value)))
    if not allowed:
        raise ValueError(f"{name} must be {rule}; got {value!r:.60}")
    return float(value)


def switch(name: str, value: Any) -> bool:
    """``value``, which must be a bool, as a plain Python bool."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; got {value!r:.60}")
    return bool(value)


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """``value``, which must be one of the ``allowed`` names; the message suggests the closest one."""
    names = list(allowed)
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{name} must be {one_of(names)}; got {value!r:.60}{did_you_mean(value, names)}")
    return value


def one_of(names: Iterable[Any]) -> str:
    """The names that are allowed, as a message lists them: "'a' or 'b'", or "one of a, b, c"."""
    names = list(names)
    return " or ".join(map(repr, names)) if len(names) <= 2 else f"one of {', '.join(map(str, names))}"


def did_you_mean(value: Any, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: a suggestion of the closest known name, or "" if none is close.

    Of names such as "bubblerank:delta", what stands after the colon is compared.
    """
    known = {name.rpartition(":")[2]: name for name in names}
    close = difflib.get_close_matches(str(value).rpartition(":")[2], list(known), n=1)
    return f"; did you mean {known[close[0]]!r}?" if close else ""


@contextlib.contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Lets a ValueError in the block speak of arguments by the ``names`` under which the caller took them.

    An argument is what a message begins with ("path must be …"), or what it gives the value of ("num_steps = 10").
    """
    try:
        yield
    except ValueError as error:
        text = str(error)
        for old, new in names.items():
            pattern = rf"^{re.escape(old)}(?= )|(?<![\w.]){re.escape(old)}(?= = )"
            text = re.sub(pattern, new.replace("\\", r"\\"), text)
        if text == str(error):
            raise
        raise ValueError(text) from None


def _whole(value: Any) -> int | None:
    """``value`` as an int; None if it is not a whole number."""
    if isinstance(value, bool | np.bool_) or np.ndim(value) != 0:
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return int(value) if np.isfinite(value) and float(value).is_integer() else None
    if getattr(getattr(value, "dtype", None), "kind", "") in ("i", "u", "f"):  # an array of one number
        return _whole(value.item())
    return None
