"""Objects that print, compare, pickle and go through JAX's transformations."""

import pickle
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrank as jr
from jaxrank.core.pytrees import leaf_axes, num_instances

FLOAT = jnp.zeros(()).dtype  # float32, or float64 under JAX_ENABLE_X64
ENVIRONMENT = jr.ClickBandit(jr.PositionBasedModel([[0.1, 0.4, 0.2], [0.3, 0.2, 0.6]], [1.0, 0.5, 0.2]), top=2)


def test_objects_print_what_was_asked_for():
    assert repr(jr.BubbleRank(delta=0.125)) == "BubbleRank(delta=0.125)"
    assert repr(jr.CascadeModel([0.25, 0.5])) == "CascadeModel(attraction=[0.25, 0.5])"
    assert repr(ENVIRONMENT).startswith(f"ClickBandit(click_model=PositionBasedModel(attraction={FLOAT}[2, 3]")


def test_objects_compare_by_value():
    assert jr.BubbleRank(delta=0.1) == jr.BubbleRank(delta=0.1)
    assert jr.BubbleRank(delta=0.1) != jr.BubbleRank(delta=0.2)
    assert jr.BubbleRank(delta=0.1) != jr.BubbleRank(horizon=10)
    assert jr.BubbleRank() != jr.StaticRanking()


def test_objects_pickle():
    for thing in (jr.BubbleRank(delta=0.1), ENVIRONMENT):
        assert pickle.loads(pickle.dumps(thing)) == thing


def test_objects_are_frozen():
    with pytest.raises(AttributeError):
        jr.BubbleRank().delta = 0.5


def test_a_tree_of_gradients_is_not_validated():
    model = jr.CascadeModel([0.2, 0.5, 0.3])
    gradient = jax.grad(lambda m: -m.reward(jnp.arange(3)))(model)
    assert isinstance(gradient, jr.CascadeModel)
    assert (gradient.attraction < 0).all()


def test_objects_can_be_made_inside_jit_and_vmap():
    rewards = jax.jit(jax.vmap(lambda a: jr.CascadeModel(a).reward(jnp.arange(2))))(jnp.array([[0.5, 0.5], [0.0, 0.1]]))
    np.testing.assert_allclose(rewards, [0.75, 0.1], rtol=1e-6)


def test_leaves_with_a_leading_axis_are_found_and_shared_leaves_stay_shared():
    names = [path[-1].name for path, _ in jax.tree_util.tree_leaves_with_path(ENVIRONMENT)]
    axes = dict(zip(names, leaf_axes(ENVIRONMENT), strict=True))
    assert axes["attraction"] == 0
    assert axes["examination"] is None
    assert num_instances(ENVIRONMENT) == 2
    assert num_instances(jr.ClickBandit(jr.CascadeModel([0.1, 0.2]))) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: jr.CascadeModel([0.2, 1.2]),
            r"CascadeModel\.attraction must be in \[0, 1\]; got 1\.2 at index \(1,\)",
        ),
        (lambda: jr.CascadeModel([0.2, float("nan")]), r"CascadeModel\.attraction must be in \[0, 1\]; got nan"),
        (lambda: jr.CascadeModel(0.2), r"CascadeModel\.attraction must have 1 dimensions, or 2 .* got shape \(\)"),
        (lambda: jr.CascadeModel([]), r"CascadeModel\.attraction must not be empty; got shape \(0,\)"),
        (lambda: jr.CascadeModel(["a"]), r"CascadeModel\.attraction must hold real numbers; got \['a'\]"),
        (
            lambda: jr.CascadeModel([[0.1, 0.2], [0.3]]),
            r"CascadeModel\.attraction must have rows of one length; got lengths \[2, 1\]",
        ),
        (
            lambda: jr.PositionBasedModel(np.full((2, 3), 0.5), np.full((4, 3), 0.5)),
            r"leading \(instance\) axes must have one length; .*attraction has 2, .*examination has 4",
        ),
        (lambda: jr.BubbleRank(horizon=2**40), r"BubbleRank\.horizon must fit int32; got 1099511627776"),
    ],
)
def test_bad_values_name_the_field_the_value_and_the_rule(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("annotation", "given", "message"),
    [
        (
            float,
            {"default": 0.1},
            r"got a bare float: write epsilon: float = jr.array\(ndim=0, default=0.1\) for a number",
        ),
        ("float", {"default": 0.1}, r"got a bare float: .*, or jr.static\(default=0.1\) for a shape or a switch"),
        (int, {}, r"write epsilon: int = jr.array\(ndim=0, dtype=jnp.int32\) for a number .* or jr.static\(\) for"),
        (Any, {"default": 0.1}, r"got a bare Any: write epsilon: Any = jr.array\(ndim=0, default=0.1\)"),
        (Optional[float], {"default": None}, r"jr.array\(ndim=0, default=None\)"),  # noqa: UP045
        (int | None, {"default": None}, r"got a bare int \| None"),
        (bool, {"default": True}, r"write epsilon: bool = jr.static\(default=True\) for a shape or a switch"),
        (str, {"default": "ucb"}, r"write epsilon: str = jr.static\(default='ucb'\) for a shape or a switch"),
    ],
)
def test_a_bare_number_or_switch_is_refused_when_the_class_is_made(annotation, given, message):
    body = {"__annotations__": {"epsilon": annotation}, **({"epsilon": given["default"]} if given else {})}
    with pytest.raises(ValueError, match=r"Mine\.epsilon must say what it is; .*" + message):
        jr.pytree(type("Mine", (), body))


def test_a_subclass_that_is_no_pytree_is_refused_when_an_object_is_made():
    class Plain(jr.BubbleRank):
        pass

    with pytest.raises(ValueError, match=r"Plain must be a pytree, as its base class is: put @jr\.pytree above it"):
        Plain(delta=0.1)


def test_what_the_refusal_says_to_write_can_be_swept_and_children_stay_bare():
    @jr.pytree
    class Mine:
        model: Any
        inner: dict[str, Any] | None = None
        epsilon: float = jr.array(ndim=0, default=0.1)

    assert num_instances(Mine(jr.CascadeModel([0.2, 0.5]))) is None
    assert num_instances(Mine(jr.CascadeModel([0.2, 0.5]), epsilon=[0.1, 0.2])) == 2


@jr.pytree
class Named:
    name: str = jr.static()


def test_a_notebook_shows_every_field_and_no_markup_of_the_values():
    shown = jr.ClickBandit(jr.CascadeModel(np.full((3, 20), 0.5)), list_size=5)._repr_html_()
    assert shown.startswith("<div><b>ClickBandit</b>") and "<b>CascadeModel</b> The user clicks" in shown
    assert "<code>float32[3, 20]</code>" in shown or "<code>float64[3, 20]</code>" in shown
    assert "list_size</td>" in shown and "<code>5</code>" in shown
    assert "<td" not in jr.StaticRanking()._repr_html_()
    assert "&lt;b&gt;" in Named("<b>")._repr_html_()
