"""Devices and processes: any number of them, the same lists and clicks. Processes are started anew, for JAX's sake."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.engine.checkpoint import saved_steps

HERE = Path(__file__).parents[1]


def python(*arguments, devices=1):
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def output(process, code=0):
    out, error = process.communicate(timeout=1200)
    assert process.returncode == code, error[-3000:]
    return out, error


DEVICES = """
import sys
import jax, numpy as np
import jaxrank as jr
from worlds import click_model, worst_first

folder = sys.argv[1]
model = click_model("pbm", 6, seed=0, num_queries=5)
environment = jr.ClickBandit(model, base_ranking=worst_first(model), list_size=4, top=3)
def counts(policy, state, environment):  # of the clicks, pair by pair
    return jax.numpy.stack([policy.statistics(state)[name] for name in ("s", "n")])

options = {"num_seeds": 5, "num_records": 4, "metrics": ("regret", "misordered", "violations"), "progress": False}
options["probes"] = {"counts": counts}
run = (jr.BubbleRank(delta=0.1), environment, 3_000)

def on(devices, **more):
    return jr.simulate(*run, mesh=jax.sharding.Mesh(np.array(jax.devices()[:devices]), "x"), **options, **more)

class Enough(Exception):
    pass

def enough(step):
    if step > 2_000:
        raise Enough

def same(result, expected):
    for name in ("misordered", "violations", "counts"):
        np.testing.assert_array_equal(result[name], expected[name])
    np.testing.assert_allclose(result["regret"], expected["regret"], rtol=1e-6)

assert len(jax.devices()) == 8
expected = on(1)
for devices in (2, 3, 8):  # 25 lanes: none of them has the same number on every device
    same(on(devices), expected)
options["progress"] = enough
try:
    on(2, call_intervals=1, checkpoint_dir=folder, checkpoint_every="1 call")
    raise SystemExit("the run was not stopped")
except Enough:
    options["progress"] = False
same(on(3, call_intervals=1, checkpoint_dir=folder, resume=True), expected)
print("all the same")
"""


@pytest.mark.slow
def test_lanes_are_the_same_on_1_2_3_and_8_devices_and_a_run_goes_on_on_others(tmp_path):
    assert output(python("-c", DEVICES, str(tmp_path), devices=8))[0] == "all the same\n"
    assert saved_steps(tmp_path / "lanes-0-of-1")[-1] == 3_000


PROCESSES = """
import sys
import jaxrank as jr
jr.distributed.start(sys.argv[1], 2, int(sys.argv[2]))
environment = jr.ClickBandit(jr.CascadeModel([[0.2, 0.5, 0.1], [0.3, 0.3, 0.4]]), list_size=2)

def run(**more):
    return jr.simulate(jr.BubbleRank(), environment, 500, num_seeds=3, num_records=3, progress=False, **more)

result = run()
jr.save(result, sys.argv[3] + "/whole-" + sys.argv[2])
jr.distributed.GATHER_BYTES = 0
jr.save(run(), sys.argv[3] + "/own-" + sys.argv[2])
try:
    run(seed=int(sys.argv[2]))
except ValueError as error:
    print(error, flush=True)
jr.distributed.leave(7)
"""


def test_two_processes_share_the_lanes_keep_large_results_and_refuse_to_differ(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    pair = [python("-c", PROCESSES, address, str(i), str(tmp_path)) for i in range(2)]
    for process in pair:
        out, _ = output(process, code=7)
        assert "all processes must run the same: seed is 0 in process 0, 1 in 1" in out
    environment = jr.ClickBandit(jr.CascadeModel([[0.2, 0.5, 0.1], [0.3, 0.3, 0.4]]), list_size=2)
    alone = jr.simulate(jr.BubbleRank(), environment, 500, num_seeds=3, num_records=3, progress=False)["regret"]
    parts = [jr.load(tmp_path / f"own-{i}") for i in range(2)]
    for i, part in enumerate(parts):
        np.testing.assert_allclose(jr.load(tmp_path / f"whole-{i}")["regret"], alone, rtol=1e-6)
        assert part["regret"].dims == ("lane", "step") and part["lane"].values.tolist() == [3 * i, 3 * i + 1, 3 * i + 2]
        for lane in part["regret"]:
            own = alone.sel(query=int(lane["query"]), seed=int(lane["seed"]))
            np.testing.assert_allclose(lane, own, rtol=1e-6)


MORE = """
import sys
import jaxrank as jr
if len(sys.argv) > 3:
    jr.distributed.start(sys.argv[3], 2, int(sys.argv[4]))

class Enough(Exception):
    pass

def enough(step):
    if step > 1_000:  # it is told before it saves
        raise Enough

environment = jr.ClickBandit(jr.CascadeModel([[0.2, 0.5, 0.1], [0.3, 0.3, 0.4]]), list_size=2)
options = {"num_seeds": 3, "num_records": 3, "call_intervals": 1, "checkpoint_dir": sys.argv[1]}
options |= {"checkpoint_every": "1 call", "resume": True, "progress": enough if len(sys.argv) == 3 else False}
try:
    jr.save(jr.simulate(jr.BubbleRank(delta=0.1), environment, 3_000, **options), sys.argv[2])
except Enough:
    pass
jr.distributed.leave()
"""


@pytest.mark.slow
def test_a_run_of_one_process_is_continued_by_two(tmp_path):
    saved = tmp_path / "saved"
    output(python("-c", MORE, str(saved), "none"))
    (step,) = {max(saved_steps(saved / "lanes-0-of-1"))}
    assert step == 1_000
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    for process in [python("-c", MORE, str(saved), str(tmp_path / f"{i}.nc"), address, str(i)) for i in range(2)]:
        output(process)
    environment = jr.ClickBandit(jr.CascadeModel([[0.2, 0.5, 0.1], [0.3, 0.3, 0.4]]), list_size=2)
    alone = jr.simulate(jr.BubbleRank(delta=0.1), environment, 3_000, num_seeds=3, num_records=3, progress=False)
    for i in range(2):
        np.testing.assert_array_equal(jr.load(tmp_path / f"{i}.nc")["regret"], alone["regret"])


RUN = ["--policy", "static", "--policy", "random", "--queries", "2", "--items", "4", "--seeds", "2", "--quiet"]


def test_the_command_saves_when_told_to_stop_and_resume_goes_on(tmp_path):
    saved = tmp_path / "saved"
    long = ["--steps", "20000000", "--records", "9", "--out", str(tmp_path), "--checkpoint", str(saved)]
    run = python("-m", "jaxrank", "run", *RUN, *long, "--checkpoint-every", "1 call", "--devices", "2")
    while not list(saved.glob("RandomRanking/lanes-0-of-1/step-*")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    _, error = output(run, code=75)
    assert (
        "jaxrank run: interrupted at step" in error
        and f"continue with: jaxrank resume {saved} --out {tmp_path}\n" in error
    )
    assert error.count("\n") == 1
    (step,) = {max(saved_steps(saved / "RandomRanking" / "lanes-0-of-1"))}
    resumed = python("-m", "jaxrank", "resume", str(saved), "--quiet")
    while max(saved_steps(saved / "RandomRanking" / "lanes-0-of-1")) == step:
        assert resumed.poll() is None, resumed.communicate()
        time.sleep(0.05)
    resumed.send_signal(signal.SIGINT)
    assert "jaxrank resume: interrupted at step" in output(resumed, code=75)[1]


def test_a_run_whose_terminal_is_closed_is_saved(tmp_path):
    import pty

    saved = tmp_path / "saved"
    master, slave = pty.openpty()
    long = ["--steps", "200000000", "--records", "9", "--out", str(tmp_path), "--checkpoint", str(saved)]
    world = ["--policy", "random", "--queries", "2", "--items", "4", "--seeds", "2", "--devices", "1"]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    run = subprocess.Popen(
        [sys.executable, "-m", "jaxrank", "run", *world, *long, "--checkpoint-every", "1 call"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"},
        stdout=slave,
        stderr=slave,
        stdin=slave,
        start_new_session=True,
    )
    signal.signal(signal.SIGHUP, before)
    os.close(slave)
    while not list(saved.glob("RandomRanking/lanes-0-of-1/step-*")):
        assert run.poll() is None, os.read(master, 5_000)
        time.sleep(0.05)
    os.close(master)  # now it can write nothing more to it
    time.sleep(0.5)
    run.send_signal(signal.SIGHUP)
    assert run.wait(60) == 75


def test_resume_needs_only_the_folder(tmp_path, capsys):
    saved = tmp_path / "saved"
    run = [*RUN, "--steps", "50", "--out", str(tmp_path / "out")]
    assert main(["run", *run, "--checkpoint", str(saved)]) == 0
    first = jr.load(tmp_path / "out" / "run.nc")
    (tmp_path / "out" / "run.nc").unlink()
    assert main(["resume", str(saved), "--out", str(tmp_path / "out")]) == 0
    assert jr.load(tmp_path / "out" / "run.nc").identical(first)
    assert main(["run", *run, "--checkpoint", str(saved), "--force"]) == 2, "--force replaces results, no checkpoints"
    assert f"{saved} holds a run: jaxrank resume {saved}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resume", "/nowhere"], "FOLDER must be the one given to --checkpoint; cannot read /nowhere/run.json"),
        (["run", "--devices", "0"], "devices must be a positive integer; got 0"),
        (["run", "--devices", "999"], "devices must be at most the"),
        (["run", "--process-id", "1"], "--coordinator, --num-processes and --process-id need --distributed"),
        (["run", "--distributed", "--process-id", "1"], "must be given together, or none of them; got None, None, 1"),
        (
            ["run", "--distributed", "--coordinator", "x", "--num-processes", "1", "--process-id", "0"],
            "coordinator must look like HOST:PORT; got 'x'",
        ),
        (
            ["run", "--checkpoint-every", "often"],
            "--checkpoint-every must be seconds, or text such as '5 calls'; got 'often'",
        ),
        (["run", "--checkpoint", "/proc/nowhere"], "cannot write /proc/nowhere/run.json"),
    ],
)
def test_bad_input_gives_one_line_and_exit_code_2(arguments, message, refusal):
    assert message in refusal(arguments)


@pytest.mark.slow
def test_runs_killed_at_random_moments_go_on_bit_by_bit(tmp_path):
    """20 kills; nothing but the work since the last checkpoint is lost, and a lost peer is noticed within 60 s."""
    out, _ = output(python("-W", "ignore", str(HERE / "kills.py"), str(tmp_path)))
    assert "16 kills of " in out and "4 kills of " in out and out.count("the same curves, bit by bit") == 2
