"""Pictures: every line can be told from the others, nothing is hidden, and the legend says what is drawn."""

import itertools

import numpy as np
import pytest
import xarray
from matplotlib import pyplot
from matplotlib.figure import Figure

import jaxrank as jr
from jaxrank.output import plotting
from jaxrank.output.plotting import panels, styles
from jaxrank.policies import __all__ as policy_names


@pytest.fixture(autouse=True)
def _no_figure_is_left_open():
    yield
    pyplot.close("all")


def curves(names, slope=1.0, queries=4, seeds=3):
    """A result with a line for each name, none higher than its predecessor, the last one 0 throughout."""
    steps = np.array([1, 10, 100, 1_000])
    heights = slope * np.linspace(1, 0, len(names))
    spread = np.random.default_rng(0).uniform(0.8, 1.2, (len(names), queries, seeds, 1))
    values = heights[:, None, None, None] * spread * steps
    coords = {"policy": list(names), "query": np.arange(queries), "seed": np.arange(seeds), "step": steps}
    return xarray.Dataset({"regret": (tuple(coords), values)}, coords)


def drawn(ax):
    """The figure of ``ax``, laid out."""
    figure = ax.get_figure(root=True)
    figure.draw_without_rendering()
    return figure


def test_a_line_and_a_band_for_each_policy(tmp_path):
    result = curves(["static", "random"])
    ax = jr.plot_curves(result, "regret", path=tmp_path / "regret.png")
    assert [line.get_label() for line in ax.lines] == ["static", "random"]
    assert len(ax.collections) == 2
    np.testing.assert_allclose(ax.lines[0].get_ydata(), result["regret"].sel(policy="static").mean(("query", "seed")))
    assert (tmp_path / "regret.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="metric must be 'regret'; got 'ndcg'"):
        jr.plot_curves(result, "ndcg")


@pytest.mark.parametrize(
    "names",
    [
        ["PairRank", "PDGD"],
        ["CascadeKLUCB", "CascadeKLUCB (last click)", "BatchRank", "TopRank", "BubbleRank"],
        ["bubblerank:delta=0.1", "bubblerank:delta=0.2", "mine", "yours", "BubbleRank", "static", "a", "b"],
        ["BubbleRank", "CascadeHybrid", "PairRank", "PairRank_C", "CascadeUCB1"],  # all would like to be red
    ],
)
def test_up_to_eight_names_have_eight_colours_and_markers(names):
    looks = styles(names)
    assert list(looks) == names
    for key in ("color", "marker"):
        assert len({look[key] for look in looks.values()}) == len(names)


def test_sixteen_names_have_sixteen_colours_and_the_second_eight_hollow_markers():
    looks = list(styles(f"policy {i}" for i in range(16)).values())
    assert len({look["color"] for look in looks}) == 16
    assert [look["fillstyle"] for look in looks] == ["full"] * 8 + ["none"] * 8
    names = ["PairRank_C", "PairRank_R", "PairRank_C (released)", "PairRank_R (released)"]
    names += ["SGDRankNet", "PDGD", "EpsilonGreedy", "MGD", "DBGD"]
    assert len({look["color"] for look in styles(names).values()}) == len(names)


def test_every_policy_of_jaxrank_has_a_look_of_its_own():
    named = {name.replace("_", "") for name in jr.available()}
    assert named <= set(plotting._KNOWN)


def test_no_two_lines_are_alike_in_print_without_colours():
    looks = styles([*policy_names, *(f"policy {i}" for i in range(80))])
    in_grey = [(look["marker"], look["linestyle"]) for look in looks.values()]
    assert len(set(in_grey)) == len(in_grey) > 100


def test_the_look_of_a_known_policy_does_not_depend_on_the_others():
    families = [["BubbleRank", "BatchRank", "CascadeKLUCB", "TopRank", "StaticRanking"], ["PairRank_C", "PDGD", "DBGD"]]
    for family in families:
        alone = {name: styles([name])[name] for name in family}
        for others in itertools.permutations(family, 3):
            assert all(styles(["mine", *others, "yours"])[name] == alone[name] for name in others)
    assert styles(["cascade_klucb", "static"]) == {
        "cascade_klucb": styles(["CascadeKLUCB"])["CascadeKLUCB"],
        "static": styles(["StaticRanking"])["StaticRanking"],
    }


@pytest.mark.parametrize(
    ("value", "text"), [(0.8, "0.8"), (0, "0"), (500, "500"), (10_000, "10k"), (2.5e6, "2.5M"), (-1_500, "-1.5k")]
)
def test_ticks_are_plain_numbers(value, text):
    ax = panels(1)[1][0]
    plotting.plain_ticks(ax.yaxis)
    assert ax.yaxis.get_major_formatter()(value, 0) == text


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("names", [["BubbleRank", "StaticRanking"], ["BubbleRank"]])
def test_a_curve_that_is_0_throughout_is_seen_above_the_axis(names, log):
    result = curves(names, slope=1.0 if len(names) > 1 else 0.0)
    ax = jr.plot_curves(result, "regret", ax=panels(1)[1][0], log=log)
    figure = drawn(ax)
    line = ax.lines[-1]
    assert not np.any(line.get_ydata())
    pixels = line.get_transform().transform(line.get_xydata())[:, 1]
    width = line.get_linewidth() * figure.dpi / 72
    assert (pixels - width > ax.bbox.y0).all() and (pixels + width < ax.bbox.y1).all()


@pytest.mark.parametrize("number", [2, 8, 24])
@pytest.mark.parametrize("layout", ["none", "constrained", "tight"])
def test_the_legend_of_an_axis_covers_nothing_and_is_whole(number, layout):
    figure = Figure(figsize=(12, 4), layout=layout if layout != "none" else None)
    left, right = figure.subplots(1, 2)
    jr.plot_curves(curves([f"policy {i}" for i in range(number)]), ax=left)
    jr.plot_curves(curves(["BubbleRank", "StaticRanking"]), ax=right)
    drawn(left)
    for ax in (left, right):
        box = ax.get_legend().get_window_extent()
        assert not box.overlaps(left.bbox) and not box.overlaps(right.bbox)
        assert figure.bbox.containsx(box.x0) and figure.bbox.containsx(box.x1)
        assert figure.bbox.containsy(box.y0) and figure.bbox.containsy(box.y1)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_the_legend_of_panels_is_below_them_and_no_panel_is_empty(count):
    figure, axes = panels(count)
    assert len(figure.axes) == len(axes) == count
    entries = {}
    for ax in axes:
        entries |= plotting.draw_curves(ax, curves([f"policy {i}" for i in range(10)]), "regret")
    plotting.legend_below(figure, entries)
    drawn(axes[0])
    box = figure.legends[0].get_window_extent()
    assert len(figure.legends[0].texts) == 11
    assert not any(box.overlaps(ax.get_tightbbox()) for ax in axes)
    assert figure.bbox.containsx(box.x0) and figure.bbox.containsx(box.x1) and figure.bbox.containsy(box.y0)


@pytest.mark.parametrize(
    ("queries", "seeds", "text"),
    [
        (4, 3, "± standard error\nover 4 queries (3 seeds each)"),
        (4, 1, "± standard error\nover 4 queries (1 seed each)"),
        (1, 5, "± standard error\nover 5 seeds"),
        (1, 1, None),
    ],
)
def test_the_legend_says_what_the_shade_is(queries, seeds, text):
    ax = jr.plot_curves(curves(["a", "b"], queries=queries, seeds=seeds), ax=panels(1)[1][0])
    labels = [label.get_text() for label in ax.get_legend().texts]
    assert labels == ["a", "b", *([text] if text else [])]


def test_the_legend_says_if_policies_have_different_numbers_of_seeds():
    result = curves(["a", "b"], queries=4, seeds=3)
    fewer = result["regret"].where((result["policy"] == "a") | (result["seed"] == 0))
    ax = jr.plot_curves(result.assign(regret=fewer), ax=panels(1)[1][0])
    assert ax.get_legend().texts[-1].get_text() == "± standard error\nover 4 queries (1 to 3 seeds each)"


def test_a_bound_far_above_the_curves_is_a_note_and_a_near_one_makes_the_axis_logarithmic():
    steps = np.array([1, 10, 100, 1_000])
    for factor, scale, lines in ((10, "log", 3), (1e6, "linear", 2)):
        ax = panels(1)[1][0]
        result = curves(["a", "b", "c"]).isel(policy=[0, 1])
        plotting.draw_curves(ax, result, "regret")
        entries = plotting.draw_bound(ax, steps, factor * steps, "Theorem 1")
        assert (ax.get_yscale(), len(ax.lines)) == (scale, lines)
        assert bool(entries) == (scale == "log")
        assert ("Theorem 1: 1.0e+09 at the end, far above" in ax.get_xlabel()) == (scale == "linear")
        drawn(ax)
        low, high = ax.get_ylim()
        assert low < result["regret"].mean(("query", "seed")).min() and high > ax.lines[-1].get_ydata().max()
        assert scale == "linear" or low > 0


def test_pyplot_shows_a_new_figure_and_keeps_none_that_is_only_written(tmp_path):
    result = curves(["a", "b"])
    jr.plot_curves(result, path=tmp_path / "a.svg")
    assert pyplot.get_fignums() == []
    plotting.plot_result(result, "regret", tmp_path / "result.png")
    assert pyplot.get_fignums() == []
    ax = jr.plot_curves(result)
    assert pyplot.gcf() is ax.figure and pyplot.gca() is ax


def test_a_figure_that_is_written_is_shown_too_if_a_backend_shows_figures(monkeypatch, tmp_path):
    monkeypatch.setattr("matplotlib.get_backend", lambda **_: "module://matplotlib_inline.backend_inline")
    ax = jr.plot_curves(curves(["a", "b"]), path=tmp_path / "a.pdf")
    assert pyplot.get_fignums() == [ax.figure.number]


@pytest.mark.parametrize("name", ["a.bmp", "a", "a.nc", "a.PNG.txt"])
def test_other_kinds_of_pictures_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"path must end in \.png, \.pdf or \.svg; got .*"):
        jr.plot_curves(curves(["a", "b"]), path=tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dim", ["user", "click_model"])
def test_users_and_click_models_with_names_have_a_panel_each(dim, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(plotting, "save_picture", lambda figure, path: figures.append(figure))
    result = curves(["a", "b"]).rename(query=dim).assign_coords({dim: ["perfect", "lazy", "hasty", "new"]})
    plotting.plot_result(result, "regret", tmp_path / "regret.png")
    assert [ax.get_title() for ax in figures[0].axes] == ["perfect", "lazy", "hasty", "new"]


def test_a_single_curve_is_no_result():
    with pytest.raises(ValueError, match=r"result must be what simulate or compare returned, .*; got a DataArray"):
        jr.plot_curves(xarray.DataArray([1.0, 2.0], dims="step"))


def test_labels_of_a_logarithmic_axis_are_plain_numbers():
    ax = panels(1)[1][0]
    ax.plot([1, 2], [0.2, 0.7])
    ax.set_yscale("log")
    plotting.plain_log_ticks(ax.yaxis)
    drawn(ax)
    labels = {label.get_text() for label in ax.yaxis.get_ticklabels(which="both")} - {""}
    assert {"0.2", "0.3", "0.6"} <= labels and all(float(label) for label in labels)


def test_an_axis_says_what_it_shows_in_the_users_words():
    names = ("regret", "ndcg@10", "training ndcg@10", "cosine to offline RankNet", "my_probe")
    labels = [plotting.label_of(name) for name in names]
    assert labels == ["Regret", "NDCG@10", "Training NDCG@10", "Cosine to offline RankNet", "My_probe"]
    assert plotting.label_of("ndcg@10", per_step=True) == "NDCG@10 per step"
