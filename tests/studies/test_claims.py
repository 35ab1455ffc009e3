"""What the papers' figures say of their claims, on curves made by hand."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import jaxrank as jr
from jaxrank.output.report import alike, signed
from jaxrank.studies.papers import batchrank, bubblerank, cascadehybrid, pairrank

BENCHMARKS = Path(jr.__file__).parents[1] / "benchmarks"
verdicts = SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "verdicts.py")))
STEPS = np.array([1, 10, 100, 1_000, 10_000])
NOISE = np.random.default_rng(0).normal(scale=0.01, size=(3, 4))


def curves(**of_policies):
    """Values [policy, query, seed, step] from values by step, with a little noise by query and seed."""
    values = np.array(list(of_policies.values()), float)[:, None, None, :] + NOISE[:, :, None]
    coords = {"policy": list(of_policies), "query": range(3), "seed": range(4), "step": STEPS}
    return xarray.DataArray(values, coords, ("policy", "query", "seed", "step"))


def by_seed(values, **dims):
    """Values along the named dimensions, with a little noise by seed."""
    values = np.asarray(values, float)[..., None] + NOISE[0]
    return xarray.DataArray(values, dims | {"seed": range(4)}, (*dims, "seed"))


@pytest.mark.parametrize(
    ("found", "word"),
    [((3.0, 1.0, 5.0), "reproduced"), ((-3.0, -5.0, -1.0), "it is the other way round"),
     ((1.0, -1.0, 3.0), "the interval contains 0"), ((1.0, np.nan, np.nan), "cannot be tested here")],
)  # fmt: skip
def test_a_signed_claim_is_judged_by_where_its_interval_is(found, word):
    assert word in signed("a claim", "above", found, 1)
    low = tuple(-x for x in (found[0], found[2], found[1]))
    assert word in signed("a claim", "below", low, 1)


@pytest.mark.parametrize(
    ("found", "word"),
    [((0.0, -0.4, 0.4), "**reproduced**"), ((1.0, 0.6, 1.4), "not reproduced"), ((0.0, -0.4, 0.6), "too wide to tell"),
     ((0.0, np.nan, np.nan), "one run has no interval"), ((-1.0, -1.4, -0.6), "not reproduced")],
)  # fmt: skip
def test_values_are_alike_if_they_are_surely_within_five_percent(found, word):
    assert word in alike("a claim", found, 10.0, 2) and "within ± 0.50, 5 %" in alike("a claim", found, 10.0, 2)


def test_bubbleranks_early_advantage_has_its_steps():
    regret = curves(BubbleRank=[5, 6, 7, 60, 80], BatchRank=[5, 9, 20, 30, 40], TopRank=[0, 1, 2, 3, 4])
    first, second = bubblerank._crossing("cm", regret)
    assert "of BatchRank is below 0 from step 10 to 100; its mean stays above 0 from step 1,000 on" in first
    assert "of TopRank is below 0 at no step; its mean stays above 0 from step 1 on" in second


def test_linear_growth_is_an_exponent_near_1():
    linear, flat = (curves(CascadeKLUCB=values).sel(policy="CascadeKLUCB") for values in (STEPS, np.sqrt(STEPS)))
    assert "**reproduced**" in bubblerank._linear(linear, "a claim") and "steps^1.00 from" in bubblerank._linear(
        linear, ""
    )
    assert "not reproduced" in bubblerank._linear(flat, "a claim") and "steps^0.50 from" in bubblerank._linear(flat, "")
    assert "0 until step 1,000" in bubblerank._linear(0 * linear, "a claim")


def test_bubbleranks_ndcg_approaches_1_and_is_hardly_below_the_production_list():
    both = {"StaticRanking": [0.9] * 5}
    good, worse = ([0.9, 0.92, 0.95, 0.98, 0.99], [0.9, 0.5, 0.8, 0.8, 0.8])
    approaches, never = bubblerank._ndcg_claims("cm", curves(BubbleRank=good, **both))
    assert "**reproduced**" in approaches and "**reproduced**" in never
    approaches, never = bubblerank._ndcg_claims("cm", curves(BubbleRank=worse, **both))
    assert "not reproduced" in approaches and "not reproduced" in never


def test_regret_is_linear_in_the_inversions_if_queries_agree_that_it_is_not_bent():
    rng = np.random.default_rng(0)
    inversions = rng.integers(5, 40, size=(20, 10)).astype(float)
    steep = rng.normal(10, 3, size=(20, 1)) * inversions + rng.normal(0, 500, size=(20, 1))
    noise = rng.normal(0, 5, size=(20, 10))
    assert "**reproduced**" in bubblerank._grows_linearly("cm", steep + noise, inversions)
    assert "not contain 0" in bubblerank._grows_linearly("cm", steep + noise + inversions**2, inversions)
    assert "not reproduced" in bubblerank._grows_linearly("cm", noise, inversions)
    assert "too few" in bubblerank._grows_linearly("cm", noise[:, :3], inversions[:, :3])


@pytest.mark.parametrize(
    ("ratio", "word"), [(1.9, "**reproduced**"), (1.5, "not reproduced"), (1.7, "cannot be tested here")]
)
def test_doubling_is_judged_by_the_intervals_of_the_ratios(ratio, word):
    regret = by_seed([[100 * ratio**i] for i in range(3)], halvings=[1, 2, 3], step=[10]) * (1 + NOISE[0])
    assert word in bubblerank._doubles(regret) and f"ratios, by seed: {ratio:.2f} [" in bubblerank._doubles(regret)


def test_a_query_is_learnt_from_where_its_regret_per_step_stays_low():
    low, high = batchrank.STUCK / 2, batchrank.STUCK * 2
    windows = [[low] * 5, [high, low, low, low, low], [low, low, high, low, low], [low, low, low, low, high]]
    regret = xarray.DataArray(windows, {"step": [1, 2, 3, 4, 5]}, ("query", "step"))
    np.testing.assert_allclose(batchrank._learnt(regret), [0, 0.2, 0.6, 2])


def test_cascadehybrids_gap_closes_with_d_and_its_regret_falls_with_k():
    def one(hybrid, full):
        return (
            curves(CascadeHybrid=[hybrid] * 5, CascadeLinUCBFull=[full] * 5)
            .rename(query="user")
            .to_dataset(name="regret")
        )

    [closes] = cascadehybrid._gap_closes({5: one(10, 30), 10: one(10, 90), 18: one(10, 20)})
    assert "**reproduced**" in closes and "d = 18 than with d = 5 (-10.0 [" in closes
    falls, rises = cascadehybrid._falls({5: one(30, 0), 10: one(10, 0), 15: one(20, 0)})
    assert "**reproduced**: K = 10:" in falls and "not reproduced**: K = 15:" in rises
    assert cascadehybrid._gap_closes({}) == cascadehybrid._falls({}) == []


def test_pairranks_blocks_are_judged_after_a_tenth_of_the_run():
    """Blocks [policy, user, step, rank]; at index 0 of the ranks is the number of blocks."""
    shrunk = np.ones((1, 3, 20, 13))
    early = shrunk.copy()
    early[:, :, 1] = [9, 2, 2, 2, 2, 3, 3, 3, 3, 4, 1, 1, 1]
    early[:, 1, 1] += 3  # navigational
    early[:, 1, 1, 0] = 5
    dims = {
        "policy": ["PairRank_C"],
        "user": list(pairrank.USERS),
        "step": range(100, 2_100, 100),
        "blocks_0": range(13),
    }
    blocks = by_seed(early, **dims)
    lines = pairrank._slow_blocks(blocks)
    assert len(lines) == 4 and all(" step 200: " in line for line in lines)
    assert ["**reproduced**" in line for line in lines] == [True, True, False, False], "rank 10 is smallest here"
    lines = pairrank._middle_blocks(blocks.isel(policy=0))
    assert len(lines) == 4 and all("**reproduced**" in line for line in lines)
    lines = [*pairrank._slow_blocks(by_seed(shrunk, **dims)), *pairrank._middle_blocks(by_seed(shrunk, **dims)[0])]
    assert all("not reproduced" in line for line in lines)


def test_ndcg_of_test_queries_is_their_mean_over_time_and_each_at_the_end():
    """The second query has no relevant document."""
    values = np.arange(16.0).reshape(1, 2, 2, 4)[..., :3]  # [user, seed, step, query]
    values[..., 1] = np.nan
    run = xarray.Dataset({"ndcg@10": (("user", "seed", "step", "ndcg@10_0"), values)}, {"step": [1, 2], "seed": [0, 1]})
    found = pairrank._by_query(run)
    np.testing.assert_array_equal(found["ndcg@10"], np.nanmean(values, axis=-1))
    np.testing.assert_array_equal(found["ndcg@10 of query"], values[:, :, 1][..., [0, 2]])


# The page of verdicts.


@pytest.mark.parametrize(
    ("line", "parts"),
    [("- **reproduced**: CM, step 5,000: A is below B (-1.0 [-2.0, -0.5]).",
      ("reproduced", "CM, step 5,000", "A is below B", "-1.0 [-2.0, -0.5]")),
     ("- **not reproduced**: A (λ = 1): a block is small, 1.1 (4.9 [1.7, 8.1]; it is the other way round).",
      ("not reproduced", "A (λ = 1)", "a block is small, 1.1", "4.9 [1.7, 8.1]")),
     ("- **cannot be tested here**: A (new) is linear (95 % (over queries): 3; too wide to tell).",
      ("cannot be tested here", "", "A (new) is linear", "95 % (over queries): 3; too wide to tell"))],
)  # fmt: skip
def test_a_verdict_is_read_as_it_is_written(line, parts):
    assert verdicts.parse(line) == parts
    assert verdicts.parse(signed("perfect: A (new) is above B", "above", (1.0, 0.5, 1.5), 1))[1:3] == (
        "perfect",
        "A (new) is above B",
    )


def test_a_line_that_looks_like_a_verdict_and_is_none_is_refused():
    with pytest.raises(ValueError, match="a verdict must be"):
        verdicts.parse("- **perhaps**: A is below B (1).")


def test_the_page_of_verdicts_is_that_of_the_stored_results():
    reasons = (BENCHMARKS / "reasons.md").read_text(encoding="utf-8")
    page = verdicts.collect(BENCHMARKS / "results", reasons)
    assert page == (BENCHMARKS / "results" / "verdicts.md").read_text(encoding="utf-8"), "run benchmarks/verdicts.py"
    assert r"| regret is linear in \|V₀\| |" in page
