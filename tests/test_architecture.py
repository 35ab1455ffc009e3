"""The folders are the architecture: who may import whom, and what is public."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import jaxrank as jr

PACKAGE = Path(jr.__file__).parent
# Who may import whom. ``core`` imports nothing of the others, the engine knows protocols and never a policy by name.
ALLOWED = {
    "core": set(),
    "output": {"core"},
    "click_models": {"core", "output"},  # fitting shows its progress
    "environments": {"core", "click_models"},
    "datasets": {"core", "output", "environments"},  # copies are files; ratings make a topic bandit
    "learning": {"core", "click_models", "datasets"},
    "policies": {"core", "learning"},  # rankers and their losses
    "engine": {"core", "output"},
    "studies": {"core", "output", "click_models", "environments", "datasets", "learning", "policies", "engine"},
    "bench": {"core", "output", "environments", "datasets", "engine"},
    "command": {"core", "output", "click_models", "datasets", "engine", "studies", "bench"},
    "testing": {"core", "click_models", "environments", "policies", "engine"},
    "__main__": {"command"},
    "skeletons": {""},  # what jaxrank new writes knows only what is public
}


def modules(package=PACKAGE):
    """{dotted name: syntax tree} of every module."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def imports(tree, known):
    """[(module, is it inside a function?)] of what ``tree`` imports: modules of ``known`` by their full names."""
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in whole]
        found += [(name, id(node) in inside) for name in names]
    return found


def room(module):
    """The folder of a module of jaxrank, "" for the package itself."""
    return [*module.split("."), ""][1]


def forbidden(trees):
    """Every import that ALLOWED does not have, as "importer -> imported"."""
    return sorted(
        f"{module} -> {imported}"
        for module, tree in trees.items()
        for imported, _ in imports(tree, trees)
        if imported.split(".")[0] == "jaxrank"
        and room(module)  # the package itself may import everything
        and room(imported) != room(module)
        and room(imported) not in ALLOWED[room(module)]
    )


def cycle(trees):
    """Modules that import each other in a circle when they are loaded; [] if there is none."""
    edges = {
        module: {name for name, lazy in imports(tree, trees) if name in trees and not lazy and name != module}
        for module, tree in trees.items()
        if room(module)
    }
    for module, tree in trees.items():  # imports for types alone are never executed
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                edges.get(module, set()).difference_update(name for name, _ in imports(node, trees))
    done, path = set(), []

    def visit(module):
        if module in path:
            return path[path.index(module) :]
        if module in done or module not in edges:
            return []
        path.append(module)
        for name in sorted(edges[module]):
            if found := visit(name):
                return found
        done.add(path.pop())
        return []

    return next((found for module in edges if (found := visit(module))), [])


TREES = modules()


def test_every_import_is_an_allowed_edge():
    assert forbidden(TREES) == []
    assert {room(module) for module in TREES} - {""} == set(ALLOWED), "every folder has its row"


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("jaxrank.engine.run", "from jaxrank.policies.bubblerank import BubbleRank"),
        ("jaxrank.core.ranking", "from jaxrank.engine import lanes"),
        ("jaxrank.policies.toprank", "def f():\n    import jaxrank.engine.simulation"),
        ("jaxrank.policies.toprank", "import jaxrank as jr"),
    ],
)
def test_a_forbidden_import_would_be_seen(module, line):
    assert len(forbidden(TREES | {module: ast.parse(line)})) == 1


def test_no_module_imports_itself_in_a_circle():
    assert cycle(TREES) == []
    back = ast.parse("from jaxrank.core.metrics import dcg")
    assert cycle(TREES | {"jaxrank.core.ranking": back}), "a circle would be seen"


def test_nothing_that_is_loaded_anyway_is_imported_in_a_function():
    code = "import json, sys, jaxrank; print(json.dumps(sorted(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(printed))
    lazy = [(module, name) for module, tree in TREES.items() for name, inside in imports(tree, TREES) if inside]
    assert [pair for pair in lazy if pair[1] in loaded] == []
    slow = {"xarray", "matplotlib", "pandas", "rich", "scipy.stats"}  # imported where they are used
    assert not loaded & slow


def test_importing_the_command_starts_no_device():
    """It may be told first how many CPU devices there are, or which other processes to join."""
    code = "import jaxrank.command.cli; from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_the_root_holds_three_modules():
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", "testing"}


def test_no_module_has_the_name_of_a_function_in_it():
    for module, tree in TREES.items():
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert module.rpartition(".")[2] not in defined, module


def test_what_is_public_is_one_list():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - set(jr.__all__)
    offered = {name for name in vars(jr) if not name.startswith("_")} - rooms - {"use_all_cores"}
    assert offered == set(jr.__all__) - {"__version__"}
    assert len(jr.__all__) == len(set(jr.__all__))
    for name in ("pytree", "array", "static", "distributed"):
        assert name in jr.__all__
