"""The speed baseline computes what the references compute, and the command leaves what it says."""

import json

import jax
import numpy as np
import pytest
from reference import (
    batchrank,
    bubblerank,
    cascade,
    changing_cascades,
    grab,
    pbmhb,
    position_based,
    ranked,
    recurrank,
    toprank,
    unirank,
)
from worlds import click_model

import jaxrank as jr
from jaxrank import bench
from jaxrank.bench import report, scalar
from jaxrank.bench.measurement import scalar_worlds
from jaxrank.command.cli import main

STEPS, K = 3_000, 4


@pytest.fixture(autouse=True)
def compilation_cache():
    """The command turns the cache off: back on for the tests that follow."""
    enabled = jax.config.jax_enable_compilation_cache
    yield
    jax.config.update("jax_enable_compilation_cache", enabled)


class Particle:
    """The reference of PB-MHB, whose functions have no state, from the particle at which the scalar loop starts."""

    def __init__(self, L):
        self.theta, self.kappa = [0.5] * L, [1.0] + [0.5] * (K - 1)
        self.shown, self.clicks, self.t = np.zeros((K, L), int), np.zeros((K, L), int), 1

    def rank(self, words):
        self.words = words
        return pbmhb.best_list(self.theta, self.kappa)

    def update(self, ranking, clicks):
        self.shown[range(K), ranking] += 1
        self.clicks[range(K), ranking] += clicks
        self.t += 1
        uniforms = [scalar.uniform.py_func(np.uint64(word)) for word in self.words]
        uniforms = uniforms[: len(uniforms) // 2], uniforms[len(uniforms) // 2 :]
        sigma = 1000 / np.sqrt(self.t)
        found = pbmhb.sweep(self.theta, self.kappa, self.clicks, self.shown, sigma, uniforms)
        self.theta, self.kappa, _ = found


class Reference:
    """A reference behind ``rank(words)`` and ``update(ranking, clicks)``, from the words of the scalar loop."""

    def __init__(self, name, world):
        L = len(world.base)
        self.name, self.L, self.T = name, L, world.horizon
        if name == "bubblerank":
            self.policy = bubblerank.BubbleRank(world.base.tolist(), K, world.horizon)
        elif name == "toprank":
            self.policy = toprank.TopRank(L, K, 1 / world.horizon)
        elif name == "batchrank":
            self.policy = batchrank.BatchRank(L, K, world.horizon)
        elif name in ("cascade_klucb", "cascade_ucb1", "dcm_klucb"):
            index, feedback = name.split("_")[1], "last" if name == "dcm_klucb" else "first"
            self.policy = cascade.Cascade(L, K, index, feedback)
        elif name == "cascade_ducb":
            discount = 1 - 0.25 / np.sqrt(world.horizon)
            self.policy = changing_cascades.Forgetting(L, K, STEPS, 0.5, discount=discount)
        elif name == "cascade_swucb":
            window = round(2 * np.sqrt(world.horizon * np.log(world.horizon)))
            self.policy = changing_cascades.Forgetting(L, K, STEPS, 0.5, window=window)
        elif name.startswith("glrt"):
            T, splits = world.horizon, {"levels": scalar.SPLIT_LEVELS, "per_level": scalar.SPLITS_PER_LEVEL}
            kind = "klucb" if name.endswith("klucb") else "ucb1"
            rate = np.sqrt(np.log(T) / T)
            self.policy = changing_cascades.GLRT(L, K, kind, T, 1 / T, rate, scalar.TEST_EVERY, **splits)
        elif name == "grab":
            self.policy = grab.GRAB(K, range(L), world.horizon, period=L - 1)
        elif name == "unirank":
            self.policy = unirank.UniRank(L, K)
        elif name == "pb_mhb":
            self.policy = Particle(L)
        elif name == "recurrank":
            features, log_inverse_delta = np.eye(L), np.log(world.horizon) / 2
            design = lambda items: dict.fromkeys(items, 1 / len(items))  # noqa: E731
            self.policy = recurrank.RecurRank(features, K, range(L), log_inverse_delta, design)
        elif name == "ranked_exp3":
            gamma = ranked.exp3_gamma(L, world.horizon)
            self.policy = ranked.RankedBandits([ranked.Exp3(L, gamma) for _ in range(K)])
        elif name in ("ranked_ucb1", "ranked_klucb"):
            self.policy = ranked.RankedBandits([ranked.Index(L, name.split("_")[1]) for _ in range(K)])
        else:
            kind = {"pbm_ucb": position_based.PBMUCB, "pbm_pie": position_based.PBMPIE}[name]
            self.policy = kind(L, world.position, epsilon=scalar.EPSILON)

    def rank(self, t, words):
        policy, L = self.policy, self.L
        words = [int(word) for word in words]
        if self.name == "bubblerank":
            policy.challenger = None
            if policy.last_is_free():
                last = policy.base[K - 1]
                number = sum(not policy.certain(last, j) for j in policy.base[K:])
                policy.choose_challenger((words[-1] % number + 0.5) / number if number else 0.0)
            return policy.rank([words[0] >> k & 1 for k in range(K)])
        if self.name == "batchrank":
            return policy.rank(words[:L], words[L:])
        if self.name in ("grab", "recurrank"):
            return policy.rank()
        if self.name == "pb_mhb":
            return policy.rank(words)
        if self.name == "pbm_pie":
            return policy.rank(words[:L], words[L])
        if self.name == "ranked_exp3":
            policy.proposals = [
                bandit.propose(scalar.uniform.py_func(np.uint64(words[L + k])))
                for k, bandit in enumerate(policy.bandits)
            ]
        elif self.name.startswith("ranked"):
            policy.proposals = [
                bandit.propose(words[L + k * L : 2 * L + k * L], t) for k, bandit in enumerate(policy.bandits)
            ]
        return policy.rank(words[:L])


@pytest.mark.parametrize(
    "name", [n for n in bench.FEATURE_FREE if n not in ("static", "random", "oracle", "cascade_ts", "pbm_ts")]
)
def test_the_scalar_loop_is_the_reference(name):
    model = click_model("pbm", 6, seed=3, num_queries=1)
    world = scalar_worlds(jr.ClickBandit(model, list_size=K), horizon=STEPS)[0]
    policy, reference = scalar.POLICIES[name], Reference(name, world)
    state = policy.init(world)
    rng, clicks = np.random.default_rng(0), np.zeros(K, np.int64)
    ranking = np.zeros(K, np.int64)
    lists = set()
    for t in range(1, STEPS + 1):
        words = rng.integers(0, 2**64, policy.num_words(6, K), dtype=np.uint64)
        policy.rank(state, world, t, words, ranking)
        assert ranking.tolist() == list(reference.rank(t, words)), t
        lists.add(tuple(ranking))
        clicks[:] = rng.random(K) < world.position * world.attraction[ranking]
        policy.update(state, world, t, words, ranking, clicks)
        ties = [words[6:].tolist()] if name == "unirank" else []
        reference.policy.update(ranking.tolist(), clicks.tolist(), *ties)
    assert len(lists) > 3


def test_scalar_thompson_sampling_is_from_the_posterior():
    model = click_model("pbm", 6, seed=3, num_queries=1)
    world = scalar_worlds(jr.ClickBandit(model, list_size=K), horizon=STEPS)[0]
    state = scalar.POLICIES["pbm_ts"].init(world)
    state.shown[:, 2], state.clicked[:, 2] = [30, 20, 10, 5], [7, 3, 1, 0]
    for u in (0.05, 0.3, 0.5, 0.9, 0.99):
        theta = scalar.pbm_ts_sample(state, world, 2, u)
        assert position_based.posterior_cdf(theta, 11, [23, 17, 9, 5], world.position) == pytest.approx(u, abs=2e-3)


@pytest.mark.parametrize("name", ["cm", "dcm", "pbm"])
def test_scalar_regret_agrees_with_the_simulator(name):
    """Random lists: mean regret per step of 10 lanes × 20,000 steps, within 4 standard errors."""
    environment = jr.ClickBandit(click_model(name, 6, seed=3, num_queries=2), list_size=K, top=3)
    policy = scalar.POLICIES["random"]
    loop = scalar.make_loop(policy, name)
    ours = jr.simulate(jr.RandomRanking(), environment, 20_000, num_seeds=10, num_records=1, progress=False)["regret"]
    for world, regret in zip(scalar_worlds(environment, 1), ours.values[:, :, 0], strict=True):
        theirs = [scalar.Lane(policy, loop, world, seed).advance(20_000) for seed in range(10)]
        error = np.hypot(np.std(theirs), np.std(regret)) / np.sqrt(10)
        assert abs(np.mean(theirs) - regret.mean()) < 4 * error


def test_the_command_leaves_lines_a_table_and_a_picture(tmp_path, capsys):
    options = ["--policy", "bubblerank", "--lanes", "1", "3", "--items", "6", "--list-size", "4", "--repeat", "1"]
    assert main(["bench", *options, "--out", str(tmp_path)]) == 0
    rows = [json.loads(line) for line in (tmp_path / "bench.jsonl").read_text().splitlines()]
    assert [row["num_lanes"] for row in rows] == [1, 3]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["lane_steps_per_second"] / row["scalar_lane_steps_per_second"])
        assert row["machine"]["driver"] and row["way"] == "loop"
        assert row["machine"]["jax"] and row["compile_seconds"] >= 0 and row["peak_memory_mb"] > 50
    assert (tmp_path / "bench.md").read_text().count("| bubblerank |") == 2
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "| bubblerank | cm | 6 |" in said and said.startswith("on processor ") and "devices cpu" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "bublerank"], "--policy must be one of static, random, .*; got 'bublerank'"),
        (["--click-model", "ubm"], "--click-model must be one of cm, dcm, pbm; got 'ubm'"),
        (["--lanes", "0"], "--lanes must be a positive integer; got 0"),
        (["--list-size", "11"], "--list-size must be an integer from 1 to 10 items; got 11"),
        (["--devices", "1000", "--policy", "static"], "devices must be at most .*; got 1000"),
    ],
)
def test_bad_options_are_refused(options, message, capsys, tmp_path):
    import re

    assert main(["bench", *options, "--out", str(tmp_path / "out")]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_policies_measured_in_one_world_are_points_of_their_own(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr(report, "save_picture", lambda figure, path: figures.append(figure))
    row = {"num_lanes": 10, "num_items": 4, "click_model": "cm", "late": False, "num_devices": 1}
    rows = [row | {"policy": name, "lane_steps_per_second": speed} for name, speed in (("a", 1e6), ("b", 1e6))]
    report.draw(rows, tmp_path / "bench.png")
    assert [label.get_text() for label in figures[0].axes[0].get_yticklabels()] == ["b", "a"], "one above the other"
