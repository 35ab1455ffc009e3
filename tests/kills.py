"""Kills runs with SIGKILL at random moments, resumes them, and compares what comes out with a run left alone.

    python tests/kills.py FOLDER [KILLS_OF_ONE [KILLS_OF_TWO [POLICY …]]]

For each policy (bubblerank if none is given; ``all`` for those of ``WORLDS``): one process first, then two, of which
one is killed and the other must end with a clear message within 60 s. This process imports jaxrank once and forks the
runs, before JAX has started any thread. Their programs are those that users run, which XLA has optimised. A thousand
kills: ``python tests/kills.py FOLDER 250 0 all``.
"""

import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np

from jaxrank.command import cli
from jaxrank.output import results

CLICKS = "--queries 2 --items 5 --seeds 4 --metrics regret misordered"
WORLDS = {
    "bubblerank": f"--policy bubblerank:delta=0.1 {CLICKS} --steps 10000000",
    "toprank": f"--policy toprank:delta=0.1 {CLICKS} --steps 1500000",
    "cascade_hybrid": "--policy cascade_hybrid --queries 2 --items 20 --list-size 5 --seeds 4 --steps 20000",
    "pairrank": "--policy pairrank --queries 10 --list-size 5 --seeds 2 --steps 2000",
}
OPTIONS = ["--records", "50", "--quiet", "--checkpoint-every", "1 call"]
MESSAGE = "another process died"


def fork(arguments: list[str], log: Path) -> int:
    """Runs the command in a child; its output goes to ``log``."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with open(log, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = cli.main(arguments)
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(child: int, seconds: float) -> int | None:
    """The exit code of a child that ends within ``seconds``; None if it is still running."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def until(condition, logs: list[Path], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain:\n" + "\n".join(log.read_text()[-1000:] for log in logs)
        time.sleep(0.01)


def saved(folder: Path) -> list[int]:
    """The latest step that each process has saved."""
    shares = [list(folder.glob(f"saved/*/lanes-{i}-*/step-*")) for i in range(2)]
    return [max((int(path.stem.removeprefix("step-")) for path in share), default=0) for share in shares]


def start(folder: Path, processes: int, policy: str) -> tuple[list[int], list[Path]]:
    """Begins the run of ``folder``, or resumes it."""
    saved = folder / "saved"
    if (saved / "run.json").exists():
        arguments = ["resume", str(saved), "--out", str(folder)]
    else:
        arguments = ["run", *WORLDS[policy].split(), *OPTIONS, "--out", str(folder), "--checkpoint", str(saved)]
    logs = [folder / f"log-{i}" for i in range(processes)]
    for log in logs:
        log.write_text("")
    if processes == 1:
        return [fork([*arguments, "--devices", "1"], logs[0])], logs
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    machines = ["--devices", "1", "--distributed", "--coordinator", f"127.0.0.1:{port}", "--num-processes", "2"]
    return [fork([*arguments, *machines, "--process-id", str(i)], logs[i]) for i in range(2)], logs


def finish(folder: Path, processes: int, policy: str):
    """Goes on to the end; returns the results."""
    children, logs = start(folder, processes, policy)
    for child in children:
        assert ended(child, 3_000) == 0, [log.read_text()[-2000:] for log in logs]
    assert (folder / "run.nc").exists(), logs[0].read_text()[-2000:]
    return results.load(folder / "run.nc")


def main(folder: Path, of_one: int, of_two: int, policy: str) -> None:
    for processes, kills in ((1, of_one), (2, of_two)):
        if not kills:
            continue
        alone = folder / f"alone-{processes}"
        alone.mkdir(parents=True)
        expected = finish(alone, processes, policy)
        if processes == 1:
            of_one_process = expected
        for name in expected.data_vars:
            np.testing.assert_allclose(expected[name], of_one_process[name], rtol=0 if name == "misordered" else 1e-6)
        killed, runs = 0, 0
        while killed < kills:
            runs += 1
            own = folder / f"killed-{processes}-{runs}"
            own.mkdir()
            while killed < kills:
                before = saved(own)
                children, logs = start(own, processes, policy)
                if processes == 2:  # until they have found each other
                    until(lambda: "1 policy × " in logs[0].read_text(), logs)  # noqa: B023
                victim = int(processes == 2 and killed == 1)  # once, as the death of a coordinator is noticed sooner
                if killed % 4:  # most of them while they simulate, the others while they start
                    until(lambda: saved(own) != before or (own / "run.nc").exists(), logs)  # noqa: B023
                if ended(children[0], random.uniform(0, 1)) is not None:
                    assert processes == 1 or ended(children[1], 60) is not None
                    break  # the run has come to its end: kill another one
                kill(children[victim])
                if processes == 2:
                    moment = time.monotonic()
                    code = ended(children[1 - victim], 60)
                    assert code is not None, "the survivor ends"
                    if code == 0:  # it had nothing left to do when the other was killed: kill another run
                        break
                    seconds = time.monotonic() - moment
                    until(lambda: MESSAGE in logs[1 - victim].read_text(), logs)  # noqa: B023
                    print(f"process {victim} killed: the other ended after {seconds:.1f} s", flush=True)
                killed += 1
                assert all(now >= then for now, then in zip(saved(own), before, strict=True)), "work was lost"
                print(f"kill {killed} of {kills} with {processes} process(es), saved steps {saved(own)}", flush=True)
                if (own / "run.nc").exists():
                    break  # it was killed behind its results: kill another one
            (own / "run.nc").unlink(missing_ok=True)
            assert finish(own, processes, policy).equals(expected), f"curves of {own} differ from those of {alone}"
        said = f"{killed} kills of {runs} run(s) of {policy} with {processes} process(es)"
        print(f"{said}: the same curves, bit by bit", flush=True)


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = ""
    counts = [int(text) for text in sys.argv[2:4]]
    names = sys.argv[4:] or ["bubblerank"]
    for policy in WORLDS if names == ["all"] else names:
        main(Path(sys.argv[1]) / policy, *(counts + [16, 4][len(counts) :]), policy)
