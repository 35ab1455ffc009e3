"""Classes that are not jaxrank's, by file, by module and by entry point: found, and refused in one line."""

import sys
import warnings

import pytest

import jaxrank as jr
from jaxrank.core import own_code, registry

POLICIES = """
import jaxrank as jr
import beside

@jr.pytree
class Shuffles(jr.RandomRanking):
    '''Shows the items in random order.'''

    strength: float = jr.array(ndim=0, default=beside.STRENGTH)

def shuffles(strength):
    return Shuffles(strength)

class Plain(jr.RandomRanking):
    pass

class Ranks:
    def rank(self, key, state, query): ...
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with some files; what is imported from there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "mine.py").write_text(POLICIES)
    (tmp_path / "beside.py").write_text("STRENGTH = 0.25")
    (tmp_path / "fails.py").write_text("import jax\n\ndef f():\n    return 1 / 0\n\nf()\n")
    (tmp_path / "stops.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "typo.py").write_text("x = 1\ndef f(:\n    pass\n")
    yield tmp_path
    sys.modules.pop("beside", None)


def made(text):
    name, options = registry.parse("--policy", text)
    return jr.make(name, **registry.read_options("--policy", name, options))


def test_a_file_or_a_module_names_a_class_or_a_function_with_options(folder, monkeypatch):
    assert repr(made("mine.py:Shuffles")) == "Shuffles(strength=0.25)"
    assert repr(made("mine.py:Shuffles:strength=2")) == "Shuffles(strength=2)"
    assert made(f"{folder}/mine.py:shuffles:strength=2") == made("mine.py:Shuffles:strength=2"), "one class, not two"
    assert made("jaxrank.policies.bubblerank:BubbleRank:delta=0.5") == jr.BubbleRank(delta=0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none.py:X", r"policy must be in a file that exists; there is none at none\.py"),
        ("fails.py:X", r"can be imported; .*fails\.py, line 4: ZeroDivisionError: division by zero"),
        ("stops.py:X", r"can be imported; .*stops\.py, line 1: SystemExit: 3"),
        ("typo.py:X", r"can be imported; .*typo\.py, line 2: SyntaxError: invalid syntax"),
        ("mine.py:Shuffle", r"policy must be a class in mine\.py; it has no 'Shuffle'; did you mean 'Shuffles'\?"),
        ("mine.py:Ranks", r"must have the members init, rank, update; it has no init, update"),
        ("mine.py:Plain", r"Plain must be a pytree, as its base class is: put @jr\.pytree above it"),
        (
            "mine.py:Shuffles:strenght=2",
            r"must be 'mine.py:Shuffles:strength'; got 'mine.py:Shuffles:strenght'; did you mean",
        ),
        ("mine.py:shuffles", r"options of mine\.py:shuffles: .*missing 1 required positional argument: 'strength'"),
        ("mine.py:Shuffles:strength", r"--policy must look like name:option=value"),
        ("mine.py", r"--policy must name a class of the file, as in mine\.py:MyClass; got 'mine\.py'"),
        ("nowhere.else:X", r"there is no module 'nowhere' \(a file is written with its ending"),
        ("jaxrank.nowhere:X", r"there is no module 'jaxrank\.nowhere'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, text, message):
    with pytest.raises(ValueError, match=message) as refused:
        made(text)
    assert "\n" not in str(refused.value)


def test_code_is_told_apart_by_what_it_does_and_not_by_its_comments(folder):
    digests = []
    for number, text in enumerate((POLICIES, POLICIES + "# more", POLICIES.replace("0.25", "0.5") + "x = 1")):
        (folder / f"mine{number}.py").write_text(text)
        digests.append(own_code.code_of([made(f"mine{number}.py:Shuffles")])["Shuffles"])
    assert digests[0] == digests[1] != digests[2]
    assert own_code.code_of([jr.BubbleRank()]) == {}


@pytest.fixture
def package(folder, monkeypatch):
    """An installed package that announces policies, good ones and bad ones."""
    entries = "good = mine:Shuffles\nbad = fails:X\nbubblerank = mine:Shuffles\nno-name = mine:Shuffles\n"
    metadata = folder / "theirs-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.5\n")
    worlds = "[jaxrank.environments]\nclick = mine:Shuffles\n"
    (metadata / "entry_points.txt").write_text(f"[jaxrank.policies]\n{entries}{worlds}")
    monkeypatch.syspath_prepend(str(folder))
    registry._announced.cache_clear()
    yield
    registry._announced.cache_clear()
    for name in ("mine", "fails"):
        sys.modules.pop(name, None)


def test_packages_announce_theirs_and_cannot_take_a_name_of_jaxrank(package):
    with pytest.warns(RuntimeWarning) as warned:
        assert {"good", "bad", "bubblerank"} <= set(jr.available()) and "no-name" not in jr.available()
        assert jr.available("environment").count("click") == 1
    said = [str(warning.message) for warning in warned]
    assert said == [
        "policy 'bubblerank' of theirs 1.5 is refused: it is a name of jaxrank's own",
        "policy 'no-name' of theirs 1.5 is refused: a name must be letters, digits and underscores",
        "environment 'click' of theirs 1.5 is refused: it is a name of jaxrank's own",
    ]
    assert repr(jr.make("good", strength=3)) == "Shuffles(strength=3)" and registry.origin("good") == "theirs 1.5"
    assert jr.make("bubblerank") == jr.BubbleRank() and registry.origin("bubblerank") is None
    with pytest.raises(ValueError, match=r"policy 'bad' of theirs 1\.5 cannot be loaded: .*fails\.py, line 4: ZeroDiv"):
        jr.make("bad")


def test_list_shows_where_a_policy_comes_from_and_survives_one_that_fails(package, capsys):
    from jaxrank.command.cli import main

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["list"]) == 0
    printed = capsys.readouterr()
    assert "good(strength)" in printed.out and "Shows the items in random order. [theirs 1.5]" in printed.out
    assert "bubblerank(delta, horizon, doubling, freeze_certain)" in printed.out and "  bad" not in printed.out
    assert sum("warning: policy 'bad' of theirs 1.5 cannot be loaded" in line for line in printed.err.splitlines()) == 1
