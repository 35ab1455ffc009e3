"""Files that are whole or not there, sealed, durable; and folders that one run at a time writes to.

All that jaxrank writes goes through this module, and all that changes a disk through ``Disk``, for which the crash
simulator of the tests puts one that fails or forgets.

A file is written under a temporary name beside its own, flushed to the disk, renamed, and then its folder is flushed.
So after a crash at any moment the old file is there or the new one, whole, and what was reported as written stays.

A sealed file also carries the SHA-256 digest of its content, which is compared before anything of it is used:

- of binary files (results, checkpoints, copies of datasets) the last 47 bytes, ``jaxrank sha256 `` and the digest,
  which readers of netCDF ignore;
- of JSON files (run.json, manifest.json) the member "sha256": the digest of the other members as canonical JSON.

A digest reveals damage. It is no signature: whoever can write a file can seal it, too.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import re
import socket
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from jaxrank.core.limits import refuse_beyond

try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None  # type: ignore[assignment]

Bytes = bytes | bytearray | memoryview
Name = str | os.PathLike[str]

_LOCK = ".lock"
_SEAL = b"jaxrank sha256 "
_SEAL_SIZE = len(_SEAL) + hashlib.sha256().digest_size
_PIECE = 2**20  # bytes read or written at a time
_PART = re.compile(r"\..+\.(?P<host>[^.]+)-(?P<process>\d+)-\d+\.part")  # temporary names
_HOST = re.sub(r"[^\w-]", "_", socket.gethostname())
_counter = itertools.count()


class UnwritableError(ValueError):
    """A file or folder that cannot be written: the disk is full, say, or the folder somebody else's."""


class Disk:
    """Everything that jaxrank does to a disk, one operation of the system each."""

    def make_folder(self, path: Path) -> None:
        os.mkdir(path)

    def create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, handle: int, piece: Bytes) -> None:
        view = memoryview(piece)
        while view:
            view = view[os.write(handle, view) :]

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def sync_folder(self, path: Path) -> None:
        try:
            handle = os.open(path, os.O_RDONLY)
        except PermissionError:  # Windows opens no folders
            return
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def remove_folder(self, path: Path) -> None:
        os.rmdir(path)


disk = Disk()


def write_bytes(path: Name, *pieces: Bytes) -> None:
    """Writes a file, whole or not at all: when this returns, it is on the disk. An ``UnwritableError`` says why not."""
    path = Path(path)
    temporary = path.with_name(f".{path.name[:100]}.{_HOST}-{os.getpid()}-{next(_counter)}.part")
    handle = -1
    try:
        make_folder(path.parent)
        remove_left_over(path.parent, path.name)
        handle = disk.create(temporary)
        try:
            for piece in _joined(pieces):
                disk.write(handle, piece)
            disk.sync(handle)
        finally:
            os.close(handle)
        disk.rename(temporary, path)
        disk.sync_folder(path.parent)
    except BaseException as error:
        if handle >= 0:
            with contextlib.suppress(OSError):
                disk.remove(temporary)
        if isinstance(error, OSError):
            raise UnwritableError(f"path must be writable; cannot write {path}: {reason(error)}") from None
        raise


def _joined(pieces: Iterable[Bytes]) -> Iterator[Bytes]:
    """The same bytes in pieces of at most 1 MB, small ones joined."""
    small = bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        if len(small) + len(view) > _PIECE:
            yield small
            small = bytearray()
            while len(view) > _PIECE:
                yield view[:_PIECE]
                view = view[_PIECE:]
        small += view
    yield small


def write_text(path: Name, text: str) -> None:
    """Writes a text file, as ``write_bytes`` does."""
    write_bytes(path, text.encode())


def write_sealed(path: Name, pieces: Iterable[Bytes]) -> None:
    """Writes a binary file with its seal; ``unsealed`` reads it."""
    pieces, hashed = list(pieces), hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
    write_bytes(path, *pieces, _SEAL + hashed.digest())


@contextlib.contextmanager
def unsealed(path: Name, fresh: bool = False) -> Iterator[tuple[BinaryIO, int]]:
    """Opens a sealed file, and yields it with the size of its content; a ValueError if its seal does not fit.

    With ``fresh``, the system is asked to read it from the disk even if it has it in memory.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size - _SEAL_SIZE
        file.seek(max(size, 0))
        seal = file.read()
        if size < 0 or not seal.startswith(_SEAL):
            raise ValueError("it is incomplete, or was written by another program")
        file.seek(0)
        if fresh and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        hashed, left = hashlib.sha256(), size
        while piece := file.read(min(left, _PIECE)):
            hashed.update(piece)
            left -= len(piece)
        if seal != _SEAL + hashed.digest():
            raise ValueError("it is damaged; its checksum does not match")
        file.seek(0)
        yield file, size


def write_json(path: Name, content: dict[str, Any]) -> None:
    """Writes a JSON object with its seal; ``read_json`` reads it."""
    content = json.loads(json.dumps(content))  # as it will be read: without tuples, and with keys that are text
    write_text(path, json.dumps({**content, "sha256": _digest(content)}, indent=1, ensure_ascii=False))


def read_json(path: Name) -> tuple[dict[str, Any], bool]:
    """The content of a JSON object, and whether it is sealed; a ValueError if it is, and its seal does not fit."""
    try:
        content = json.loads(read_small(path))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    seal = content.pop("sha256", None)
    if seal is not None and seal != _digest(content):
        raise ValueError("it is damaged, or was edited; its checksum does not match")
    return content, seal is not None


def read_small(path: Name) -> str:
    """The text of a JSON or TOML file; a ValueError if it is too large to be one, an OSError if it cannot be read."""
    with open_regular(path) as file:
        refuse_beyond("JAXRANK_MAX_JSON_BYTES", f"the size of {path}", os.fstat(file.fileno()).st_size, " bytes")
        return file.read().decode()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def open_regular(path: Name) -> BinaryIO:
    """Opens a file to read it; a ValueError if it is a pipe, a device or anything else that might never end."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"path must be a regular file; {path} is a folder, a pipe or a device")
    return open(handle, "rb")


def make_folder(path: Name) -> None:
    """Makes a folder and those above it, each of them on the disk; nothing if it is there. An OSError if it fails."""
    path = Path(path)
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    try:
        disk.make_folder(path)
    except FileExistsError:
        if not path.is_dir():  # or another process was quicker
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    disk.sync_folder(path.parent)


def require_folder(path: Name, what: str) -> None:
    """``make_folder``, with an ``UnwritableError`` that says which folder it was to be."""
    try:
        make_folder(path)
    except OSError as error:
        raise UnwritableError(f"{what} must be writable; cannot write {path}: {reason(error)}") from None


def set_aside(path: Path) -> None:
    """Renames a damaged file, so that it is not taken for a good one again; if that fails, it stays."""
    with contextlib.suppress(OSError):
        disk.rename(path, path.with_name(f"damaged-{path.name}"))


def remove(path: Name) -> None:
    """Removes a file, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        disk.remove(Path(path))


def remove_folder(path: Name) -> None:
    """Removes a folder, if it is there, empty, and can be removed."""
    with contextlib.suppress(OSError):
        disk.remove_folder(Path(path))


def remove_tree(folder: Name) -> None:
    """Removes a folder with all that is in it, as far as that can be removed. Links are removed and not followed."""
    folder = Path(folder)
    if folder.is_symlink() or not folder.is_dir():
        return
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                remove(path)
    remove_folder(folder)


def remove_left_over(folder: Path, name: str = "", alone: bool = False) -> None:
    """Removes temporary files, of ``name`` or of any file, that a killed process has left in ``folder``.

    Those of living processes stay. Whether a process of another machine lives is not known: its files go only if this
    process is ``alone`` here.
    """
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            found = _PART.fullmatch(path.name)
            if not found or not path.name.startswith(f".{name[:100]}"):
                continue
            here, process = found["host"] == _HOST, int(found["process"])
            if alone if not here or process == os.getpid() else not _lives(process):
                remove(path)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


@contextlib.contextmanager
def locked(folder: Name, what: str = "the output folder") -> Iterator[None]:
    """Makes ``folder`` and locks it for this process; a ValueError if it cannot be written or another process has it.

    The lock is the system's own (flock on a file that holds our process id), so it ends with the process, however that
    ends. On a file system without locks, nothing is locked. What killed processes have left there is removed.
    """
    folder = Path(folder)
    file = folder / _LOCK
    handle = None
    try:
        while handle is None:
            make_folder(folder)
            opened = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
            if _take(opened, file, what):
                handle = opened
            else:
                os.close(opened)
    except OSError as error:
        raise UnwritableError(f"{what} must be writable; cannot write {folder}: {reason(error)}") from None
    with contextlib.suppress(OSError):  # the number is for messages only: a full disk may have no room for it
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
    try:
        remove_left_over(folder, alone=True)
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()  # before the lock is released: a process that has opened it meanwhile sees that it is gone
        os.close(handle)


def refuse_links(root: Path, path: Path) -> None:
    """A ValueError if ``path``, below ``root``, leads elsewhere by a symbolic link."""
    for part in (path, *path.parents):
        if part == root:
            return
        if part.is_symlink():
            raise ValueError(f"{root} must hold no links, through which a run would write elsewhere; {part} is one")


def reason(error: OSError) -> str:
    """The system's description of an error."""
    return error.strerror or str(error)


def _take(handle: int, file: Path, what: str) -> bool:
    """Locks the open ``file``; False if it was removed in the meantime."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process = os.pread(handle, 20, 0).decode(errors="replace")
        os.close(handle)
        raise ValueError(
            f"{what} must be free; another run{f' (process {process})' if process else ''} is writing to "
            f"{file.parent}: wait until it ends, or choose another folder"
        ) from None
    except OSError:
        return True
    try:
        return os.path.samestat(os.fstat(handle), os.stat(file))
    except FileNotFoundError:
        return False
