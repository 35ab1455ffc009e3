"""What each command does with its options (which ``cli.py`` defines)."""

import argparse
import contextlib
import functools
import inspect
import io
import itertools
import re
import shlex
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax

from jaxrank import bench as benchmark
from jaxrank import click_models, datasets
from jaxrank.click_models.fitting import FITS
from jaxrank.command.new_files import write_skeleton, write_sweep
from jaxrank.command.watching import make_server
from jaxrank.core import own_code, registry
from jaxrank.core.checks import choice, integer, renamed
from jaxrank.core.pytrees import num_instances
from jaxrank.core.version import __version__
from jaxrank.datasets.parameters import parameter_sections
from jaxrank.engine import distributed
from jaxrank.engine.devices import first_devices
from jaxrank.engine.estimation import duration, estimate
from jaxrank.engine.request import flags
from jaxrank.engine.simulation import compare
from jaxrank.output import results
from jaxrank.output.files import read_json, remove, remove_left_over, write_json
from jaxrank.output.page import Content, write_page
from jaxrank.output.plotting import FORMATS, check_picture, plot_result
from jaxrank.output.report import spared
from jaxrank.output.tables import columns, counted, plus_minus
from jaxrank.studies import folders, papers, sweeps, worlds

_MACHINE_OPTIONS = ("devices", "distributed", "coordinator", "num_processes", "process_id")
_VIEWS = ("", "-per-step", "-log", "-per-step-log")  # how the pictures that ``plot`` draws of a metric end
_FLAGS = {field.name: f"--{flag}" for flag, field in flags().items()} | {"path": "--out"}


def run(options: argparse.Namespace, resume: bool = False) -> None:
    """Runs, or resumes, and writes the results. Only --force replaces those of another run.

    A run that is resumed replaces its own: it may have been stopped while it drew its pictures.
    """
    if options.distributed:
        kept = distributed.what_is_kept(options.checkpoint and resume_command(options))
        distributed.start(options.coordinator, options.num_processes, options.process_id, kept)
    elif options.coordinator or options.num_processes is not None or options.process_id is not None:
        raise ValueError("--coordinator, --num-processes and --process-id need --distributed")
    with renamed({"devices": "--devices"}):
        mesh = None if options.devices is None else first_devices(options.devices)
    first = jax.process_index() == 0
    if not options.dry_run:
        found = _results_of(options.out)
        _refuse_existing(options, [file for file in found if not (resume and _is_of(file, options.checkpoint))])
    policies = _policies(options.policy or [], getattr(options, "folder", None))
    name = options.world or worlds.find_world(policies, options.data)
    policies = policies or _policies(worlds.POLICIES.get(name, worlds.POLICIES["click"]))
    given = {option: getattr(options, option) for option in sorted(set().union(*worlds.OPTIONS.values()))}
    world = worlds.make_world(name, policies, **given)
    policies = {label: world.delayed(policy) for label, policy in policies.items()}
    asked = request_options(options, world)
    out = options.out / "run.nc"
    report = options.out / folders.REPORT
    if options.dry_run:
        for label, policy in policies.items():
            with renamed(_FLAGS):
                print(f"{label}: {estimate(policy, world.environment, **asked)}")
        return
    pictures = {metric: options.out / f"{metric}.{options.format}" for metric in (*asked["metrics"], *asked["probes"])}
    if not resume:
        _refuse_existing(options, [*pictures.values(), report])
    if first:
        options.claim(options.out)
    if options.checkpoint and not resume:
        _keep_options(options)

    if first:
        sizes = {"policy": len(policies), "seed": asked["num_seeds"], "step": asked["num_steps"]}
        size = " × ".join(counted(number, noun) for noun, number in sizes.items())
        print(f"{size} in {world.summary}", flush=True)
    with renamed(_FLAGS):
        result = compare(
            policies,
            world.environment,
            **asked,
            progress=first and not options.quiet,
            mesh=mesh,
            checkpoint_dir=options.checkpoint,
            resume=resume,
        )
    result.attrs |= {"data": str(options.data) if options.data else "synthetic", "command": _typed(options)}
    if options.checkpoint:
        result.attrs["checkpoint"] = str(options.checkpoint.resolve())
    in_shares = "lane" in result.dims  # the curves were too large to gather
    if in_shares:
        out = options.out / f"run-{jax.process_index()}-of-{jax.process_count()}.nc"
    if first:
        _remove_old(options.out, but=out)
    distributed.gather(None)  # the other processes write after that
    if in_shares:
        print(f"wrote {_saved(result, out)}: the lanes of this process")
        return
    if not first:
        return
    if world.names:
        result = result.assign_coords({world.environment.instance_dim: list(world.names)})
    print(_table(result))
    _saved(result, out)
    print(f"{result.attrs['lane_steps_per_second']:,.0f} lane-steps/s; wrote {out}")
    for metric, picture in pictures.items():
        per_step = metric.startswith("ndcg") and metric not in world.probes
        with spared(f"the picture of {metric}"):
            plot_result(result, metric, picture, per_step=per_step)
            print(f"wrote {picture}")
    _write_report(options, report, lambda: folders.run_content(out))


def _write_report(options: argparse.Namespace, path: Path, content: Callable[[], Content]) -> None:
    """Writes the report of what this command has made, unless it is told not to."""
    if options.report:
        with spared("the report"):
            write_page(path, content())
            print(f"wrote {path}")


def _typed(options: argparse.Namespace) -> str:
    """The command that started this run."""
    return shlex.join(["jaxrank", "run", *options.arguments])


def _saved(result: Any, path: Path) -> Path:
    """Writes a result: to ``path`` or, if that cannot be written, to a temporary folder, which an error then names."""
    try:
        with renamed({"path": "--out"}):
            return results.save(result, path, overwrite=True)
    except ValueError as error:
        other = results.save(result, Path(tempfile.mkdtemp(prefix="jaxrank-")) / path.name)
        raise ValueError(f"{error}; the results were written to {other} instead") from None


def _results_of(folder: Path) -> list[Path]:
    """The results files that a run of one or of several processes has left in ``folder``."""
    shares = [file for file in folder.glob("run-*-of-*.nc") if re.fullmatch(r"run-\d+-of-\d+\.nc", file.name)]
    return [file for file in (folder / "run.nc", *sorted(shares)) if file.is_file()]


def _is_of(file: Path, checkpoint: Path) -> bool:
    """Were these results written by the run whose checkpoints are in ``checkpoint``?"""
    try:
        return results.load(file).attrs.get("checkpoint") == str(checkpoint.resolve())
    except ValueError:
        return False


def _refuse_existing(options: argparse.Namespace, files: list[Path]) -> None:
    """Refuses, in all processes of a run, to replace ``files`` that one of them has, unless it is to --force it."""
    there = distributed.gather([str(file) for file in files if file.exists()])
    found = [file for of_process in there for file in of_process]
    if found and not options.force:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise ValueError(f"--out must be new; there is {found[0]}{more}: choose another, or give --force to replace it")


def _keep_only(files: list[Path], kinds: tuple[str, ...]) -> None:
    """Removes those of ``files`` that have another ending: pictures of an earlier run, in another format."""
    for file in files:
        if file.suffix[1:] not in kinds:
            remove(file)


def _remove_old(folder: Path, but: Path) -> None:
    """Removes what an earlier run left in ``folder``: its results, ``but`` for one file, and the pictures of them."""
    for file in _results_of(folder):
        with contextlib.suppress(ValueError):  # if it is damaged, its metrics are not known
            remove(folder / folders.REPORT)
            metrics = [str(metric) for metric in results.load(file).data_vars]
            for metric, view, format in itertools.product(metrics, _VIEWS, FORMATS):
                if Path(metric).name == metric:  # whoever wrote the file, nothing outside of the folder is removed
                    remove(folder / f"{metric}{view}.{format}")
        if file != but:
            remove(file)


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
    content = {"jaxrank": __version__, "folder": str(Path.cwd()), "arguments": options.arguments}
    with renamed({"path": "--checkpoint"}):
        write_json(path, content)


def resume(options: argparse.Namespace) -> None:
    """Continues a run. Its folder may come from anyone: results go there, or to the --out that is given now."""
    folder, again = _kept_options(options)
    remove_left_over(options.checkpoint)
    started_with = again.out
    for name in ("checkpoint", "claim", "force", *_MACHINE_OPTIONS):
        setattr(again, name, getattr(options, name))
    again.out = options.out or options.checkpoint
    if (folder / started_with).resolve() != again.out.resolve() and not options.out:
        print(f"the results go to {again.out}; the run was started with --out {started_with}", flush=True)
    again.quiet |= options.quiet
    again.folder = folder  # in which the run was started: paths of files are relative to it
    again.data = again.data and str(folder / again.data)
    for name, kind in (("click_model", "click_model"), ("world", "environment")):
        if getattr(again, name):
            setattr(again, name, _located(getattr(again, name), kind, folder))
    _refuse_untrusted(options, again)
    run(again, resume=True)


def _kept_options(options: argparse.Namespace) -> tuple[Path, argparse.Namespace]:
    """The folder in which a run was started, and its options: the words of run.json, read as if they were typed."""
    path = options.checkpoint / "run.json"
    try:
        content, sealed = read_json(path)
        if "options" in content and not sealed:
            raise ValueError("it is of jaxrank 0.1.0, which has to finish it")
        words, folder = content.get("arguments"), content.get("folder", 0)
        if not sealed or not isinstance(words, list) or not all(isinstance(word, str) for word in [folder, *words]):
            raise ValueError("it is incomplete, or was not written by jaxrank run")
    except OSError as error:
        raise ValueError(
            f"FOLDER must be the one given to --checkpoint; cannot read {path}: {error.strerror}"
        ) from None
    except ValueError as error:
        raise ValueError(f"FOLDER must be the one given to --checkpoint; cannot read {path}: {error}") from None
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            again = options.parse(["run", *words])
            again.arguments = words
            return Path(folder), again
    except SystemExit:
        raise ValueError(f"{path} must hold the options of a run; {said.getvalue() or 'it asks for help'}") from None


def own_sources(options: argparse.Namespace) -> list[str]:
    """The files and modules with code of one's own that the options of a run name."""
    folder = getattr(options, "folder", None) or Path()
    named = [(text, "policy") for text in options.policy or ()]
    named += [
        (text, kind) for text, kind in ((options.click_model, "click_model"), (options.world, "environment")) if text
    ]
    found = [
        own_code.source_of(registry.parse("run.json", _located(text, kind, folder), kind)[0]) for text, kind in named
    ]
    return list(dict.fromkeys(_absolute(source) for source in found if source))


def resume_command(options: argparse.Namespace) -> str:
    """What to type to continue a run that ``jaxrank run`` or ``jaxrank resume`` was told to stop."""
    trusted = options.trust if options.name == "resume" else own_sources(options)
    words = ["jaxrank", "resume", str(options.checkpoint)]
    words += ["--out", str(options.out)] if options.out else []
    words += [word for name in trusted for word in ("--trust", name)]
    return shlex.join(words)


def _refuse_untrusted(options: argparse.Namespace, again: argparse.Namespace) -> None:
    """A run.json may come from anyone, so the code that it names is imported only if the command line names it too."""
    needed = own_sources(again)
    trusted = {_absolute(source) for source in options.trust}
    if not set(needed) <= trusted:
        options.trust = needed
        raise ValueError(
            f"--trust must name the code that a run imports; this one was started with {', '.join(needed)}: if "
            f"you trust it, continue with: {resume_command(options)}"
        )


def _absolute(source: str) -> str:
    """A file by its whole path; a module by its name."""
    return str(Path(source).expanduser().resolve()) if source.endswith(".py") else source


def _located(text: str, kind: str, folder: Path) -> str:
    """``text`` with the path of its file, if it has one, taken from ``folder``."""
    name = registry.parse("run.json", text, kind)[0]
    return own_code.located(name, folder) + text.removeprefix(name)


def sweep(options: argparse.Namespace) -> None:
    if options.dry_run:
        with renamed({"config": "CONFIG"}):
            estimates = sweeps.estimate_sweep(options.config)
        for name, one in estimates:
            print(f"{name}: {one}")
        total = duration(sum(one.seconds for _, one in estimates))
        print(f"{counted(len(estimates), 'cell')}: about {total} in all")
        if any(one.calibrated_steps == 0 for _, one in estimates):
            print("cells that were not tried are assumed to have the pace of the most similar one that was")
        return
    with renamed({"config": "CONFIG", "out": "--out", "path": "--out"}):
        report = sweeps.sweep(
            options.config,
            options.out,
            progress=not options.quiet,
            overwrite=options.force,
            format=options.format,
            report=options.report,
        )
    print(report.table)
    skipped = counted(report.skipped, "cell")
    written = "manifest.json, summary.md, results, pictures" + (" and report.html" if options.report else "")
    print(f"wrote {report.out}: {written}; {skipped} had finished before")
    if report.failed:
        listing = "; ".join(f"{name}: {error}" for name, error in report.failed.items())
        raise ValueError(f"{counted(len(report.failed), 'cell')} failed: {listing}")


def new(options: argparse.Namespace) -> None:
    if options.kind == "sweep":
        print(f"wrote {write_sweep(options.file)}; try: jaxrank sweep {options.file}")
        return
    path, test, run_options = write_skeleton(options.kind, options.file)
    print(f"wrote {path} and {test}; try: pytest {test}; jaxrank run {run_options}")


def plot(options: argparse.Namespace) -> None:
    view = _VIEWS[options.per_step + 2 * options.log]
    out = options.out or options.file.with_name(f"{options.metric}{view}.{options.format or 'png'}")
    check_picture("--out", out)
    if options.format not in (None, out.suffix[1:]):
        raise ValueError(f"--format must be as --out ends, {out.suffix[1:]}; got {options.format}")
    _refuse_existing(options, [out])
    with renamed({"path": "FILE"}):
        result = results.load(options.file)
    with renamed({"path": "--out", "metric": "--metric"}):
        plot_result(result, options.metric, out, per_step=options.per_step, log=options.log)
    print(f"wrote {out}")


def report(options: argparse.Namespace) -> None:
    places = [place.with_name(place.stem) if place.is_file() else place for place in options.folder]
    names = [place.resolve().name for place in places]
    names = names if len(set(names)) == len(names) else [str(place) for place in places]
    if len(set(names)) < len(names):
        raise ValueError(f"FOLDER must not be given twice; got {' '.join(map(str, options.folder))}")

    def content() -> Content:
        with renamed({"folder": "FOLDER", "path": "FOLDER"}):
            contents = dict(zip(names, map(folders.content_of, options.folder), strict=True))
        return folders.compared(contents) if len(contents) > 1 else next(iter(contents.values()))

    if options.watch:
        for place in options.folder:
            if not place.exists():
                raise ValueError(f"FOLDER must be that of a run, a sweep or a figure; there is none at {place}")
        watched = [place if place.is_dir() else place.parent for place in options.folder]
        with make_server(watched, content, integer("--port", options.port, 0, 65_535)) as server:
            print(f"http://127.0.0.1:{server.server_address[1]}/ until Ctrl-C", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
        return
    first = options.folder[0]
    if first.is_file():
        beside = first.with_name(folders.REPORT) if first.name == "run.nc" else first.with_suffix(".html")
    else:
        beside = first / folders.REPORT
    out = options.out or (beside if len(names) == 1 else beside.with_name("compared.html"))
    _refuse_existing(options, [out])
    with renamed({"path": "--out"}):
        write_page(out, content())
    print(f"wrote {out}")


def reproduce(options: argparse.Namespace) -> None:
    names = {name: f"--{name}" for name in ("scale", "data", "out", "seeds", "bound", "checkpoint")}
    names |= {"figure": "FIGURE", "stop_at": "--stop-at", "click_models": "--click-model", "num_queries": "--queries"}
    names["panels"] = "--panel"
    with renamed(names):
        request = papers.FigureRequest(
            options.scale,
            options.data,
            options.out,
            options.bound,
            not options.quiet,
            options.format,
            options.checkpoint,
            tuple(options.seeds or ()),
            tuple(options.click_model or ()),
            options.stop_at,
            options.queries,
            tuple(options.panel or ()),
        )
        for figure in options.figure:
            papers.check_request(figure, request)
    files = {
        figure: [options.out / f"{figure}.{kind}" for kind in ("nc", "md", "html", *FORMATS)]
        for figure in options.figure
    }
    _refuse_existing(options, [file for of_figure in files.values() for file in of_figure])
    options.claim(options.out)
    for figure in options.figure:
        print(f"{figure} at {request.scale} scale, {request.world}")
        with renamed(names):
            print(papers.reproduce(figure, request).table)
        _keep_only(files[figure], ("nc", "md", request.format))
        print(f"wrote {options.out / figure}.nc, .{request.format} and .md")
        content = functools.partial(folders.figure_content, options.out / f"{figure}.nc")
        _write_report(options, options.out / f"{figure}.html", content)


def fit(options: argparse.Namespace) -> None:
    if options.parameters is None:
        _refuse_existing(options, [options.out])
    names = [choice("--model", name, FITS) for name in options.model or FITS]
    log = _click_log(options)
    split = all(query.is_test is not None for query in log.queries.values())
    train = log.stacked("train" if split else None)
    if not len(train.queries):
        raise ValueError("LOG must have training sessions; got none")
    models: dict[str, Any] = {}
    if options.parameters is not None:
        with renamed({"path": "--parameters"}):
            for name in names if options.model else parameter_sections(options.parameters):
                models[name] = datasets.fitted_to(options.parameters, name, log)
    else:
        with renamed({"shrinkage": "--shrinkage", "num_iterations": "--iterations"}):
            for name in names:
                models[name] = click_models.fit(
                    name,
                    train.rankings,
                    train.clicks,
                    log.num_items,
                    queries=train.queries,
                    num_queries=len(log.queries),
                    shrinkage=options.shrinkage,
                    fix_scale=not options.free_scale,
                    num_iterations=options.iterations,
                    progress=not options.quiet,
                )
        with renamed({"path": "--out"}):
            documents = {name: query.documents.tolist() for name, query in log.queries.items()}
            datasets.save_parameters(options.out, models, documents)
    sessions, queries = counted(len(train.queries), "session"), counted(len(log.queries), "query")
    print(f"{'measured on' if options.parameters else 'fitted to'} {sessions} of {queries}")
    print(_fit_table(models, {name: log.stacked(name) for name in ("train", "test")} if split else {"all": train}))
    if options.parameters is None:
        print(f"wrote {options.out}")


def _click_log(options: argparse.Namespace) -> Any:
    """The log that ``jaxrank fit`` was given, with the split that it was asked for."""
    mapped = [pair.partition("=") for pair in options.columns or ()]
    for name, equals, column in mapped:
        if not (name and equals and column):
            raise ValueError(f"--columns must be NAME=COLUMN; got {name + equals!r:.60}")
    names = {"path": "LOG", "num_queries": "--queries", "columns": "--columns", "fraction": "--validation"}
    with renamed(names):
        if options.format == "yandex":
            log = datasets.load_yandex_log(options.log, num_queries=options.queries)
        else:
            columns_of = {name: column for name, _, column in mapped}
            log = datasets.load_sessions(options.log, columns=columns_of, text_ids=options.text_ids)
            log = log if options.queries is None else log.most_frequent(options.queries)
        return log if options.validation is None else log.validation(options.validation)


def _fit_table(models: dict[str, Any], parts: dict[str, Any]) -> str:
    """Log-likelihood by session and perplexity of every model on every part, and which is best on the last of them."""
    measured = {
        (name, part): click_models.evaluate(model, held.rankings, held.clicks, queries=held.queries)
        for name, model in models.items()
        for part, held in parts.items()
        if len(held.queries)
    }
    shown = [part for part in parts if any(key[1] == part for key in measured)]
    header = ["model", *(f"{part} {what}" for part in shown for what in ("log-likelihood", "perplexity"))]
    rows = [[name, *(f"{value:.4f}" for part in shown for value in measured[name, part][:2])] for name in models]
    likeliest = max(models, key=lambda name: measured[name, shown[-1]].log_likelihood)
    plainest = min(models, key=lambda name: measured[name, shown[-1]].perplexity)
    ranks = " ".join(f"{p:.3f}" for p in measured[plainest, shown[-1]].perplexity_at)
    return "\n".join(
        [
            columns(header, rows, first=8, others=22),
            f"{shown[-1]}: highest log-likelihood {likeliest}, lowest perplexity {plainest}",
            f"{shown[-1]}: perplexity of {plainest} by rank {ranks}",
        ]
    )


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
    with renamed({"devices": "--devices"}):
        for cell in cells:
            benchmark.devices_of(cell)
    files = [options.out / f"bench.{kind}" for kind in ("jsonl", "md", *FORMATS)]
    _refuse_existing(options, files)
    options.claim(options.out)
    print(f"on {benchmark.listing(benchmark.machine())}", flush=True)
    rows, paths = [], []
    for cell in cells:
        row = benchmark.measure(cell, options.repeat, baseline=not options.no_baseline)
        rows.append(row)
        print(benchmark.table([row]).splitlines()[-1] if len(rows) > 1 else benchmark.table([row]), flush=True)
        paths = benchmark.write(rows, options.out, options.format)  # after each cell, so that what was measured is kept
    _keep_only(files, ("jsonl", "md", options.format))
    for path in paths:
        print(f"wrote {path}")


def list_names(options: argparse.Namespace) -> None:
    kinds = {"policy": "Policies", "click_model": "Click models", "environment": "Environments"}
    for kind, title in kinds.items():
        print(f"{title}:")
        for name in registry.available(kind):
            try:
                factory = registry.factory(name, kind)
            except ValueError as error:  # in another package, which must not spoil the list
                warnings.warn(str(error), RuntimeWarning, stacklevel=1)
                continue
            signature = ", ".join(inspect.signature(factory).parameters)
            summary = (factory.__doc__ or "").strip().split("\n")[0]
            package = registry.origin(name, kind)
            print(f"  {f'{name}({signature})':44} {summary}{f' [{package}]' if package else ''}")
    print("Of your own: my_policies.py:ItemTS or package.module:ItemTS in the place of a name; jaxrank new writes one.")
    print("Figures:")
    for name, figure in papers.FIGURES.items():
        print(f"  {name:44} {(figure.__doc__ or '').strip().split(chr(10))[0]}")
    print("Metrics of a click bandit:")
    print("  regret, reward, violations, misordered, ndcg, ndcg@1, ndcg@2, …, clicks")
    print("Metrics of a click bandit that changes (--change): these and fixed_regret")
    print("Metrics of a topic bandit:")
    print("  regret, reward, coverage, similarity")
    print("Metrics of a query stream:")
    print("  ndcg, cndcg, regret, clicks, and of the learnt ranker on held-out queries: ndcg@10")


def _policies(specifications: Sequence[str], folder: Path | None = None) -> dict[str, Any]:
    """{label: policy}: the class name, or the specification where two policies have one class.

    Files are looked for in ``folder`` if it is given; the labels do not depend on it.
    """
    made = []
    for text in specifications:
        name, settings = registry.parse("--policy", text)
        located = own_code.located(name, folder) if folder else name
        with renamed({"policy": "--policy"}):
            read = registry.read_options("--policy", located, settings)
            policy = registry.make_of(located, "policy", read)
        if num_instances(policy) is not None:
            raise ValueError(f"--policy must have one value of an option; got {text!r:.60}: jaxrank sweep takes a grid")
        made.append((text, policy))
    classes = [type(policy).__name__ for _, policy in made]
    labels = [c if classes.count(c) == 1 else text for c, (text, _) in zip(classes, made, strict=True)]
    if len(set(labels)) < len(labels):
        raise ValueError(f"--policy must not be given twice with the same options; got {' '.join(specifications)}")
    return dict(zip(labels, (policy for _, policy in made), strict=True))


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
