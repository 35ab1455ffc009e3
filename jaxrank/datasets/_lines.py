"""Text files, plain or gzipped, one line at a time, with errors that say where."""

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

Reader = Callable[[list[str]], None]  # takes the fields of a line, or raises a ValueError


def each_line(path: str | os.PathLike[str], read: Reader, header: Reader | None = None) -> None:
    """Passes the fields of every line to ``read``, and adds the file and the line number to its errors."""
    for number, line in lines(path):
        try:
            (header if header and number == 1 else read)(line.rstrip("\r\n").split("\t"))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None


def integers(name: str, texts: Sequence[str]) -> list[int]:
    """Non-negative int64 ids."""
    try:
        values = [int(text) for text in texts]
    except ValueError:
        raise ValueError(f"{name} must be integers; got {','.join(texts)!r:.60}") from None
    if values and not (min(values) >= 0 and max(values) < 2**63):
        raise ValueError(f"{name} must be from 0 to 2**63 - 1; got {','.join(texts)!r:.60}")
    return values


def lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Line numbers, from 1, and lines."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path must be a text file; there is none at {path}")
    number = 0
    try:
        with open(path, "rb") as file:
            gzipped = file.peek(2)[:2] == b"\x1f\x8b"
            text = io.TextIOWrapper(gzip.GzipFile(fileobj=file) if gzipped else file, "utf-8", errors="replace")
            for line in text:
                number += 1
                yield number, line
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}:{number + 1}: cannot be read: {error}") from None
    if number == 0:
        raise ValueError(f"{path}:1: the file is empty")
