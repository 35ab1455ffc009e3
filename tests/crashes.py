"""A disk that remembers every operation, and what would be left of it after a crash.

``Recorder`` takes the place of ``jaxrank.output.files.disk``: operations reach the real disk and are written down.
``after_crash`` rebuilds what a disk may hold after a crash that lets only the first ``count`` of them happen, in one of
these ways:

- "kept": everything, as after a SIGKILL: the system still writes what it has in memory;
- "lost": only what was synced, as after a power failure: contents by ``sync``, names by ``sync_folder``;
- "names first": all names, but no content that was not synced: files are empty, as on file systems that write names
  before contents;
- "torn": all names, and of contents that were not synced the first half, followed by zeros;
- "removals first": of the names that were not synced, the removals alone: old files are gone, new ones are not there.
  A file that another was renamed to is there, old or new: that is what all file systems promise of a renaming.

``Failing`` is a disk on which one operation fails.
"""

import itertools
import os
from pathlib import Path

from jaxrank.output.files import Disk

WAYS = ("kept", "lost", "names first", "torn", "removals first")


class Recorder(Disk):
    """Writes down all operations below ``root``."""

    def __init__(self, root):
        self.root, self.log, self.files, self.numbers = root, [], {}, itertools.count()

    def _note(self, name, *what):
        self.log.append((name, *(str(x.relative_to(self.root)) if isinstance(x, Path) else x for x in what)))

    def make_folder(self, path):
        super().make_folder(path)
        self._note("make_folder", path)

    def create(self, path):
        handle = super().create(path)
        self.files[handle] = next(self.numbers)
        self._note("create", path, self.files[handle])
        return handle

    def write(self, handle, piece):
        super().write(handle, piece)
        self._note("write", self.files[handle], bytes(piece))

    def sync(self, handle):
        super().sync(handle)
        self._note("sync", self.files[handle])

    def sync_folder(self, path):
        super().sync_folder(path)
        if path.is_relative_to(self.root):
            self._note("sync_folder", path)

    def rename(self, old, new):
        super().rename(old, new)
        self._note("rename", old, new)

    def remove(self, path):
        super().remove(path)
        self._note("remove", path)

    def remove_folder(self, path):
        super().remove_folder(path)
        self._note("remove_folder", path)


class Failing(Recorder):
    """Operation ``number``, from 0, fails with the error ``code``; all others succeed."""

    def __init__(self, root, number, code):
        super().__init__(root)
        self.number, self.code, self.count, self.failed = number, code, 0, ""

    def _attempt(self, name):
        self.count += 1
        if self.count == self.number + 1:
            self.failed = name
            raise OSError(self.code, os.strerror(self.code))


def _attempting(name):
    def operation(self, *arguments):
        self._attempt(name)
        return getattr(super(Failing, self), name)(*arguments)

    return operation


for _name in ("make_folder", "create", "write", "sync", "sync_folder", "rename", "remove", "remove_folder"):
    setattr(Failing, _name, _attempting(_name))


def after_crash(log, count, way):
    """{path: content, or None for a folder}: what is on the disk."""
    names, synced_names, removed = {}, {}, set()  # path -> number of a file, or None for a folder
    contents, synced = {}, {}
    for operation, *what in log[:count]:
        if operation == "make_folder":
            names[what[0]] = None
        elif operation == "create":
            names[what[0]] = what[1]
            contents[what[1]], synced[what[1]] = b"", b""
        elif operation == "write":
            contents[what[0]] += what[1]
        elif operation == "sync":
            synced[what[0]] = contents[what[0]]
        elif operation == "sync_folder":
            inside = {path for path in {*names, *synced_names} if os.path.dirname(path) == what[0].removeprefix(".")}
            for path in inside:
                if path in names:
                    synced_names[path] = names[path]
                else:
                    synced_names.pop(path)
            removed -= inside
        elif operation == "rename":
            names[what[1]] = names.pop(what[0])
            removed.add(what[0])
        else:
            names.pop(what[0])
            removed.add(what[0])
    if way == "lost":
        names = synced_names
    elif way == "removals first":
        names = {path: number for path, number in synced_names.items() if path not in removed}
    left = {}
    for path, number in sorted(names.items()):
        if number is None:
            left[path] = None
        elif way == "kept":
            left[path] = contents[number]
        elif way == "torn":
            whole, safe = contents[number], len(synced[number])
            half = (safe + len(whole)) // 2
            left[path] = whole[:half] + bytes(len(whole) - half)
        else:
            left[path] = synced[number]
    return {path: content for path, content in left.items() if _reachable(path, left)}


def _reachable(path, left):
    above = os.path.dirname(path)
    return not above or (left.get(above, b"") is None and _reachable(above, left))


def lay_out(folder, left):
    """Makes ``folder`` hold what is left. Temporary files are those of a process that is dead."""
    folder.mkdir()
    for path, content in sorted(left.items()):
        path = path.replace(f"-{os.getpid()}-", "-999999999-") if path.endswith(".part") else path
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)


def different(log):
    """[(count, way, what is left)]: the different disks after a crash at any point of the log, in any way."""
    seen, found = set(), []
    for count in range(len(log) + 1):
        for way in WAYS:
            left = after_crash(log, count, way)
            # What temporary files hold does not matter: nobody reads them.
            key = tuple((path, "part" if path.endswith(".part") else content) for path, content in left.items())
            if key not in seen:
                seen.add(key)
                found.append((count, way, left))
    return found
