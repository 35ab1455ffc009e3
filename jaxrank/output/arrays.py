"""Arrays by name as bytes: for checkpoints, copies of datasets, and what processes send each other.

One line says what it is, a line of JSON what follows, and then come the arrays' own bytes, one after the other. Reading
runs no code, and allocates no more than there are bytes.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from jaxrank.output.files import Bytes, Name, unsealed, write_sealed

_FIRST = b"jaxrank arrays 1\n"
_MAX_HEADER = 2**24  # bytes
_TYPE = re.compile(r"[<>|][biufcV]\d{1,2}")  # no objects, no text


def save_arrays(path: Name, about: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a sealed file of ``arrays``, and of ``about``, which is any JSON."""
    write_sealed(path, pack(about, arrays))


def load_arrays(path: Name) -> tuple[Any, dict[str, np.ndarray]]:
    """What ``save_arrays`` wrote; a ValueError if it is damaged, an OSError if it cannot be read."""
    with unsealed(path) as (file, size):
        return unpack(file, size)


def pack(about: Any, arrays: Mapping[str, np.ndarray]) -> list[Bytes]:
    """Pieces of bytes, which ``unpack`` takes joined."""
    listing = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    header = json.dumps({"about": about, "arrays": listing}).encode()
    flat = [np.ascontiguousarray(array).reshape(-1) for array in arrays.values()]
    return [_FIRST, header, b"\n", *(array.view(np.uint8).data for array in flat if array.size)]


def unpack(file: BinaryIO, size: int) -> tuple[Any, dict[str, np.ndarray]]:
    """(about, arrays) from the first ``size`` bytes of ``file``; a ValueError if they are not what ``pack`` made."""
    first, header = file.readline(len(_FIRST)), file.readline(_MAX_HEADER)
    if first != _FIRST:
        raise ValueError("it is no file of arrays")
    try:
        content = json.loads(header)
        about, listing = content["about"], content["arrays"]
        sizes = {str(name): (_dtype(text), tuple(map(_length, shape))) for name, text, shape in listing}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("its list of arrays cannot be read") from None
    expected = sum(math.prod(shape) * dtype.itemsize for dtype, shape in sizes.values())
    if len(first) + len(header) + expected != size:
        raise ValueError("its arrays do not add up to its size")
    arrays = {name: np.empty(shape, dtype) for name, (dtype, shape) in sizes.items()}
    for array in arrays.values():
        if array.size and file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:  # type: ignore[attr-defined]
            raise ValueError("it ends early")
    return about, arrays


def _dtype(text: str) -> np.dtype[Any]:
    if not _TYPE.fullmatch(text):
        raise ValueError(text)
    return np.dtype(text)


def _length(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value
