"""PairRank's loss, λ and α, compared over datasets: which setting is the best default?

    jaxrank reproduce pairrank-tuning --scale paper --data DATASET --out FOLDER      # for each dataset
    python benchmarks/pairrank_default.py FOLDER [FOLDER …]

Reads the ``pairrank-tuning.nc`` of every folder and writes results/pairrank-default.md, which says how settings are
scored.
"""

import re
import sys
from pathlib import Path

import numpy as np
import xarray
from scipy import stats

import jaxrank as jr
from jaxrank.output.tables import markdown

TEXT = """# PairRank's defaults

`python benchmarks/pairrank_default.py {folders}`, after
`jaxrank reproduce pairrank-tuning --scale paper --data …` for each of these datasets.

{policy} settings of PairRank_C, {user} users, {seed} seeds, {steps:,} steps, {commits}. A score is the mean of
NDCG@10 on validation queries at the end and of cumulative NDCG@10 online, each divided by that of the dataset's best
setting. Validation queries are those of the data or, where there is no such split, a fifth of the training queries.
Users and seeds of a dataset share its queries, so 95 % intervals are by Student's t over the datasets, of means over
users and seeds. The default is {default}.

{table}
"""


def scores(folder: Path) -> xarray.DataArray:
    """[policy, user]: the mean of both numbers relative to the best setting, of means over seeds."""
    last = xarray.open_dataset(folder / "pairrank-tuning.nc").isel(step=-1).mean("seed")
    each = [last[metric] / last[metric].mean("user").max("policy") for metric in ("ndcg@10", "cndcg")]
    return sum(each) / len(each)


def main(folders: list[Path]) -> None:
    by_dataset = [scores(folder) for folder in folders]
    every = xarray.concat(by_dataset, xarray.Variable("dataset", [str(folder) for folder in folders]))
    policy = jr.PairRank()
    default = f"{policy.loss}, λ = {float(policy.regularization):g}, α = {float(policy.alpha):g}"
    mean = every.mean(("dataset", "user"))
    rows = []
    for name in mean["policy"].values[np.argsort(-mean.values)]:
        apart = (every.sel(policy=name) - every.sel(policy=default)).mean("user").values
        half = stats.t.ppf(0.975, apart.size - 1) * apart.std(ddof=1) / np.sqrt(apart.size)
        interval = f"{apart.mean():+.3f} [{apart.mean() - half:+.3f}, {apart.mean() + half:+.3f}]"
        cells = [f"{float(one.sel(policy=name).mean()):.3f}" for one in by_dataset]
        rows.append(
            [str(name), *cells, f"{float(mean.sel(policy=name)):.3f}", "default" if name == default else interval]
        )
    table = markdown(["PairRank", *map(str, folders), "mean", "minus the default"], rows)
    run = xarray.open_dataset(folders[0] / "pairrank-tuning.nc")
    sizes = {**run.sizes, "steps": int(run["step"][-1])}
    pages = [(folder / "pairrank-tuning.md").read_text(encoding="utf-8") for folder in folders]
    commits = ", ".join(dict.fromkeys(commit for page in pages for commit in re.findall(r"commit \w+", page)))
    names = {"folders": " ".join(map(str, folders)), "commits": commits or "commit unknown"}
    text = TEXT.format(table=table, default=default, **names, **sizes)
    (Path(__file__).parent / "results" / "pairrank-default.md").write_text(text)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
