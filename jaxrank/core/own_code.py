"""Code that is not jaxrank's: a class or function by FILE.py:NAME or package.module:NAME, and what packages announce.

Importing a file, a module or an installed package runs its code, with all the rights of the user. So a name that was
read from a file of someone else's gives that file these rights.
"""

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Container, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from jaxrank.core.checks import did_you_mean

_REFERENCE = re.compile(r"(?P<source>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")
_FILES: dict[Path, ModuleType] = {}  # the files that were imported, so that a class is the same one every time
_CODE: dict[str, str] = {}  # the digests of the modules that were imported from here


def source_of(reference: str) -> str | None:
    """The file or module of a reference; None if ``reference`` is a plain name."""
    match = _REFERENCE.fullmatch(reference)
    return match and match["source"]


def located(reference: str, folder: Path) -> str:
    """The reference with the path of its file taken from ``folder``, if it is relative."""
    source = source_of(reference)
    if source is None or not source.endswith(".py"):
        return reference
    return f"{folder / source}{reference.removeprefix(source)}"


def load(kind: str, reference: str) -> Callable[..., Any]:
    """The class or function of a reference; a ValueError in one line says what is wrong with it."""
    match = _REFERENCE.fullmatch(reference)
    assert match is not None, reference
    source, name = match["source"], match["name"]
    module = _import_file(kind, source) if source.endswith(".py") else _import_module(kind, source)
    found = getattr(module, name, None)
    if not callable(found):
        classes = [other for other, value in vars(module).items() if isinstance(value, type)]
        raise ValueError(f"{kind} must be a class in {source}; it has no {name!r}{did_you_mean(name, classes)}")
    return _remembered(found)


def load_announced(kind: str, entry: EntryPoint) -> Callable[..., Any]:
    """The class or function that an installed package announces."""
    try:
        return _remembered(entry.load())
    except (Exception, SystemExit) as error:
        raise ValueError(f"{kind} {entry.name!r} of {package(entry)} cannot be loaded: {_reason(error)}") from None


def package(entry: EntryPoint) -> str:
    """The package that announces an entry point, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def announced(kind: str, group: str, taken: Container[str]) -> dict[str, EntryPoint]:
    """The entry points of a group by name, none of them loaded; a warning names each that is refused.

    Args:
      kind: what is announced, for the warnings.
      group: the group of entry points.
      taken: jaxrank's own names, which no package may take.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if entry.name in found and found[entry.name].value == entry.value:
            continue  # the same package, found twice
        if entry.name in taken:
            reason = "it is a name of jaxrank's own"
        elif entry.name in found:
            reason = f"{package(found[entry.name])} announces it too"
        elif not re.fullmatch(r"\w+", entry.name):
            reason = "a name must be letters, digits and underscores"
        else:
            found[entry.name] = entry
            continue
        warnings.warn(f"{kind} {entry.name!r} of {package(entry)} is refused: {reason}", RuntimeWarning, stacklevel=4)
    return found


def classes(tree: Any) -> Iterator[type]:
    """The classes of a pytree of dataclasses: its own and those of its children."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        yield type(tree)
        for field in dataclasses.fields(tree):
            yield from classes(getattr(tree, field.name))


def code_of(trees: Iterable[Any]) -> dict[str, str]:
    """Digests of the code, as it was imported, of the classes that were loaded from here, by their names."""
    found = {cls for tree in trees for cls in classes(tree) if cls.__module__ in _CODE}
    return {cls.__name__: _CODE[cls.__module__] for cls in sorted(found, key=lambda cls: cls.__name__)}


def _import_file(kind: str, source: str) -> ModuleType:
    path = Path(source).expanduser().resolve()
    if path in _FILES:
        return _FILES[path]
    if not path.is_file():
        raise ValueError(f"{kind} must be in a file that exists; there is none at {source}")
    name = f"{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"  # hides no other module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # for the modules beside it; last, so that they hide none
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(f"{kind} must be in a file that can be imported; {_reason(error, str(path))}") from None
    _FILES[path] = module
    return module


def _import_module(kind: str, source: str) -> ModuleType:
    try:
        return importlib.import_module(source)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{source}.".startswith(f"{error.name}."):
            raise ValueError(
                f"{kind} must be in a module that can be imported; there is no module {error.name!r} (a file is "
                "written with its ending: my_policies.py:ItemTS)"
            ) from None
        raise ValueError(f"{kind} must be in a module that can be imported; {source}: {_reason(error)}") from None


def _reason(error: BaseException, file: str | None = None) -> str:
    """An exception in one line, with the file and the line where it arose: in ``file``, if it came through there."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    inside = [frame for frame in frames if frame[0] == file]
    where = (inside or frames or [("", None)])[-1]
    message = str(error)
    if isinstance(error, SyntaxError) and error.filename:
        where, message = (error.filename, error.lineno), error.msg
    return f"{where[0]}, line {where[1]}: {type(error).__name__}: {' '.join(message.split()):.300}"


def _remembered(found: Callable[..., Any]) -> Callable[..., Any]:
    """``found``, with the digest of its module's code kept for ``code_of``. Comments and layout do not count.

    jaxrank's own code is told by its version.
    """
    if found.__module__.startswith("jaxrank."):
        return found
    file = getattr(sys.modules.get(found.__module__), "__file__", None)
    if file and file.endswith(".py") and found.__module__ not in _CODE:
        code = ast.unparse(ast.parse(Path(file).read_bytes()))
        _CODE[found.__module__] = hashlib.blake2b(code.encode(), digest_size=8).hexdigest()
    return found
