"""What knowing the examination is worth, after Gauthier, Gaudel and Fromont (IDA 2021, ICML 2021, ICML 2022).

Their papers have Yandex queries with 10 items and 5 positions in the position-based model, and find PB-MHB, GRAB and
UniRank, which do not know χ, below TopRank. PBM-UCB and its relatives know it: here also with the χ of another query,
and with that of users who look at all positions alike.
"""

from typing import Any

import jax.numpy as jnp

from jaxrank.core.types import Policy
from jaxrank.environments.click_bandit import ClickBandit
from jaxrank.output.plotting import Entries, draw_curves, legend_below, panels
from jaxrank.output.report import HOW, Report, verdict
from jaxrank.output.results import mean_and_error
from jaxrank.output.tables import markdown, plus_minus
from jaxrank.policies import GRAB, PBMHB, PBMTS, PBMUCB, TopRank, UniRank
from jaxrank.studies.papers.figure import FigureRequest, Size, paired, queries, refuse_without, run_worlds

_SIZES = {"smoke": Size(3, 1, 1_000), "laptop": Size(60, 2, 100_000), "paper": Size(60, 20, 10_000_000)}
POSITIONS = 5
UNKNOWING = ("TopRank", "GRAB", "PBMHB", "UniRank")


def figure(request: FigureRequest) -> Report:
    """Unknown examination: policies that know χ, that know it wrongly and that do not know it, in PBM."""
    refuse_without(request, "TopRank")
    size = request.size(_SIZES)
    model: Any = queries(request, "pbm", size.num_queries)
    environment = ClickBandit(model, list_size=POSITIONS)
    even = jnp.ones(POSITIONS)
    reverse = jnp.mean(jnp.atleast_2d(model.examination), axis=0)[:POSITIONS][::-1]
    policies: dict[str, Policy] = {
        "TopRank": TopRank(),
        "GRAB": GRAB(),
        "PBMHB": PBMHB(),
        "UniRank": UniRank(),
        "PBMUCB": PBMUCB(),
        "PBMTS": PBMTS(),
        "PBMUCB, χ = 1": PBMUCB(examination=even),
        "PBMUCB, χ upside down": PBMUCB(examination=reverse),
    }
    result = run_worlds(
        request,
        "unknown-examination",
        "click_model",
        {"pbm": environment},
        policies,
        size,
        num_records=100,
        spacing="log",
    )
    figure, (ax,) = panels(1)
    entries: Entries = draw_curves(ax, result.sel(click_model="pbm"), "regret", log=True, title="PBM, K = 5, L = 10")
    legend_below(figure, entries)
    marks = [int(result["step"][i]) for i in result["step"].searchsorted([size.num_steps // 10, size.num_steps])]
    regret = result["regret"].sel(click_model="pbm")
    last = regret.isel(step=-1)
    rows = []
    for policy in map(str, last["policy"].values):
        cells = [plus_minus(*mean_and_error(regret.sel(policy=policy, step=t)), 1) for t in marks]
        gap = paired(last.sel(policy=policy), last.sel(policy="TopRank"))
        rows.append([policy, *cells, plus_minus(*gap, 1)])
    header = ["policy", *(f"regret at {t:,}" for t in marks), "minus TopRank at the end (95 %)"]
    lines = [f"Claims about the regret at step {size.num_steps:,}. {HOW}", ""]
    claims = [("χ unknown", name, "TopRank") for name in UNKNOWING[1:]]
    claims += [("χ known to PBMTS", "PBMTS", name) for name in UNKNOWING]
    claims += [("χ known and misknown", "PBMUCB", f"PBMUCB, χ {wrong}") for wrong in ("= 1", "upside down")]
    known = set(map(str, last["policy"].values))
    lines += [verdict(what, one, "below", other, last, 1) for what, one, other in claims if {one, other} <= known]
    return Report(result, figure, markdown(header, rows) + "\n\n" + "\n".join(lines))
