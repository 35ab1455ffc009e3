"""What each command does with its options (which ``cli.py`` defines)."""

import argparse
import ast
import dataclasses
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrank import bench as benchmark
from jaxrank import click_models, datasets
from jaxrank.core import registry
from jaxrank.core.checks import choice, integer
from jaxrank.core.version import __version__
from jaxrank.engine import distributed
from jaxrank.engine.devices import first_devices
from jaxrank.engine.estimation import duration, estimate
from jaxrank.engine.request import flags
from jaxrank.engine.simulation import compare
from jaxrank.output import results
from jaxrank.output.files import write_text
from jaxrank.output.plotting import check_picture, plot_result
from jaxrank.output.tables import columns, plus_minus
from jaxrank.studies import papers, sweeps, worlds

_MACHINE_OPTIONS = ("devices", "distributed", "coordinator", "num_processes", "process_id")


def run(options: argparse.Namespace, resume: bool = False) -> None:
    if options.distributed:
        kept = distributed.what_is_kept(options.checkpoint)
        distributed.start(options.coordinator, options.num_processes, options.process_id, kept)
    elif options.coordinator or options.num_processes is not None or options.process_id is not None:
        raise ValueError("--coordinator, --num-processes and --process-id need --distributed")
    mesh = None if options.devices is None else first_devices(options.devices)
    first = jax.process_index() == 0
    policies = _policies(options.policy or [])
    name = options.world or worlds.find_world(policies, options.data)
    policies = policies or _policies(worlds.POLICIES[name])
    given = {option: getattr(options, option) for option in sorted(set().union(*worlds.OPTIONS.values()))}
    world = worlds.make_world(name, policies, **given)
    asked = request_options(options, world)
    out = options.out / "run.nc"
    if options.dry_run:
        for label, policy in policies.items():
            print(f"{label}: {estimate(policy, world.environment, **asked)}")
        return
    if first:
        options.claim(options.out)
    if options.checkpoint and not resume:
        _keep_options(options)

    if first:
        size = f"{asked['num_seeds']} seeds × {asked['num_steps']:,} steps"
        print(f"{len(policies)} policies × {size} in {world.summary}", flush=True)
    result = compare(
        policies,
        world.environment,
        **asked,
        progress=first and not options.quiet,
        mesh=mesh,
        checkpoint_dir=options.checkpoint,
        resume=resume,
    )
    result.attrs["data"] = str(options.data) if options.data else "synthetic"
    if "lane" in result.dims:  # the curves were too large to gather
        out = options.out / f"run-{jax.process_index()}-of-{jax.process_count()}.nc"
        print(f"wrote {results.save(result, out)}: the lanes of this process")
        return
    if not first:
        return
    if world.names:
        result = result.assign_coords({world.environment.instance_dim: list(world.names)})
    results.save(result, out)
    print(_table(result))
    print(f"{result.attrs['lane_steps_per_second']:,.0f} lane-steps/s; wrote {out}")
    for metric in (*asked["metrics"], *asked["probes"]):
        picture = options.out / f"{metric}.{options.format}"
        per_step = metric.startswith("ndcg") and metric not in world.probes
        plot_result(result, metric, picture, per_step=per_step)
        print(f"wrote {picture}")


def request_options(options: argparse.Namespace, world: worlds.World) -> dict[str, Any]:
    """The options of a request, checked under the names that were typed; what was not given is the world's own."""
    asked: dict[str, Any] = {}
    for flag, field in flags().items():
        value = getattr(options, flag.replace("-", "_"))
        if value is not None:
            asked[field.name] = field.metadata["check"](f"--{flag}", value)
    return {"num_steps": world.num_steps, **asked, **world.measured(asked.get("metrics"))}


def _keep_options(options: argparse.Namespace) -> None:
    """Writes what ``jaxrank resume`` needs to know about a run, as JSON beside its checkpoints."""
    path = options.checkpoint / "run.json"
    if any(distributed.gather(path.exists())):
        raise ValueError(
            f"--checkpoint must be a new folder; {options.checkpoint} holds a run: jaxrank resume {options.checkpoint}"
        )
    of_this_process = ("command", "claim", "name", "checkpoint", *_MACHINE_OPTIONS)
    kept = {name: value for name, value in vars(options).items() if name not in of_this_process}
    kept |= {name: str(value.resolve()) for name, value in kept.items() if isinstance(value, Path)}
    write_text(path, json.dumps({"jaxrank": __version__, "options": kept}, indent=1))


def resume(options: argparse.Namespace) -> None:
    path = options.checkpoint / "run.json"
    try:
        kept = json.loads(path.read_text())["options"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"FOLDER must be the one given to --checkpoint; cannot read {path}") from None
    again = options.run_defaults()
    for name, value in kept.items():
        setattr(again, name, Path(value) if isinstance(getattr(again, name, None), Path) else value)
    for name in ("checkpoint", "claim", *_MACHINE_OPTIONS):
        setattr(again, name, getattr(options, name))
    again.quiet |= options.quiet
    run(again, resume=True)


def sweep(options: argparse.Namespace) -> None:
    if options.dry_run:
        estimates = sweeps.estimate_sweep(options.config)
        for name, one in estimates:
            print(f"{name}: {one}")
        print(f"{len(estimates)} cells: about {duration(sum(one.seconds for _, one in estimates))} in all")
        return
    report = sweeps.sweep(options.config, options.out, progress=not options.quiet, format=options.format)
    print(report.table)
    print(f"wrote {report.out}: manifest.json, summary.md, results and pictures; {report.skipped} cells had finished")
    if report.failed:
        listing = "; ".join(f"{name}: {error}" for name, error in report.failed.items())
        raise ValueError(f"{len(report.failed)} cells failed: {listing}")


def plot(options: argparse.Namespace) -> None:
    out = options.out or options.file.with_name(f"{options.metric}.{options.format or 'png'}")
    check_picture("--out", out)
    if options.format not in (None, out.suffix[1:]):
        raise ValueError(f"--format must be as --out ends, {out.suffix[1:]}; got {options.format}")
    plot_result(results.load(options.file), options.metric, out, per_step=options.per_step, log=options.log)
    print(f"wrote {out}")


def reproduce(options: argparse.Namespace) -> None:
    request = papers.FigureRequest(
        options.scale, options.data, options.out, options.bound, not options.quiet, options.format
    )
    options.claim(options.out)
    for figure in options.figure:
        print(f"{figure} at {request.scale} scale, {request.world}")
        print(papers.reproduce(figure, request).table)
        print(f"wrote {options.out / figure}.nc, .{request.format} and .md")


def fit(options: argparse.Namespace) -> None:
    if options.format == "yandex":
        log = datasets.load_yandex_log(options.log, num_queries=options.queries)
    else:
        log = datasets.load_sessions(options.log)
        log = log if options.queries is None else log.most_frequent(options.queries)
    split = all(query.is_test is not None for query in log.queries.values())
    train = log.stacked("train" if split else None)
    model = click_models.fit(
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
    datasets.save_parameters(options.out, options.model, model, list(log.queries), num_items=list_size)
    print(f"{options.model} fitted to {len(train.queries):,} sessions of {len(log.queries)} queries")
    for name in ("train", "test") if split else (None,):
        held = log.stacked(name)
        measured = click_models.evaluate(model, held.rankings, held.clicks, queries=held.queries)
        ranks = " ".join(f"{p:.3f}" for p in np.asarray(measured.perplexity_at))
        print(f"{name or 'all'}: log-likelihood {measured.log_likelihood:.4f}, perplexity {measured.perplexity:.4f}")
        print(f"{name or 'all'}: perplexity by rank {ranks}")
    print(f"wrote {options.out}")


def bench(options: argparse.Namespace) -> None:
    if not options.no_baseline and find_spec("numba") is None:
        raise ValueError("the baseline needs numba (pip install 'jaxrank[bench]'); or give --no-baseline")
    for name, numbers, least in (
        ("lanes", options.lanes, 1),
        ("items", options.items, 1),
        ("repeat", [options.repeat], 1),
        ("devices", options.devices, 0),
    ):
        integer(f"--{name}", min(numbers), least)
    integer("--list-size", options.list_size, 1, min(options.items), " items")
    for kind, given, known in (
        ("policy", options.policy or (), benchmark.FEATURE_FREE),
        ("click-model", options.click_model, ("cm", "dcm", "pbm")),
    ):
        for name in given:
            choice(f"--{kind}", name, known)
    cells = [
        benchmark.Cell(policy, model, lanes, items, options.list_size, devices, late)
        for items in options.items
        for model in options.click_model
        for policy in options.policy or benchmark.policies_for(model)
        for devices in options.devices
        for lanes in options.lanes
        for late in ([False, True] if options.late else [False])
    ]
    for cell in cells:
        benchmark.devices_of(cell)
    options.claim(options.out)
    rows, paths = [], []
    for cell in cells:
        row = benchmark.measure(cell, options.repeat, baseline=not options.no_baseline)
        rows.append(row)
        print(benchmark.table([row]).splitlines()[-1] if len(rows) > 1 else benchmark.table([row]), flush=True)
        paths = benchmark.write(rows, options.out, options.format)  # after each cell, so that what was measured is kept
    for path in paths:
        print(f"wrote {path}")


def list_names(options: argparse.Namespace) -> None:
    for kind, title in (("policy", "Policies"), ("click_model", "Click models")):
        print(f"{title}:")
        for name in registry.available(kind):
            factory = registry.factory(name, kind)
            fields = dataclasses.fields(factory) if dataclasses.is_dataclass(factory) else ()
            signature = ", ".join(f.name for f in fields if f.init)
            summary = (factory.__doc__ or "").strip().split("\n")[0]
            print(f"  {f'{name}({signature})':44} {summary}")
    print("Figures:")
    for name, figure in papers.FIGURES.items():
        print(f"  {name:44} {(figure.__doc__ or '').strip().split(chr(10))[0]}")
    print("Metrics of a click bandit:")
    print("  regret, reward, violations, misordered, ndcg, ndcg@1, ndcg@2, …, clicks")
    print("Metrics of a topic bandit:")
    print("  regret, reward, coverage, similarity")
    print("Metrics of a query stream:")
    print("  ndcg, cndcg, regret, clicks, and of the learnt ranker on held-out queries: ndcg@10")


def _policies(specifications: Sequence[str]) -> dict[str, Any]:
    """{label: policy}: the class name, or the specification where two policies have one class."""
    made = []
    for text in specifications:
        name, _, settings = text.partition(":")
        made.append((text, registry.make(name, **_settings(text, settings))))
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


def _table(result: Any) -> str:
    """Final means and standard errors, a line for each policy and each user that has a name."""
    metrics = list(result.data_vars)
    rows = []
    for policy in result["policy"].values:
        last = result.sel(policy=policy).isel(step=-1)
        parts = {policy: last}
        if "user" in last.coords and last["user"].dtype.kind in "UO":
            parts = {f"{policy} {user}": last.sel(user=user) for user in last["user"].values}
        for label, part in parts.items():
            means = [plus_minus(*results.mean_and_error(part[metric]), digits=None) for metric in metrics]
            rows.append([str(label), *means])
    return columns(["policy", *map(str, metrics)], rows)
