"""One description of a run: what simulate, compare, estimate, the command and the sweep file have in common."""

import dataclasses
import inspect
import warnings

import jax
import pytest

import jaxrank as jr
from jaxrank.command.cli import parser
from jaxrank.engine.request import Request, command_default, flags
from jaxrank.engine.task import prepare
from jaxrank.studies.sweep_files import DEFAULTS

ENVIRONMENT = jr.ClickBandit(jr.CascadeModel([0.1, 0.2, 0.3]))
FIELDS = [field.name for field in dataclasses.fields(Request)]


@pytest.mark.parametrize("function", [jr.simulate, jr.compare, jr.estimate])
def test_functions_take_and_document_every_field(function):
    parameters = inspect.signature(function).parameters
    assert [name for name in parameters if name in FIELDS] == FIELDS
    for field in dataclasses.fields(Request):
        if field.default is not dataclasses.MISSING:
            assert parameters[field.name].default == field.default
        assert f"\n      {field.name}: " in function.__doc__
        assert max(map(len, function.__doc__.splitlines())) <= 120


def test_the_command_and_the_sweep_file_take_every_flag_with_its_default():
    options = vars(parser().parse_args(["run"]))
    for flag, field in flags().items():
        key = flag.replace("-", "_")
        assert options[key] == (None if flag in ("steps", "metrics") else command_default(field))
        if key in DEFAULTS:
            assert DEFAULTS[key] == command_default(field)
    help_text = " ".join(parser()._subparsers._group_actions[0].choices["run"].format_help().split())
    for flag, field in flags().items():
        start = field.metadata["help"].rstrip(".").split(";")[0]
        assert f"--{flag} " in help_text
        assert start.replace("-", "") in help_text.replace("-", ""), flag


def test_an_unknown_option_is_refused_with_the_closest_one():
    with pytest.raises(TypeError, match=r"simulate\(\) has no option 'num_seed'; did you mean 'num_seeds'\?"):
        jr.simulate(jr.StaticRanking(), ENVIRONMENT, 10, num_seed=3)
    with pytest.raises(TypeError, match="num_steps"):
        jr.simulate(jr.StaticRanking(), ENVIRONMENT)


def test_old_names_work_for_one_version_with_a_warning():
    options = {"progress": False, "num_records": 3}
    expected = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 10, call_intervals=1, **options)
    with pytest.warns(FutureWarning, match="chunk_intervals is now called call_intervals"):
        old = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 10, chunk_intervals=1, **options)
    assert old["regret"].equals(expected["regret"])
    with pytest.warns(FutureWarning, match=r"'5 chunks' is now called checkpoint_every='5 calls'"):
        assert Request(10, checkpoint_every="5 chunks").checkpoint_every == "5 calls"
    plan = jr.estimate(jr.RandomRanking(), ENVIRONMENT, 100, calibration_seconds=0.01)
    with pytest.warns(FutureWarning, match="num_groups is now called num_shares"):
        assert plan.num_groups == plan.num_shares == 1


def test_metrics_may_come_from_any_iterable():
    run = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 10, progress=False, metrics=(m for m in ("regret", "clicks")))
    assert list(run.data_vars) == ["regret", "clicks"]


def test_all_64_bits_of_a_seed_count_and_others_are_refused():
    options = {"num_records": 1, "progress": False, "metrics": ("misordered",)}
    seeds = (0, 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1)
    runs = [jr.simulate(jr.RandomRanking(), ENVIRONMENT, 500, seed=seed, **options)["misordered"] for seed in seeds]
    sums = [run.item() for run in runs]
    assert len(set(sums)) >= 4, "seeds that differ in their upper bits have other random numbers"
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match=rf"seed must be an integer from 0 to {2**64 - 1}; got {seed}"):
            jr.simulate(jr.RandomRanking(), ENVIRONMENT, 5, seed=seed)


@pytest.mark.parametrize("name", ["bubblerank", "toprank", "batchrank", "cascade_ucb1", "ranked_exp3", "pbm_ts"])
def test_policies_that_keep_statistics_of_items_are_refused_where_items_change(name):
    stream = jr.QueryStream(jr.datasets.synthetic_letor(9).train, jr.click_models.graded_user("perfect"), list_size=3)
    policy = jr.make(name)
    with pytest.raises(ValueError, match=rf"got {type(policy).__name__}, which keeps statistics of items, in QueryStr"):
        jr.simulate(policy, stream, 10)


class Plain:
    def init(self, key, query): ...
    def rank(self, key, state, query): ...
    def update(self, key, state, query, ranking, clicks): ...


@pytest.mark.parametrize(
    ("policy", "environment", "message"),
    [
        (jr.BubbleRank, ENVIRONMENT, r"policy must be an instance; got the class BubbleRank: write BubbleRank\(…\)"),
        ("bubblerank", ENVIRONMENT, r"got the name 'bubblerank': write jr.make\('bubblerank'\) for a policy"),
        (ENVIRONMENT, jr.BubbleRank(), "got ClickBandit, which is the environment: are the two swapped"),
        (jr.BubbleRank(), None, "environment must have the members query, clicks, metrics, instance_dim; NoneType"),
        (jr.CascadeModel([0.1]), ENVIRONMENT, "policy must have the members .*; CascadeModel has no init"),
        (jr.BubbleRank(), jr.CascadeModel([0.1]), r"which is a click model: write jr.ClickBandit\(CascadeModel\(…\)\)"),
        (
            Plain(),
            ENVIRONMENT,
            "policy must be a pytree; got a Plain, which is not one: put @jr.pytree above",
        ),
    ],
)
def test_what_is_no_policy_or_environment_is_named_in_one_line(policy, environment, message):
    with pytest.raises(ValueError, match=message):
        jr.simulate(policy, environment, 10)


def test_compare_wants_a_dict():
    with pytest.raises(ValueError, match="policies must be a dict of policies by name; got a list"):
        jr.compare([jr.BubbleRank()], ENVIRONMENT, 10)

    with pytest.raises(ValueError, match=r"policies must have names that are text; got 1"):
        jr.compare({1: jr.BubbleRank()}, ENVIRONMENT, 10)


def test_compare_checks_all_policies_before_it_runs_one(monkeypatch):
    monkeypatch.setattr("jaxrank.engine.simulation._carry_out", lambda task: pytest.fail("nothing is simulated"))
    with pytest.raises(ValueError, match=r"policies\['b'\] must be an instance; got the class BubbleRank"):
        jr.compare({"a": jr.StaticRanking(), "b": jr.BubbleRank}, ENVIRONMENT, 10)


def test_seeds_are_counted_unless_their_number_is_given():
    assert Request(10).num_seeds == 1 and Request(10, seeds=[3, 5]).num_seeds == 2
    assert Request(10, num_seeds=2, seeds=[3, 5]).seeds == (3, 5)


@pytest.mark.parametrize("policy", [jr.BubbleRank(horizon=9), jr.TopRank(horizon=[20, 9]), jr.RankedExp3(horizon=9)])
def test_a_horizon_below_the_number_of_steps_is_refused(policy):
    name = type(policy).__name__
    with pytest.raises(ValueError, match=rf"{name}\.horizon must be at least num_steps = 10; got 9: leave it out"):
        prepare(policy, ENVIRONMENT, Request(10))
    assert prepare(policy, ENVIRONMENT, Request(9)).policy is policy


def test_the_first_guess_of_the_doubling_trick_may_be_below_the_number_of_steps():
    policy = jr.BubbleRank(horizon=9, doubling=True)
    assert prepare(policy, ENVIRONMENT, Request(10)).policy is policy


def test_too_many_seeds_are_refused_before_anything_of_their_number_is_made(monkeypatch):
    monkeypatch.setattr("jaxrank.engine.task._ids", lambda *_: pytest.fail("an array of all seeds"))
    for function in (jr.simulate, jr.estimate):
        with pytest.raises(ValueError, match=r"the curves must fit in memory; 1,000,000,000 lanes of 10 records need"):
            function(jr.BubbleRank(), ENVIRONMENT, 10, num_seeds=10**9)


def test_policy_and_environment_may_be_named():
    run = jr.simulate(policy=jr.StaticRanking(), environment=ENVIRONMENT, num_steps=10, progress=False)
    assert int(run["step"][-1]) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_steps": 1e10}, "num_steps must be an integer from 1 to 2147483646; got 10000000000.0"),
        ({"mesh": 2}, r"mesh must be a jax\.sharding\.Mesh; got 2"),
        ({"probes": ["x"]}, "probes must be a dict of functions by name; got"),
        ({"probes": {"x": jr.probes.OfflineNDCG}}, r"probes\['x'\] must be an instance; got the class OfflineNDCG"),
        ({"probes": {"x": 3}}, "probes must be functions of .*; got 3 for 'x'"),
        ({"probes": {"regret": print}}, "probes must not have the name of a metric; got 'regret'"),
        ({"progress": "yes"}, "progress must be True or False; got 'yes'"),
        ({"resume": 1}, "resume must be True or False; got 1"),
        ({"skip_settled": None}, "skip_settled must be True or False; got None"),
        ({"checkpoint_dir": 3}, "checkpoint_dir must be the path of a folder; got 3"),
        ({"seeds": [True]}, "seeds must be integers of at most 64 bits; got True"),
        ({"num_seeds": 5, "seeds": [1, 2]}, r"their number, 2; got num_seeds = 5 and seeds = \[1, 2\]"),
        ({"num_seeds": 1, "seeds": [1, 2]}, r"their number, 2; got num_seeds = 1 and seeds = \[1, 2\]"),
        ({"metrics": "regret, ndcg"}, r"not text; got 'regret, ndcg': write \['regret', 'ndcg'\]"),
        ({"seed": 2**70}, f"seed must be an integer from 0 to {2**64 - 1}; got {2**70}"),
        ({"record_at": 7}, "record_at must be a list of integers; got 7"),
        ({"seed": jax.random.key(0)}, "seed must be an integer from .*; got Array"),
        ({"seed": None}, "seed must be an integer from .*; got None"),
    ],
)
def test_bad_values_are_refused_with_their_names(options, message):
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        Request(**{"num_steps": 10} | options)
