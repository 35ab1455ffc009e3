"""Names for the command line and for users' own."""

import pytest

import jaxrank as jr


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
        from jaxrank.core import registry

        del registry._REGISTRY["policy"]["mine"]


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
