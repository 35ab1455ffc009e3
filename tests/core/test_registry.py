"""Names for the command line and for users' own."""

import pytest

import jaxrank as jr
from jaxrank.core import registry


def test_make_passes_options_on():
    assert jr.make("bubblerank", delta=0.1) == jr.BubbleRank(delta=0.1)
    assert jr.make("cm", kind="click_model", attraction=[0.5]) == jr.CascadeModel([0.5])


def test_users_register_their_own():
    jr.register("mine", jr.StaticRanking)
    try:
        assert "mine" in jr.available()
        assert jr.make("mine") == jr.StaticRanking()
        with pytest.raises(ValueError, match="already a registered policy"):
            jr.register("mine", jr.RandomRanking)
    finally:
        del registry._REGISTRY["policy"]["mine"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bubblerank:doubling=false,delta=1e-3", {"doubling": False, "delta": 1e-3}),
        ("bubblerank:doubling=True,horizon=5e6", {"doubling": True, "horizon": 5_000_000}),
        ("cascade_lin_ucb:full=true", {"full": True}),
        ("mgd:num_candidates=3", {"num_candidates": 3}),
        ("pbm_ucb:examination=[1,0.5],epsilon=0.1", {"examination": [1, 0.5], "epsilon": 0.1}),
    ],
)
def test_options_are_read_as_the_type_that_the_field_declares(text, expected):
    name, options = registry.parse("--policy", text)
    read = registry.read_options("--policy", name, options)
    assert read == expected and [type(value) for value in read.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bubblerank:doubling=maybe", "bubblerank:doubling must be 'true' or 'false'; got 'maybe'"),
        ("bubblerank:doubling=1", "bubblerank:doubling must be 'true' or 'false'; got '1'"),
        ("cascade_lin_ucb:full=3", "cascade_lin_ucb:full must be 'true' or 'false'; got '3'"),
        ("cascade_hybrid:exploration=us", "cascade_hybrid:exploration must be 'ucb' or 'ts'; got 'us'"),
        ("mgd:num_candidates=2.5", "mgd:num_candidates must be an integer from .*; got 2.5"),
        (
            "bubblerank:delta=" + "-" * 3000 + "1",
            "bubblerank:delta must be a number, or a list of numbers .*; got '---",
        ),
        ("bubblerank:delta=" + "[" * 30000, "bubblerank:delta must be a number, or a list of numbers .*; got "),
        ("bubblerank:name=x", "an option of --policy must be one of bubblerank:delta, .*; got 'bubblerank:name'"),
        ("pdgd:ranker=x", "pdgd:ranker must be an object, which only a program in Python can give; got 'x'"),
        ("pdgd:optimizer=x", "pdgd:optimizer must be an object, which only a program in Python can give; got 'x'"),
        ("bubblerank:delta", "--policy must look like name:option=value,option=value; got 'bubblerank:delta'"),
    ],
)
def test_options_that_are_no_such_value_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        name, options = registry.parse("--policy", text)
        registry.read_options("--policy", name, options)


def test_options_of_functions_are_read_by_their_annotations_and_defaults():
    def factory(count: int, flag=False, share: float | None = None, label: "str" = "", other=None):
        return jr.StaticRanking()

    jr.register("typed", factory)
    try:
        assert registry.declared("typed") == {
            "count": "integer", "flag": "switch", "share": "number", "label": "text", "other": "any"
        }  # fmt: skip
        texts = {"count": "3", "flag": "false", "label": "3", "other": "true"}
        assert registry.read_options("--policy", "typed", texts) == {
            "count": 3, "flag": False, "label": "3", "other": True
        }  # fmt: skip
    finally:
        del registry._REGISTRY["policy"]["typed"]


@pytest.mark.parametrize("field", ["ranker", "optimizer"])
def test_text_in_the_place_of_an_object_is_refused(field):
    with pytest.raises(ValueError, match=rf"PDGD\.{field} must be .*, not text; got 'x'"):
        jr.make("pdgd", **{field: "x"})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jr.make("bubblesort"), "policy must be one of static, random, .*; got 'bubblesort'"),
        (
            lambda: jr.make("bubblerank", dleta=1),
            "an option of bubblerank must be one of delta, .*; did you mean 'delta'",
        ),
        (lambda: jr.make("cm", kind="click_model"), "options of cm: .*'attraction'"),
        (lambda: jr.available("metric"), "kind must be one of policy, click_model, environment; got 'metric'"),
        (lambda: jr.register("a b", jr.StaticRanking), "name must be letters, digits and underscores; got 'a b'"),
    ],
)
def test_unknown_names_list_the_known_ones(call, message):
    with pytest.raises(ValueError, match=message):
        call()
