"""What is released: a wheel and an sdist with the package and nothing else, which run wherever they are installed."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What the package holds besides Python modules.
DATA = {"jaxrank/py.typed", "jaxrank/output/page.html", "jaxrank/skeletons/sweep.toml"}
BESIDE = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}  # in the sdist
MADE = {"PKG-INFO", "setup.cfg"}  # by setuptools


def run(*command, folder, **environment):
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def package_files():
    """The package's files, as Git has them."""
    listed = run("git", "ls-files", "jaxrank", folder=ROOT).splitlines()
    return {name for name in listed if (ROOT / name).exists()}


def test_the_package_is_python_and_the_data_that_is_declared():
    if not (ROOT / ".git").exists():
        pytest.skip("needs Git's list of files")
    assert {name for name in package_files() if not name.endswith(".py")} == DATA
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["jaxrank"]
    found = {f"jaxrank/{file.relative_to(ROOT / 'jaxrank')}" for p in declared for file in (ROOT / "jaxrank").glob(p)}
    assert found >= DATA


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(wheel, sdist), the wheel made of the sdist, as those that are uploaded."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs Git, from which the version comes")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, folder=out)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_package_and_nothing_else(built):
    wheel, sdist = built
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == package_files()
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert {name for name in held if ".egg-info/" not in name} == package_files() | BESIDE | MADE


@pytest.mark.slow
def test_the_wheel_runs_from_another_folder_in_an_environment_of_its_own(built, tmp_path):
    """With its dependencies and no others: a run, its report, a policy of one's own, a sweep."""
    wheel, _ = built
    run(sys.executable, "-m", "venv", "clean", folder=tmp_path)
    python, jaxrank = tmp_path / "clean" / "bin" / "python", tmp_path / "clean" / "bin" / "jaxrank"
    run(python, "-m", "pip", "install", "--quiet", wheel, folder=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    quiet = {"PYTHONPATH": "", "JAXRANK_DATA": ""}
    version = run(
        python, "-c", "import jaxrank; print(jaxrank.__version__, jaxrank.__file__)", folder=elsewhere, **quiet
    )
    assert str(tmp_path / "clean") in version and wheel.name.split("-")[1] in version.replace("+", "_")[:80] + version
    small = ["--queries", "2", "--items", "4", "--steps", "50", "--quiet"]
    run(jaxrank, "new", "policy", "my_policies.py", folder=elsewhere, **quiet)
    mine = ["--policy", "my_policies.py:ItemTS", "--policy", "bubblerank"]
    run(jaxrank, "run", *mine, *small, "--out", "results", folder=elsewhere, **quiet)
    assert (elsewhere / "results" / "report.html").stat().st_size > 1e6
    run(jaxrank, "new", "sweep", "sweep.toml", folder=elsewhere, **quiet)
    assert "6 cells" in run(jaxrank, "sweep", "sweep.toml", "--dry-run", folder=elsewhere, **quiet)


@pytest.mark.slow
def test_the_version_is_that_of_the_tag(tmp_path):
    """In a clone of its own, so that no tag is left in this one."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs Git, from which the version comes")
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", "--no-local", ROOT, clone, folder=tmp_path)
    if (ROOT / "MANIFEST.in").read_text() != (clone / "MANIFEST.in").read_text():
        pytest.skip("there are changes that are not committed")
    code = "from setuptools_scm import get_version; print(get_version())"
    before = run(sys.executable, "-c", code, folder=clone).strip()
    assert ".dev" in before, "without a tag at this commit, a version in development"
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    run("git", *identity, "tag", "-a", "v7.8.9", "-m", "jaxrank 7.8.9", folder=clone)
    assert run(sys.executable, "-c", code, folder=clone).strip() == "7.8.9"
