"""The command: ``jaxrank run``, ``resume``, ``sweep``, ``plot``, ``report``, ``new``, ``reproduce``, ``fit``, …"""

import argparse
import contextlib
import dataclasses
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax

from jaxrank.command import commands
from jaxrank.core.checks import did_you_mean, integer
from jaxrank.core.version import __version__
from jaxrank.engine import distributed
from jaxrank.engine.loop import Interrupted
from jaxrank.engine.request import command_default, flags
from jaxrank.output.files import locked
from jaxrank.output.plotting import FORMATS
from jaxrank.studies import sweep_files

_EXIT_CODES = (
    "Exit codes: 0 done; 2 bad input; 75 stopped by SIGTERM, SIGHUP or Ctrl-C and saved, jaxrank resume continues it; "
    "76 or 134 another process died; 130 stopped and not saved; 141 the reader of the output has gone."
)


_LONG = 400  # characters of a word in an error's line


class _Parser(argparse.ArgumentParser):
    """A parser that prints errors in one line, and names the option that was probably meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = next((text.partition("=")[0] for text in unknown if text.startswith("-")), "")
            known = [name for action in self._actions for name in action.option_strings]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{did_you_mean(flag, known)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {_one_line(message)}\n")


def _one_line(message: str) -> str:
    """In one line; words of more than ``_LONG`` characters are cut."""
    return " ".join(word if len(word) <= _LONG else f"{word[:_LONG]}…" for word in message.split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    options.arguments = words[1:]
    _keep_compiled(options.name != "bench")
    code, complaint = 0, ""
    try:
        with warnings.catch_warnings(), contextlib.ExitStack() as held:
            warnings.showwarning = lambda message, *_: print(f"jaxrank: warning: {message}", file=sys.stderr)
            options.claim = lambda folder: held.enter_context(locked(folder))  # for as long as the command runs
            options.command(options)
            sys.stdout.flush()
    except BrokenPipeError:  # as in ``jaxrank list | head``: what is still to be written, now or at exit, goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + 13  # what a shell says of a program that SIGPIPE has ended
    except (ValueError, OSError) as error:
        code, complaint = 2, f"error: {_one_line(str(error))}"
    except MemoryError as error:
        code, complaint = 2, f"error: not enough memory: {error or 'ask for less'}"
    except Interrupted as error:
        if options.name == "sweep":
            again = f"the same command{' without --force' if options.force else ''}"
        else:
            again = commands.resume_command(options)
        code, complaint = 75, f"{error}; continue with: {again}"
    except KeyboardInterrupt:
        code, complaint = 130, "interrupted, nothing written"
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        reason = str(error).split("\n")[0]
        again = options.checkpoint and commands.resume_command(options)
        code, complaint = 76, f"another process died ({reason}); {distributed.what_is_kept(again)}"
    if complaint:
        try:
            print(f"jaxrank {options.name}: {complaint}", file=sys.stderr, flush=True)
        except OSError:  # the terminal is gone, as it may be after SIGHUP
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    distributed.leave(code, wait=code != 76)
    return code


def _keep_compiled(keep: bool) -> None:
    """Keeps compiled functions in the user's cache folder, unless JAX has another one."""
    if not keep:  # compiling is what is measured
        jax.config.update("jax_enable_compilation_cache", False)
    elif not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "jaxrank"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="jaxrank", description="Simulate online learning to rank, many lanes at a time.")
    parser.add_argument("--version", action="version", version=f"jaxrank {__version__}")
    subparsers = parser.add_subparsers(required=True, dest="name", metavar="COMMAND", parser_class=_Parser)
    as_shown = argparse.ArgumentDefaultsHelpFormatter

    run = subparsers.add_parser(
        "run",
        formatter_class=argparse.HelpFormatter,
        epilog=_EXIT_CODES,
        help="run policies in a click bandit, a topic bandit or a query stream; write a results file and pictures",
        description="Runs policies in a world and writes run.nc and a picture of each metric. The world is that of the "
        "policies or of the data unless --world says which: click (a click bandit, for bubblerank, cascade_ucb1, …), "
        "topics (users who want different topics, for cascade_hybrid, cascade_lin_ucb, …) or letor (a stream of "
        "queries with features, for pairrank, pdgd, …). FILE.py:CLASS and package.module:CLASS name policies, click "
        "models and environments of your own. Such a name imports the file or module, which runs its code.",
    )
    run.set_defaults(command=commands.run)
    run.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:OPTION=VALUE,…]",
        help="a policy, e.g. bubblerank or bubblerank:delta=0.01; one of your own, e.g. my_policies.py:ItemTS or "
        "package.module:ItemTS:prior=2; may be given several times (default, by world: "
        "bubblerank and static; cascade_hybrid and cascade_lin_ucb; pairrank and pdgd)",
    )
    run.add_argument(
        "--world",
        metavar="NAME",
        help="the world in which they run: click, topics or letor, or an environment of your own, e.g. "
        "my_environments.py:TwoKinds:share=0.5",
    )
    run.add_argument(
        "--data",
        metavar="PATH",
        help="click: a file of click-model parameters; topics: a folder of MovieLens or Yahoo! Music R2; letor: a "
        "folder of a LETOR dataset (without it, a synthetic world)",
    )
    run.add_argument(
        "--queries",
        type=_whole,
        metavar="N",
        help="the number of queries, or of users in topics (click: all of the data, or 60 synthetic ones; topics: 20; "
        "letor: all of the data, or 100)",
    )
    run.add_argument(
        "--items",
        type=_whole,
        metavar="L",
        help="click: items of a query (10, or what every query of the data has); topics: items in all (200)",
    )
    run.add_argument("--list-size", type=_whole, metavar="K", help="positions (click: as many as items; otherwise 10)")
    run.add_argument(
        "--click-model",
        metavar="NAME",
        help="click: the click model, one of jaxrank list, with options as in dbn:continuation=0.9; or one "
        "of your own, e.g. my_click_models.py:RankBiasedModel:persistence=0.7 (cm)",
    )
    run.add_argument(
        "--top", type=_whole, metavar="N", help="click: the top positions that regret and reward count (half of all)"
    )
    run.add_argument(
        "--reference",
        metavar="NAME",
        help="click: the list that regret is against: optimal, or attraction, that by attraction, which is not the "
        "optimum in dcm (optimal)",
    )
    run.add_argument("--trade-off", type=float, metavar="λ", help="topics: from 0, diversity, to 1, relevance (0.5)")
    run.add_argument(
        "--normalize-relevance",
        metavar="BOOL",
        help="topics: true scales β* to length 1, as CascadeHybrid's text has it, so that long lists nearly always "
        "have a click for λ from 0.5 on; false does not, as very likely its figures (true)",
    )
    _add_list(
        run,
        "--user",
        metavar="NAME",
        help="letor: perfect, navigational, informational, almost_random; several run side by side (perfect)",
    )
    run.add_argument("--grades", type=_whole, choices=[2, 3, 5], help="letor: relevance grades of the data (5)")
    run.add_argument(
        "--change",
        metavar="KIND=STEPS",
        help="click: items exchange their attractions, every=50000 steps, at random=50000 steps on average, in a drift "
        "from one order to the next of drift=50000 steps, or from steps at=1000/5000 on; more after a comma: worlds=11 "
        "orders, which follow each other in a cycle, keep=3 items as they are, seed=1",
    )
    run.add_argument(
        "--delay", metavar="STEPS", help="clicks arrive so many steps later: 100, or geometric:100 for a random delay"
    )
    run.add_argument(
        "--corrupt",
        metavar="FRACTION",
        help="an adversary flips a click in this fraction of the steps: 0.01, or fraction=0.01,budget=1000 to attack "
        "the first 1000 steps too, and target=best to hide clicks on the best item",
    )
    for flag, field in flags().items():
        _add_option(run, flag, field)
    run.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="where the files go (results)")
    _add_force(run)
    _add_format(run)
    _add_report(run)
    run.add_argument("--quiet", action="store_true", help="no progress bar")
    run.add_argument("--dry-run", action="store_true", help="only estimate the lanes, time and memory of the run")
    run.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="save checkpoints there during the run")
    _add_machines(run)

    resume = subparsers.add_parser(
        "resume",
        formatter_class=argparse.HelpFormatter,
        epilog=_EXIT_CODES,
        help="continue a run that was saved by --checkpoint",
    )
    resume.set_defaults(command=commands.resume, parse=parser.parse_args)
    resume.add_argument("checkpoint", type=Path, metavar="FOLDER", help="the folder given to --checkpoint")
    resume.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="FILE|MODULE",
        help="a file or module with code of your own that the run was started with; what the folder names is imported, "
        "and so executed, only if it is named here too",
    )
    resume.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where the results go (the folder of the checkpoints)"
    )
    _add_force(resume)
    resume.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_machines(resume)

    sweep = subparsers.add_parser(
        "sweep",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        help="run all cells of a TOML file: policies × hyper-parameter grids × environments, into one folder",
        description=sweep_files.__doc__,
        epilog="On restart, finished cells are skipped and an interrupted one continues from its checkpoint. Cells "
        "that fail are listed at the end.\nExit code 0, 2 for bad input or failed cells, 75 when interrupted.",
    )
    sweep.set_defaults(command=commands.sweep)
    sweep.add_argument("config", type=Path, help="the TOML file; jaxrank new sweep FILE.toml writes one")
    sweep.add_argument("--out", type=Path, metavar="FOLDER", help="where the files go, instead of the config's own")
    sweep.add_argument(
        "--force", action="store_true", help="remove what an earlier sweep left there, and run all again"
    )
    _add_format(sweep)
    _add_report(sweep)
    sweep.add_argument("--dry-run", action="store_true", help="only estimate the lanes, time and memory of each cell")
    sweep.add_argument("--quiet", action="store_true", help="no progress bar")

    new = subparsers.add_parser(
        "new",
        help="write a policy, a click model or an environment to start from, with its test beside it; or a sweep",
        description="Writes FILE, a small algorithm to replace by your own, and test_FILE beside it, which passes as "
        "it stands. Neither may exist. Of a sweep, FILE is its TOML file, and there is no test.",
    )
    new.set_defaults(command=commands.new)
    new.add_argument("kind", metavar="KIND", help="policy, click-model, environment or sweep")
    new.add_argument("file", type=Path, metavar="FILE", help="e.g. my_policies.py")

    plot = subparsers.add_parser("plot", formatter_class=as_shown, help="draw the curves of a results file")
    plot.set_defaults(command=commands.plot)
    plot.add_argument("file", type=Path, help="a results file of jaxrank run, e.g. results/run.nc")
    plot.add_argument("--metric", default="regret", metavar="NAME", help="which curve")
    plot.add_argument("--per-step", action="store_true", help="the mean per step instead of the sum so far")
    plot.add_argument("--log", action="store_true", help="logarithmic axes")
    plot.add_argument("--out", type=Path, metavar="PICTURE", help="beside the file if not given")
    _add_force(plot)
    _add_format(plot, default=None)

    report = subparsers.add_parser(
        "report",
        formatter_class=as_shown,
        help="write one HTML page of a run, a sweep or a figure: curves to zoom and hover, tables, how it was made",
        description="Writes one HTML file that needs no network. Of several folders, it compares what they hold.",
    )
    report.set_defaults(command=commands.report)
    report.add_argument(
        "folder", nargs="+", type=Path, metavar="FOLDER", help="of a run, a sweep or a figure; or a results file"
    )
    report.add_argument(
        "--out", type=Path, metavar="FILE", help="report.html in the folder if not given; compared.html of several"
    )
    _add_force(report)
    report.add_argument(
        "--watch", action="store_true", help="serve it to this machine alone, and make it again as results come in"
    )
    report.add_argument("--port", type=_whole, default=0, metavar="N", help="with --watch: the port; 0 is any")

    reproduce = subparsers.add_parser(
        "reproduce", formatter_class=as_shown, help="run a figure of a paper; write its data, picture and table"
    )
    reproduce.set_defaults(command=commands.reproduce)
    reproduce.add_argument(
        "figure", nargs="+", help="e.g. bubblerank-fig1; jaxrank list has all. Figures of one experiment share its runs"
    )
    reproduce.add_argument(
        "--scale", default="smoke", help="smoke (mostly compiling), laptop, or paper (the paper's sizes)"
    )
    reproduce.add_argument("--data", metavar="PATH", help="real queries; without it, synthetic ones")
    reproduce.add_argument("--bound", action="store_true", help="draw the theorem's bound too, where there is one")
    _add_list(
        reproduce,
        "--seeds",
        comma=r",(?! )",  # labels of policies have commas with a space
        metavar="N",
        help="repetitions, instead of the scale's; POLICY=N for one of the policies, POLICY=0 to leave it out",
    )
    reproduce.add_argument(
        "--queries", type=_whole, metavar="N", help="queries, or users of cascadehybrid, instead of the scale's"
    )
    _add_list(reproduce, "--click-model", metavar="NAME", help="only these of the figure's click models")
    reproduce.add_argument(
        "--stop-at", default="click", metavar="WHERE", help="pairrank: users may stop at a click, or at every view"
    )
    _add_list(reproduce, "--panel", metavar="NAME", help="cascadehybrid: only those that change trade-off (λ), d or K")
    reproduce.add_argument(
        "--checkpoint", type=Path, metavar="FOLDER", help="save runs there; the same command again continues them"
    )
    reproduce.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="where the files go")
    _add_force(reproduce)
    _add_format(reproduce)
    _add_report(reproduce)
    reproduce.add_argument("--quiet", action="store_true", help="no progress bar")

    fit = subparsers.add_parser(
        "fit",
        formatter_class=as_shown,
        help="fit click models to a log of sessions; write their parameters",
        description="Fits click models to a log and prints how well each predicts it, on held-out sessions too if the "
        "log is split or --validation is given. The parameters go to a JSON file that jaxrank run --data reads.",
    )
    fit.set_defaults(command=commands.fit)
    fit.add_argument("log", type=Path, help="a table of sessions (.tsv, .tsv.gz), or a log of the Yandex challenge")
    fit.add_argument("--format", choices=["table", "yandex"], default="table", help="which of the two it is")
    _add_list(fit, "--model", metavar="NAME", help="which click models, e.g. pbm dbn; all if not given")
    fit.add_argument("--queries", type=_whole, metavar="N", help="only the N most frequent queries; all if not given")
    _add_list(
        fit,
        "--columns",
        metavar="NAME=COLUMN",
        help="table: the file's names of the columns query_region, docs, split, and one of clicked_positions0, "
        "clicked_positions1, clicked_docs and clicks, where they are others",
    )
    fit.add_argument("--text-ids", action="store_true", help="table: document ids are any text, not integers")
    fit.add_argument(
        "--validation", type=float, metavar="FRACTION", help="hold out this fraction of the training sessions at random"
    )
    fit.add_argument("--shrinkage", type=float, default=2.0, metavar="S", help="observations that the mean counts as")
    fit.add_argument("--free-scale", action="store_true", help="pbm, ubm, trust: χ is 1 where it is largest, not first")
    fit.add_argument("--iterations", type=_whole, metavar="N", help="iterations of EM, at most; until it converges")
    fit.add_argument(
        "--parameters", type=Path, metavar="FILE", help="do not fit: measure the parameters of an earlier fit"
    )
    fit.add_argument("--out", type=Path, default=Path("params.json"), metavar="FILE", help="where the parameters go")
    _add_force(fit)
    fit.add_argument("--quiet", action="store_true", help="no progress bar")

    bench = subparsers.add_parser(
        "bench", formatter_class=as_shown, help="measure lane-steps per second against scalar loops compiled by numba"
    )
    bench.set_defaults(command=commands.bench)
    _add_list(bench, "--policy", metavar="NAME", help="which policies; all without features if not given")
    _add_list(bench, "--click-model", default=["cm"], metavar="NAME", help="cm, dcm and pbm")
    _add_list(bench, "--lanes", _whole, default=[1_000], metavar="N", help="lanes to run at once")
    _add_list(bench, "--items", _whole, default=[10], metavar="L", help="items per query")
    bench.add_argument("--list-size", type=_whole, default=10, metavar="K", help="positions")
    _add_list(bench, "--devices", _whole, default=[0], metavar="N", help="the number of devices; 0 is all")
    bench.add_argument("--late", action="store_true", help="also steps 100,000 to 120,000, when lists rarely change")
    bench.add_argument("--repeat", type=_whole, default=3, metavar="N", help="measure N times and take the best")
    bench.add_argument("--no-baseline", action="store_true", help="do not measure the scalar loops, which need numba")
    bench.add_argument("--out", type=Path, default=Path("results"), metavar="FOLDER", help="where the files go")
    _add_force(bench)
    _add_format(bench)

    names = subparsers.add_parser("list", help="list policies, click models, figures and metrics")
    names.set_defaults(command=commands.list_names)
    return parser


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace the results that --out holds from before")


def _add_format(parser: argparse.ArgumentParser, default: str | None = "png") -> None:
    parser.add_argument(
        "--format", choices=FORMATS, default=default, metavar="NAME", help="of pictures: png, pdf or svg (png)"
    )


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-report", action="store_false", dest="report", help="do not write the HTML report, 2 MB")


def _add_machines(parser: argparse.ArgumentParser) -> None:
    machines = parser.add_argument_group(
        "machines",
        "Lanes are spread over devices and processes; their results do not depend on it. Without --coordinator, "
        "processes find each other on SLURM, Kubernetes and Cloud TPU. pydoc jaxrank.engine.distributed has examples.",
    )
    machines.add_argument(
        "--devices", type=_whole, metavar="N", help="devices of each process; all that are useful if not given"
    )
    machines.add_argument("--distributed", action="store_true", help="this is one of several processes of one run")
    machines.add_argument("--coordinator", metavar="HOST:PORT", help="the address of process 0")
    machines.add_argument("--num-processes", type=_whole, metavar="N", help="the number of processes")
    machines.add_argument("--process-id", type=_whole, metavar="I", help="the number of this process, from 0")


_OF_WORLD = {  # what the world decides unless it is given
    "steps": "click 100,000; topics 10,000; letor 2,000",
    "metrics": "regret; in letor cndcg, and ndcg@10 of held-out queries; jaxrank list has all",
}
_METAVARS = {"metrics": "NAME", "checkpoint-every": "SECONDS", "max-memory": "BYTES"}


def _add_option(parser: argparse.ArgumentParser, flag: str, field: dataclasses.Field[Any]) -> None:
    """An option of a request. Its value is checked by ``commands.request_options``, under the name that was typed."""
    default = None if flag in _OF_WORLD else command_default(field)
    shown = _OF_WORLD.get(flag, "" if default is None else default)
    about = field.metadata["help"].rstrip(".") + (f" ({shown})" if shown != "" else "")
    more: dict[str, Any] = {"metavar": "NAME" if isinstance(default, str) else _METAVARS.get(flag, "N")}
    if flag in ("metrics", "record-at"):
        _add_list(parser, f"--{flag}", _number_or_text, default=default, help=about, **more)
    else:
        parser.add_argument(f"--{flag}", type=_number_or_text, default=default, help=about, **more)


class _Joined(argparse.Action):
    """The values of several arguments, each a list, as one list."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, [value for part in values for value in part])


def _add_list(
    parser: argparse.ArgumentParser, flag: str, convert: Callable[[str], Any] = str, comma: str = ",", **options: Any
) -> None:
    """An option with several values, separated by spaces or by what matches ``comma``."""

    def values(text: str) -> list[Any]:
        return [convert(part) for part in re.split(comma, text) if part]

    values.__name__ = convert.__name__
    parser.add_argument(flag, nargs="+", type=values, action=_Joined, **options)


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            return kind(text)
    return text


def _whole(text: str) -> int:
    """An argument that is an integer, 1e6 among them."""
    try:
        return integer("it", _number_or_text(text), minimum=-(2**63), maximum=2**63)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer; got {text!r:.60}") from None
