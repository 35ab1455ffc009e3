"""Files that are whole or not there, and folders that one run at a time writes to."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """A temporary name beside ``path``; renamed to it if the block succeeds, removed if not.

    An OSError in the block (a full disk, a folder that cannot be written) becomes a ValueError.
    """
    path = Path(path)
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        if isinstance(error, OSError):
            raise ValueError(f"path must be writable; cannot write {path}: {reason(error)}") from None
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file, whole or not at all."""
    with atomic_path(path) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str], what: str = "the output folder") -> Iterator[None]:
    """Makes ``folder`` and locks it for this process; a ValueError if it cannot be written or another process has it.

    The lock is the system's own (flock on a file that holds our process id), so it ends with the process, however that
    ends. On a file system without locks, nothing is locked.
    """
    file = Path(folder) / _LOCK
    handle = None
    try:
        while handle is None:
            file.parent.mkdir(parents=True, exist_ok=True)
            opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            if _take(opened, file, what):
                handle = opened
            else:
                os.close(opened)
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
    except OSError as error:
        if handle is not None:
            os.close(handle)
        raise ValueError(f"{what} must be writable; cannot write {folder}: {reason(error)}") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()  # before the lock is released: a process that has opened it meanwhile sees that it is gone
        os.close(handle)


def reason(error: OSError) -> str:
    """The system's description of an error; of an HDF5 error, by the number in its message."""
    number = re.search(r"errno = (\d+)", str(error))
    return os.strerror(int(number[1])) if number else error.strerror or str(error)


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
