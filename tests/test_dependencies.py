"""Every declared dependency is used, every used one is declared, and each has a lower bound."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGE, BENCH, TESTS = ROOT / "jaxrank", ROOT / "jaxrank" / "bench", ROOT / "tests"

DISTRIBUTIONS = {
    "markdown_it": "markdown-it-py",
    "pytrec_eval": "pytrec-eval-terrier",
}  # module: what pip calls it, where the names differ
TAKES_ENGINE = ("load_dataset", "open_dataset", "to_netcdf")  # of xarray, which imports the engine by its name
NEEDED_BY = {  # declared but neither imported nor named: another dependency needs it
    "h5py": "h5netcdf",  # which reads and writes files with it, but does not require it
    "jaxlib": "jax",
}
TOOLS = {"build", "ipykernel", "mypy", "pytest-xdist", "ruff", "setuptools-scm"}  # run, not imported


def names(requirements):
    return {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}


def modules(node):
    """The modules that one node of a syntax tree imports, or names as xarray's engine."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module]
    if isinstance(node, ast.Call) and getattr(node.func, "attr", None) in TAKES_ENGINE:
        engines = [keyword.value for keyword in node.keywords if keyword.arg == "engine"]
        return [engine.value for engine in engines if isinstance(engine, ast.Constant)]
    return []


def used(files, local=()):
    """The third-party distributions that Python files use, wherever in a file the import stands."""
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    found = {module.split(".")[0] for node in nodes for module in modules(node)}
    return {DISTRIBUTIONS.get(name, name) for name in found - sys.stdlib_module_names - {"jaxrank", *local}}


DEPENDENCIES = names(PROJECT["dependencies"])
EXTRAS = {extra: names(requirements) for extra, requirements in PROJECT["optional-dependencies"].items()}


def test_the_dependencies_are_what_the_package_uses():
    skeletons = {path.stem for path in (PACKAGE / "skeletons").glob("*.py")}
    found = used((file for file in PACKAGE.rglob("*.py") if BENCH not in file.parents), skeletons)
    assert found | {name for name, other in NEEDED_BY.items() if other in found} == DEPENDENCIES


def test_the_extra_bench_is_what_the_benchmarks_use_besides():
    assert used(BENCH.rglob("*.py")) - DEPENDENCIES == EXTRAS["bench"]
    assert used((ROOT / "benchmarks").rglob("*.py")) <= DEPENDENCIES | EXTRAS["bench"]


def test_the_extra_test_is_what_the_tests_use_besides():
    helpers = {path.stem for path in TESTS.glob("*.py")} | {path.parent.name for path in TESTS.glob("*/__init__.py")}
    assert (used(TESTS.rglob("*.py"), helpers) - DEPENDENCIES) | EXTRAS["bench"] | TOOLS == EXTRAS["test"]


def test_scripts_need_no_extra():
    assert used((ROOT / "scripts").rglob("*.py")) <= DEPENDENCIES


def test_every_requirement_has_a_lower_bound_and_no_upper_one():
    for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        assert [text for text in requirements if not re.fullmatch(r"[a-z0-9-]+>=[0-9.]+", text)] == []
