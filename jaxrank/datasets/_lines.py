"""Text files, plain or gzipped, one line at a time, with errors that say where.

Lines, and what a gzipped file holds, have limits (``core/limits.py``): a file of 10 MB may unpack to 10 GB.
"""

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from jaxrank.core.limits import limit, refuse_beyond
from jaxrank.output.files import open_regular

_SMALL = 2**28  # bytes that any gzipped file may hold
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
    if not path.exists():
        raise ValueError(f"path must be a text file; there is none at {path}")
    number = 0
    try:
        with open_regular(path) as file:
            gzipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = Bounded(gzip.GzipFile(fileobj=file) if gzipped else file, path)  # type: ignore[arg-type]
            for line in io.TextIOWrapper(io.BufferedReader(content, 2**18), "utf-8", errors="replace"):
                number += 1
                yield number, line
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}:{number + 1}: cannot be read: {error}") from None
    if number == 0:
        raise ValueError(f"{path}:1: the file is empty")


class Bounded(io.RawIOBase):
    """A file whose lines are not too long, and that is not too large for the file on disk that it was unpacked from."""

    def __init__(self, file: BinaryIO, path: str | os.PathLike[str]) -> None:
        self.file, self.path = file, path
        self.most = max(_SMALL, limit("JAXRANK_MAX_UNPACKED") * os.path.getsize(path))
        self.total, self.of_line = 0, 0  # bytes read so far, in all and since the last end of a line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        piece = self.file.read(len(buffer))
        buffer[: len(piece)] = piece
        self.total += len(piece)
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        self.of_line = len(piece) - end + (0 if end else self.of_line)
        refuse_beyond("JAXRANK_MAX_LINE_BYTES", f"{self.path}: a line", self.of_line, " bytes")
        if self.total > self.most:
            refuse_beyond(
                "JAXRANK_MAX_UNPACKED",
                f"{self.path}: what it unpacks to",
                limit("JAXRANK_MAX_UNPACKED") + 1,
                " times its size",
            )
        return len(piece)
