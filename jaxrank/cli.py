"""The command: ``jaxrank run``, ``plot``, ``reproduce``, ``fit``, ``bench``, ``list``."""

import argparse
import ast
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from jaxrank.pytrees import take_instances
from jaxrank.version import __version__


class _Parser(argparse.ArgumentParser):
    """Errors in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0, or 2 for bad input."""
    options = _parser().parse_args(arguments)
    _keep_compiled(options.name != "bench")
    try:
        options.command(options)
    except ValueError as error:
        print(f"jaxrank {options.name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"jaxrank {options.name}: interrupted, nothing written", file=sys.stderr)
        return 130
    return 0


def _keep_compiled(keep: bool) -> None:
    """Compiled functions outlive the command, in the user's cache folder, unless JAX was told otherwise."""
    import jax

    if not keep:  # compiling is what is measured
        jax.config.update("jax_enable_compilation_cache", False)
    elif not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "jaxrank"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="jaxrank", description="Simulate online learning to rank, many lanes at a time.")
    parser.add_argument("--version", action="version", version=f"jaxrank {__version__}")
    commands = parser.add_subparsers(required=True, dest="name", metavar="COMMAND", parser_class=_Parser)
    as_shown = argparse.ArgumentDefaultsHelpFormatter

    run = commands.add_parser(
        "run",
        formatter_class=as_shown,
        help="run policies in a click bandit; leave a results file and a picture of each metric",
    )
    run.set_defaults(command=_run)
    run.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:OPTION=VALUE,…]",
        help="a policy, e.g. bubblerank or bubblerank:delta=0.01; may be given several times "
        "(without it: bubblerank and static)",
    )
    run.add_argument("--click-model", default="cm", metavar="NAME", help="how users click: cm, dcm or pbm")
    run.add_argument(
        "--data",
        metavar="PATH",
        help="a file of click-model parameters of real queries; without it, a synthetic world",
    )
    run.add_argument("--queries", type=int, metavar="N", help="how many queries; all of the data, or 60 synthetic ones")
    run.add_argument("--items", type=int, default=10, metavar="L", help="items per query of the synthetic world")
    run.add_argument("--list-size", type=int, metavar="K", help="positions; as many as items if not given")
    run.add_argument(
        "--top", type=int, metavar="N", help="positions that regret and reward count; half of them if not given"
    )
    run.add_argument("--steps", type=int, default=100_000, metavar="N", help="steps of each lane")
    run.add_argument("--seeds", type=int, default=10, metavar="N", help="repetitions of every query")
    run.add_argument("--seed", type=int, default=0, metavar="N", help="root of all random numbers")
    run.add_argument("--metrics", nargs="+", default=["regret"], metavar="NAME", help="what to measure")
    run.add_argument("--records", type=int, default=200, metavar="N", help="points of a curve")
    run.add_argument("--spacing", choices=["linear", "log"], default="linear", help="how these points lie")
    run.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="where the files go")
    run.add_argument("--quiet", action="store_true", help="no progress bar")

    plot = commands.add_parser("plot", formatter_class=as_shown, help="draw the curves of a results file")
    plot.set_defaults(command=_plot)
    plot.add_argument("file", type=Path, help="what jaxrank run left, e.g. results/run.nc")
    plot.add_argument("--metric", default="regret", metavar="NAME", help="which curve")
    plot.add_argument("--per-step", action="store_true", help="the mean per step instead of the sum so far")
    plot.add_argument("--log", action="store_true", help="logarithmic axes")
    plot.add_argument("--out", type=Path, metavar="PICTURE", help="PNG, PDF or SVG; beside the file if not given")

    reproduce = commands.add_parser(
        "reproduce", formatter_class=as_shown, help="run a figure of a paper; leave its data, picture and table"
    )
    reproduce.set_defaults(command=_reproduce)
    reproduce.add_argument("figure", help="e.g. bubblerank-fig1; jaxrank list has all")
    reproduce.add_argument(
        "--scale", default="smoke", help="smoke (mostly compiling), laptop, or paper (the paper's sizes)"
    )
    reproduce.add_argument("--data", metavar="PATH", help="real queries; without it, synthetic ones")
    reproduce.add_argument("--bound", action="store_true", help="draw the theorem's bound too, where there is one")
    reproduce.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="where the files go")
    reproduce.add_argument("--quiet", action="store_true", help="no progress bar")

    fit = commands.add_parser(
        "fit", formatter_class=as_shown, help="fit a click model to a log of sessions; leave its parameters"
    )
    fit.set_defaults(command=_fit)
    fit.add_argument("log", type=Path, help="a table of sessions (.tsv, .tsv.gz), or a log of the Yandex challenge")
    fit.add_argument("--format", choices=["table", "yandex"], default="table", help="which of the two it is")
    fit.add_argument("--model", default="pbm", metavar="NAME", help="cm, dcm, pbm, ubm, dbn or ccm")
    fit.add_argument("--queries", type=int, metavar="N", help="only the N most frequent queries; all if not given")
    fit.add_argument("--iterations", type=int, default=1000, metavar="N", help="of EM at most")
    fit.add_argument("--out", type=Path, default=Path("params.json"), metavar="FILE", help="where the parameters go")
    fit.add_argument("--quiet", action="store_true", help="no progress bar")

    bench = commands.add_parser(
        "bench", formatter_class=as_shown, help="measure lane-steps per second against scalar loops compiled by numba"
    )
    bench.set_defaults(command=_bench)
    bench.add_argument("--policy", nargs="+", metavar="NAME", help="which policies; all without features if not given")
    bench.add_argument("--click-model", nargs="+", default=["cm"], metavar="NAME", help="cm, dcm and pbm")
    bench.add_argument("--lanes", nargs="+", type=int, default=[1_000], metavar="N", help="how many at once")
    bench.add_argument("--items", nargs="+", type=int, default=[10], metavar="L", help="items per query")
    bench.add_argument("--list-size", type=int, default=10, metavar="K", help="positions")
    bench.add_argument("--devices", nargs="+", type=int, default=[0], metavar="N", help="how many; 0 is all")
    bench.add_argument("--late", action="store_true", help="steps 100,000 to 120,000 too, when lists rarely change")
    bench.add_argument("--repeat", type=int, default=3, metavar="N", help="the best of so many")
    bench.add_argument("--no-baseline", action="store_true", help="without the scalar loops, which need numba")
    bench.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="where the files go")

    names = commands.add_parser("list", help="list policies, click models, figures and metrics")
    names.set_defaults(command=_list)
    return parser


def _run(options: argparse.Namespace) -> None:
    import jaxrank as jr

    model: Any
    if options.data is not None and options.queries is None:
        model = jr.datasets.yandex(options.data, options.click_model)
    elif options.data is not None:
        model = _first_queries(jr.datasets.yandex(options.data, options.click_model), options.queries)
    else:
        queries = 60 if options.queries is None else options.queries
        model = jr.datasets.synthetic(options.click_model, queries, options.items)
    list_size = model.attraction.shape[-1] if options.list_size is None else options.list_size
    # Half of the list, as in the papers: of the whole list, a cascade's reward does not depend on the order.
    top = max(1, list_size // 2) if options.top is None else options.top
    environment = jr.ClickBandit(model, list_size=list_size, top=top)
    policies = _policies(options.policy or ["bubblerank", "static"])
    out = options.out / "run.nc"
    _check_writable(options.out)

    print(
        f"{len(policies)} policies × {environment.num_queries or 1} queries × {options.seeds} seeds × "
        f"{options.steps:,} steps in {'real' if options.data else 'synthetic'} {options.click_model} queries"
    )
    result = jr.compare(
        policies,
        environment,
        options.steps,
        num_seeds=options.seeds,
        seed=options.seed,
        metrics=tuple(options.metrics),
        num_records=options.records,
        spacing=options.spacing,
        progress=not options.quiet,
    )
    result.attrs["data"] = str(options.data) if options.data else "synthetic"
    jr.save(result, out)
    print(_table(result))
    print(f"{result.attrs['lane_steps_per_second'] / 1e6:.2f} M lane-steps/s; wrote {out}")
    for metric in options.metrics:
        picture = options.out / f"{metric}.png"
        jr.plot_curves(result, metric, path=picture, per_step=metric.startswith("ndcg"))
        print(f"wrote {picture}")


def _plot(options: argparse.Namespace) -> None:
    import jaxrank as jr

    out = options.out or options.file.with_name(f"{options.metric}.png")
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"--out must end in .png, .pdf or .svg; got {out}")
    jr.plot_curves(jr.load(options.file), options.metric, path=out, per_step=options.per_step, log=options.log)
    print(f"wrote {out}")


def _reproduce(options: argparse.Namespace) -> None:
    from jaxrank.experiments import Request, reproduce

    request = Request(options.scale, options.data, options.out, options.bound, not options.quiet)
    _check_writable(options.out)
    print(f"{options.figure} at {request.scale} scale, {request.world}")
    print(reproduce(options.figure, request).table)
    print(f"wrote {options.out / options.figure}.nc, .png and .md")


def _fit(options: argparse.Namespace) -> None:
    import numpy as np

    import jaxrank as jr

    if options.format == "yandex":
        log = jr.datasets.load_yandex_log(options.log, num_queries=options.queries)
    else:
        log = jr.datasets.load_sessions(options.log)
        log = log if options.queries is None else log.most_frequent(options.queries)
    split = all(query.is_test is not None for query in log.queries.values())
    train = log.stacked("train" if split else None)
    model = jr.click_models.fit(
        options.model,
        train.rankings,
        train.clicks,
        log.num_items,
        queries=train.queries,
        num_queries=len(log.queries),
        num_iterations=options.iterations,
        progress=not options.quiet,
    )
    list_size = train.rankings.shape[1]
    jr.datasets.save_parameters(options.out, options.model, model, list(log.queries), num_items=list_size)
    print(f"{options.model} fitted to {len(train.queries):,} sessions of {len(log.queries)} queries")
    for name in ("train", "test") if split else (None,):
        held = log.stacked(name)
        measured = jr.click_models.evaluate(model, held.rankings, held.clicks, queries=held.queries)
        ranks = " ".join(f"{p:.3f}" for p in np.asarray(measured.perplexity_at))
        print(f"{name or 'all'}: log-likelihood {measured.log_likelihood:.4f}, perplexity {measured.perplexity:.4f}")
        print(f"{name or 'all'}: perplexity by rank {ranks}")
    print(f"wrote {options.out}")


def _bench(options: argparse.Namespace) -> None:
    from importlib.util import find_spec

    from jaxrank import bench

    if not options.no_baseline and find_spec("numba") is None:
        raise ValueError("the baseline needs numba (pip install 'jaxrank[bench]'); or give --no-baseline")
    for name, numbers in (("lanes", options.lanes), ("items", options.items), ("repeat", [options.repeat])):
        if min(numbers) < 1:
            raise ValueError(f"--{name} must be at least 1; got {min(numbers)}")
    if not 1 <= options.list_size <= min(options.items):
        raise ValueError(f"--list-size must be from 1 to {min(options.items)} items; got {options.list_size}")
    if min(options.devices) < 0:
        raise ValueError(f"--devices must be at least 0; got {min(options.devices)}")
    for kind, given, known in (
        ("policy", options.policy or (), bench.FEATURE_FREE),
        ("click-model", options.click_model, ("cm", "dcm", "pbm")),
    ):
        for name in given:
            if name not in known:
                raise ValueError(f"--{kind} must be among {', '.join(known)}; got {name!r}")
    cells = [
        bench.Cell(policy, model, lanes, items, options.list_size, devices, late)
        for items in options.items
        for model in options.click_model
        for policy in options.policy or bench.policies_for(model)
        for devices in options.devices
        for lanes in options.lanes
        for late in ([False, True] if options.late else [False])
    ]
    rows, paths = [], []
    for cell in cells:
        row = bench.measure(cell, options.repeat, baseline=not options.no_baseline)
        rows.append(row)
        print(bench.table([row]).splitlines()[-1] if len(rows) > 1 else bench.table([row]), flush=True)
        paths = bench.write(rows, options.out)  # after each one: what was measured is kept
    for path in paths:
        print(f"wrote {path}")


def _list(options: argparse.Namespace) -> None:
    from jaxrank import registry

    for kind, title in (("policy", "Policies"), ("click_model", "Click models")):
        print(f"{title}:")
        for name in registry.available(kind):
            factory = registry.factory(name, kind)
            fields = dataclasses.fields(factory) if dataclasses.is_dataclass(factory) else ()
            signature = ", ".join(f.name for f in fields if f.init)
            summary = (factory.__doc__ or "").strip().split("\n")[0]
            print(f"  {f'{name}({signature})':44} {summary}")
    from jaxrank.experiments import FIGURES

    print("Figures:")
    for name, figure in FIGURES.items():
        print(f"  {name:44} {(figure.__doc__ or '').strip().split(chr(10))[0]}")
    print("Metrics of a click bandit:")
    print("  regret, reward, violations, misordered, ndcg, ndcg@1, ndcg@2, …, clicks")
    print("Metrics of a topic bandit:")
    print("  regret, reward, coverage, similarity")
    print("Metrics of a query stream:")
    print("  ndcg, cndcg, regret, clicks")


def _policies(specifications: Sequence[str]) -> dict[str, Any]:
    """{label: policy}: the class name, or the specification where two policies have one class."""
    from jaxrank.registry import make

    made = []
    for text in specifications:
        name, _, settings = text.partition(":")
        made.append((text, make(name, **_settings(text, settings))))
    classes = [type(policy).__name__ for _, policy in made]
    labels = [c if classes.count(c) == 1 else text for c, (text, _) in zip(classes, made, strict=True)]
    if len(set(labels)) < len(labels):
        raise ValueError(f"--policy must not be given twice with the same options; got {' '.join(specifications)}")
    return dict(zip(labels, (policy for _, policy in made), strict=True))


def _settings(text: str, settings: str) -> dict[str, Any]:
    parsed = {}
    for setting in filter(None, settings.split(",")):
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--policy must look like name:option=value,option=value; got {text!r}")
        try:
            parsed[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed[key] = value
    return parsed


def _first_queries(model: Any, count: int) -> Any:
    available = model.attraction.shape[0]
    if not 1 <= count <= available:
        raise ValueError(f"--queries must be from 1 to the {available} of the data; got {count}")
    return take_instances(model, slice(count))


def _check_writable(folder: Path) -> None:
    """Before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out must be a folder that can be made; cannot make {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise ValueError(f"--out must be a folder that can be written; cannot write {folder}")


def _table(result: Any) -> str:
    """Final means and standard errors, a line for each policy."""
    from jaxrank.results import mean_and_error

    metrics = list(result.data_vars)
    lines = [f"{'policy':28}" + "".join(f"{metric:>26}" for metric in metrics)]
    for policy in result["policy"].values:
        cells = []
        for metric in metrics:
            mean, error = mean_and_error(result[metric].sel(policy=policy).isel(step=-1))
            cells.append(f"{float(mean):,.1f} ± {float(error):,.1f}".rjust(26))
        lines.append(f"{policy:28}" + "".join(cells))
    return "\n".join(lines)
