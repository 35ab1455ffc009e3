"""Parameters of real queries: the loader, and what follows exactly from them."""

import json

import numpy as np
import pytest

import jaxrank as jr

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


@pytest.mark.parametrize("name", ["cm", "dcm", "pbm", "ubm", "dbn", "ccm"])
def test_what_is_saved_is_read_back(tmp_path, name):
    model = jr.datasets.yandex(write(tmp_path, {"a": QUERY, "b": QUERY}), name)
    jr.datasets.save_parameters(tmp_path / "saved.json", name, model, ["a", "b"], num_items=2)
    assert jr.datasets.yandex(tmp_path / "saved.json", name) == model


def test_shared_parameters_are_saved_for_every_query(tmp_path):
    shared = jr.PositionBasedModel([[0.5, 0.25, 0.125], [0.5, 0.75, 1.0]], [1.0, 0.5])
    jr.datasets.save_parameters(tmp_path / "saved.json", "pbm", shared, ["a", "b"], num_items=2)
    read = jr.datasets.yandex(tmp_path / "saved.json", "pbm")
    assert read == jr.PositionBasedModel([[0.5, 0.25], [0.5, 0.75]], [[1.0, 0.5]] * 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "click_models_60Q.json: not a JSON file"),
        ({}, "must be an object of at least one query"),
        ([1], "must be an object of at least one query; got list"),
        ({"a": {}}, "query 'a' has no CM attraction"),
        ({"a": {"CM": {"attraction": "0.5"}}}, "query 'a': CM attraction must be numbers; got '0.5'"),
        ({"a": {"CM": {"attraction": [0.5, 1.5]}}}, r"attraction must be in \[0, 1\]; got 1.5 at index \(0, 1\)"),
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
