"""``jaxrank new``: a policy, a click model or an environment to start from, with its test beside it; or a sweep.

The files of ``jaxrank/skeletons`` are copied, and the module takes the name that the user chose. They are tested where
they are, as any other code.
"""

import importlib.util
import re
from importlib.resources import files
from pathlib import Path

from jaxrank.core.checks import choice
from jaxrank.output.files import write_text

SKELETONS = {  # kind -> module, its class, and how jaxrank run names it
    "policy": ("my_policies", "ItemTS", "--policy {} --policy bubblerank"),
    "click-model": ("my_click_models", "RankBiasedModel", "--click-model {}"),
    "environment": ("my_environments", "TwoKinds", "--world {} --policy bubblerank"),
}


def write_skeleton(kind: str, path: Path) -> tuple[Path, Path, str]:
    """Writes a module at ``path`` and its test beside it; returns both, and the options of ``jaxrank run`` for it."""
    module, cls, options = SKELETONS[choice("KIND", kind, (*SKELETONS, "sweep"))]
    if path.suffix != ".py" or not path.stem.isidentifier() or path.stem.startswith("test_"):
        raise ValueError(f"FILE must be a Python file with a name that can be imported, as {module}.py; got {path}")
    test = path.with_name(f"test_{path.name}")
    for file in (path, test):
        if file.exists():
            raise ValueError(f"FILE must be new, and so must its test; {file} exists: choose another name")
    if importlib.util.find_spec(path.stem) is not None:
        raise ValueError(f"FILE must not hide another module; there is one of the name {path.stem!r}: choose another")
    for file, skeleton in ((path, f"{module}.py"), (test, f"test_{module}.py")):
        text = (files("jaxrank") / "skeletons" / skeleton).read_text(encoding="utf-8")
        write_text(file, re.sub(rf"\b(test_)?{module}\b", lambda found: f"{found[1] or ''}{path.stem}", text))
    return path, test, options.format(f"{path}:{cls}")


def write_sweep(path: Path) -> Path:
    """Writes the TOML file of a sweep to start from; returns its path."""
    if path.suffix != ".toml":
        raise ValueError(f"FILE must be a TOML file, as sweep.toml; got {path}")
    if path.exists():
        raise ValueError(f"FILE must be new; {path} exists: choose another name")
    write_text(path, (files("jaxrank") / "skeletons" / "sweep.toml").read_text(encoding="utf-8"))
    return path
