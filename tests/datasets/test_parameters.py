"""Parameters of real queries: the loader, and what follows exactly from them."""

import json

import jax
import numpy as np
import pytest

import jaxrank as jr
from jaxrank.datasets.parameters import parameter_sections

NAMES = ("cm", "dcm", "pbm", "ubm", "dbn", "ccm")
QUERY = {
    "CM": {"attraction": [0.1, 0.2]},
    "DCM": {"attraction": [0.3, 0.4], "stop_after_click_by_rank": [0.5, 1.0]},
    "PBM": {"attraction": [0.5, 0.6], "examination": [1.0, 0.7]},
    "UBM": {"attraction": [0.5, 0.6], "examination_rank_by_prevclick": [[0.5, 1.0], [0.25, 0.75]]},
    "DBN": {"attraction": [0.5, 0.6], "satisfaction": [0.2, 0.3], "abandon": 0.25},
    "CCM": {"attraction": [0.5, 0.6], "cont_noclick": 0.5, "cont_click_nonrel": 0.25, "cont_click_rel": 0.125},
}


def write(folder, content):
    path = folder / "click_models_60Q.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_each_model_is_read_from_a_file_or_its_folder(tmp_path):
    path = write(tmp_path, {"a": QUERY, "b": QUERY})
    assert jr.datasets.yandex(path, "cm") == jr.CascadeModel([[0.1, 0.2]] * 2)
    assert jr.datasets.yandex(tmp_path, "dcm") == jr.DependentClickModel([[0.3, 0.4]] * 2, [[0.5, 1.0]] * 2)
    assert jr.datasets.yandex(tmp_path, "pbm") == jr.PositionBasedModel([[0.5, 0.6]] * 2, [[1.0, 0.7]] * 2)
    ubm, dbn, ccm = (jr.datasets.yandex(tmp_path, name) for name in ("ubm", "dbn", "ccm"))
    assert ubm == jr.UserBrowsingModel([[0.5, 0.6]] * 2, [[[0.5, 1.0], [0.25, 0.75]]] * 2)
    assert dbn == jr.DynamicBayesianModel([[0.5, 0.6]] * 2, [[0.2, 0.3]] * 2, [0.75] * 2)
    assert ccm == jr.ClickChainModel([[0.5, 0.6]] * 2, [0.5] * 2, [0.25] * 2, [0.125] * 2)


def test_what_is_saved_is_read_back(tmp_path):
    read = {name: jr.datasets.yandex(write(tmp_path, {"a": QUERY, "b": QUERY}), name) for name in NAMES}
    read |= {name: jr.datasets.synthetic(name, 2, 3) for name in ("sdbn", "trust", "gctr", "rctr", "dctr", "rdctr")}
    for name, model in read.items():
        num_items = model.attraction.shape[-1]
        ids = {query: list(range(num_items)) for query in "ab"}
        jr.datasets.save_parameters(tmp_path / f"{name}.json", {name: model}, ids)
        again = jr.datasets.yandex(tmp_path / f"{name}.json", name)
        for leaf, expected in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
            np.testing.assert_allclose(leaf, np.broadcast_to(expected, leaf.shape), atol=1e-7)


def saved(folder):
    """Two models of two queries with 3 and 2 items."""
    shared = jr.PositionBasedModel([[0.5, 0.25, 0.125], [0.5, 0.75, 1.0]], [1.0, 0.5])
    models = {"pbm": shared, "rctr": jr.RankClickRate(shared.attraction, [0.5, 0.25])}
    jr.datasets.save_parameters(folder / "saved.json", models, {"a": [7, 8, 9], "b": ["x", "y"]})
    return folder / "saved.json"


def test_queries_may_have_different_numbers_of_items_and_run_with_those_that_all_have(tmp_path):
    expected = jr.PositionBasedModel([[0.5, 0.25], [0.5, 0.75]], [[1.0, 0.5]] * 2)
    assert jr.datasets.yandex(saved(tmp_path), "pbm") == expected
    assert jr.datasets.yandex(saved(tmp_path), "pbm", num_items=1).attraction.shape == (2, 1)
    with pytest.raises(ValueError, match="num_items must be an integer from 1 to 2 items, which every query has; got"):
        jr.datasets.yandex(saved(tmp_path), "pbm", num_items=3)
    assert parameter_sections(saved(tmp_path)) == ["pbm", "rctr"]


def test_what_was_fitted_scores_another_log_and_pairs_that_it_has_not_seen_get_the_mean(tmp_path):
    table = "query_region\tdocs\tclicked_docs\nb\ty,z\ty\nnew\tx,y\t\na\t9,7\t9\n"
    (tmp_path / "log.tsv").write_text(table)
    log = jr.datasets.load_sessions(tmp_path / "log.tsv", text_ids=True)
    model = jr.datasets.fitted_to(saved(tmp_path), "pbm", log)
    mean = np.mean([0.5, 0.25, 0.125, 0.5, 0.75])
    np.testing.assert_allclose(model.attraction, [[0.75, mean], [mean, mean], [0.125, 0.5]], rtol=1e-6)
    assert model.examination.tolist() == [1.0, 0.5]
    sessions = log.stacked()
    found = jr.click_models.evaluate(model, sessions.rankings, sessions.clicks, queries=sessions.queries)
    by_hand = [0.75 * (1 - mean / 2), (1 - mean) * (1 - mean / 2), 0.125 * 0.75]
    assert found.log_likelihood == pytest.approx(np.log(by_hand).mean(), rel=1e-5)
    with pytest.raises(ValueError, match="must have the documents of every query, as jaxrank fit writes them"):
        jr.datasets.fitted_to(write(tmp_path, {"a": QUERY}), "pbm", log)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "click_models_60Q.json: not a JSON file"),
        ({}, "must be an object of at least one query"),
        ([1], "must be an object of at least one query; got list"),
        ({"a": {}}, "query 'a' has no CM attraction"),
        ({"a": {"CM": {"attraction": "0.5"}}}, "query 'a': CM attraction must be numbers; got '0.5'"),
        ({"a": {"CM": {"attraction": [0.5, 1.5]}}}, r"attraction must be in \[0, 1\]; got 1.5 at index \(0, 1\)"),
        ({"a": QUERY | {"documents": [1]}}, "query 'a': CM attraction must have one value for each of its documents"),
        ({"a": QUERY | {"documents": 2}}, "query 'a' must have documents, a list of ids; got 2"),
        ({"a": QUERY | {"documents": [1, 2]}, "b": QUERY}, "query 'b' must have documents, a list of ids; got None"),
        ({"a": QUERY, "b": {"CM": {"attraction": [0.1]}}}, "CM attraction must have one shape in all queries"),
    ],
)
def test_bad_files_are_named_in_one_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        jr.datasets.yandex(write(tmp_path, content), "cm")


@pytest.mark.parametrize(("model", "regret"), [("cm", 597), ("dcm", 649), ("pbm", 2548)])
def test_the_regret_of_the_production_list_follows_from_the_parameters(real_data, model, regret):
    environment = jr.ClickBandit(jr.datasets.yandex(real_data, model), list_size=10, top=5)
    result = jr.simulate(jr.StaticRanking(), environment, 20_000, num_records=1, progress=False)
    assert round(float(result["regret"].mean())) == regret


@pytest.mark.parametrize("model", ["cm", "dcm", "pbm"])
def test_bubblerank_is_safe_and_better_than_the_production_list(real_data, model):
    environment = jr.ClickBandit(jr.datasets.yandex(real_data, model), list_size=10, top=5)
    policies = {"BubbleRank": jr.BubbleRank(), "static": jr.StaticRanking()}
    options = {"num_records": 1, "metrics": ("regret", "violations"), "progress": False}
    result = jr.compare(policies, environment, 20_000, **options)
    assert (result["violations"] == 0).all()
    regret = result["regret"].mean(("query", "seed", "step"))
    assert regret.sel(policy="BubbleRank") < regret.sel(policy="static")


def test_the_production_lists_have_the_known_number_of_inversions(real_data):
    for model, mean in (("cm", 10.9), ("dcm", 11.65), ("pbm", 14.97)):
        environment = jr.ClickBandit(jr.datasets.yandex(real_data, model))
        assert np.mean(environment.base_inversions) == pytest.approx(mean, abs=0.005)
