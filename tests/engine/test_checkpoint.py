"""Checkpoints: a run that was stopped continues as if it had not been."""

import errno
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import click_model, worst_first

import jaxrank as jr
from jaxrank.engine import run as engine
from jaxrank.engine.checkpoint import Checkpoints, saved_steps
from jaxrank.engine.identity import FORMAT
from jaxrank.engine.request import Request
from jaxrank.engine.task import prepare
from jaxrank.output import files
from jaxrank.output.arrays import load_arrays

MODEL = click_model("pbm", 6, seed=0, num_queries=5)
ENVIRONMENT = jr.ClickBandit(MODEL, base_ranking=worst_first(MODEL), list_size=4, top=3)
# One compiled loop for most tests: calls of one interval.
OPTIONS = {
    "num_seeds": 3,
    "num_records": 7,
    "metrics": ("regret", "misordered"),
    "progress": False,
    "call_intervals": 1,
}


def stop_after(step, number=signal.SIGTERM):
    """A progress callback that sends a signal once."""
    sent = []

    def progress(done):
        if done >= step and not sent:
            sent.append(done)
            os.kill(os.getpid(), number)

    return progress


def interrupted(policy, environment, steps, folder, at, **options):
    options = OPTIONS | options
    with pytest.raises(jr.Interrupted, match=f"of {steps:,}; its checkpoint is in"):
        jr.simulate(policy, environment, steps, **options | {"progress": stop_after(at)}, checkpoint_dir=folder)
    return jr.simulate(policy, environment, steps, **options, checkpoint_dir=folder, resume=True)


def assert_same(result, expected):
    for name in expected.data_vars:
        np.testing.assert_array_equal(result[name], expected[name])


DATA = jr.datasets.synthetic_letor(8)
WORLDS = {
    "bubblerank": (jr.BubbleRank(delta=[0.1, 0.01]), ENVIRONMENT, 3_500, {}),
    "cascadehybrid": (
        jr.CascadeHybrid(),
        jr.datasets.topic_bandit(jr.datasets.synthetic_ratings(num_users=20, num_items=30), list_size=3),
        60,
        {"metrics": ("regret",), "instances": [0, 1]},
    ),
    "pdgd": (
        jr.PDGD(),
        jr.QueryStream(DATA.train, jr.click_models.graded_user("perfect"), list_size=5),
        60,
        {"metrics": ("cndcg",), "probes": {"test": jr.probes.OfflineNDCG(DATA.test)}},
    ),
}


@pytest.mark.parametrize("world", WORLDS)
def test_a_stopped_run_goes_on_bit_by_bit(world, tmp_path):
    policy, environment, steps, options = WORLDS[world]
    expected = jr.simulate(policy, environment, steps, **OPTIONS | options)
    assert_same(interrupted(policy, environment, steps, tmp_path, steps // 3, **options), expected)


def test_lanes_that_have_left_stay_out(tmp_path, monkeypatch):
    policy = jr.TopRank(delta=0.5)
    monkeypatch.setattr(engine, "_WORTH_COMPILING", 1)
    options = {"num_seeds": 30}
    expected = jr.simulate(policy, ENVIRONMENT, 17_500, **OPTIONS | options)
    result = interrupted(policy, ENVIRONMENT, 17_500, tmp_path, 9_000, **options)
    stored = Checkpoints(tmp_path / "lanes-0-of-1", {}, 60)
    stored._refuse_another = lambda configuration: None
    assert stored.load()[1]["active"].size < 150
    assert_same(result, expected)


def test_an_interval_cut_short_changes_nothing(tmp_path, monkeypatch):
    """Slow policies: a host call is shorter than an interval, and so is the work between two checkpoints."""
    expected = jr.simulate(jr.BubbleRank(delta=0.1), ENVIRONMENT, 2_000, **OPTIONS | {"num_records": 2})
    monkeypatch.setattr(engine, "_CALL_SECONDS", 0.0)  # the shortest calls there are
    original = engine.Run.__init__

    def short(self, *arguments, **options):
        original(self, *arguments, **options)
        self.call_steps = 300.0

    monkeypatch.setattr(engine.Run, "__init__", short)
    options = {"num_records": 2}
    with pytest.raises(jr.Interrupted, match="at step 300 of"):
        jr.simulate(
            jr.BubbleRank(delta=0.1),
            ENVIRONMENT,
            2_000,
            **OPTIONS | options | {"progress": stop_after(1)},
            checkpoint_dir=tmp_path,
        )
    monkeypatch.undo()
    result = jr.simulate(
        jr.BubbleRank(delta=0.1), ENVIRONMENT, 2_000, **OPTIONS | options, checkpoint_dir=tmp_path, resume=True
    )
    assert_same(result, expected)


def test_ctrl_c_saves_and_a_finished_run_is_only_read(tmp_path, monkeypatch):
    handler = signal.getsignal(signal.SIGINT)  # Python's own; a shell's background jobs ignore the signal
    with pytest.raises(KeyboardInterrupt) as stopped:
        jr.simulate(
            jr.StaticRanking(),
            ENVIRONMENT,
            3_000,
            **OPTIONS | {"progress": stop_after(1, signal.SIGINT)},
            checkpoint_dir=tmp_path,
        )
    assert isinstance(stopped.value, jr.Interrupted)
    assert signal.getsignal(signal.SIGINT) is handler
    first = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 3_000, **OPTIONS, checkpoint_dir=tmp_path, resume=True)
    monkeypatch.setattr(engine, "call", None)
    again = jr.simulate(jr.StaticRanking(), ENVIRONMENT, 3_000, **OPTIONS, checkpoint_dir=tmp_path, resume=True)
    assert again.identical(first)


@pytest.fixture
def no_nohup():
    """SIGHUP as in a terminal: the tests themselves may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_saves_and_nohup_is_left_alone(tmp_path, no_nohup):
    run = (jr.StaticRanking(), ENVIRONMENT, 3_000)
    usual = signal.getsignal(signal.SIGHUP)
    options = OPTIONS | {"progress": stop_after(1, signal.SIGHUP)}
    with pytest.raises(jr.Interrupted, match="its checkpoint is in"):
        jr.simulate(*run, **options, checkpoint_dir=tmp_path / "a")
    assert saved_steps(tmp_path / "a" / "lanes-0-of-1") and signal.getsignal(signal.SIGHUP) is usual
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        options = OPTIONS | {"progress": stop_after(1, signal.SIGHUP)}
        jr.simulate(*run, **options, checkpoint_dir=tmp_path / "b")
    finally:
        signal.signal(signal.SIGHUP, usual)


class Full(files.Disk):
    """A disk without room for checkpoints."""

    def write(self, handle, piece):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_costs_checkpoints_and_never_the_run(tmp_path, monkeypatch):
    run = (jr.StaticRanking(), ENVIRONMENT, 3_000)
    expected = jr.simulate(*run, **OPTIONS)
    monkeypatch.setattr(files, "disk", Full())
    with pytest.warns(RuntimeWarning, match="No space left on device; the run continues without it"):
        assert_same(jr.simulate(*run, **OPTIONS, checkpoint_dir=tmp_path / "a", checkpoint_every="1 call"), expected)
    with (
        pytest.warns(RuntimeWarning, match="No space left"),
        pytest.raises(jr.Interrupted, match=r"at step .* of 3,000; nothing was saved"),
    ):
        jr.simulate(*run, **OPTIONS | {"progress": stop_after(1)}, checkpoint_dir=tmp_path / "b")


def test_a_checkpoint_that_reads_back_damaged_costs_no_older_one(tmp_path, monkeypatch):
    real = files.Disk.write

    def rotten(self, handle, piece):
        real(self, handle, bytes([piece[0] ^ 1]) + bytes(piece[1:]) if b'step": 3000' in bytes(piece[:99]) else piece)

    monkeypatch.setattr(files.Disk, "write", rotten)
    run = (jr.StaticRanking(), ENVIRONMENT, 3_000)
    with pytest.warns(RuntimeWarning, match=r"read back: it is damaged"):
        jr.simulate(*run, **OPTIONS, checkpoint_dir=tmp_path, checkpoint_every="1 call", skip_settled=False)
    own = tmp_path / "lanes-0-of-1"
    assert len(saved_steps(own)) == 2 and 3_000 not in saved_steps(own)
    assert (own / "damaged-step-0000003000.arrays").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("settled"), r"its settled is missing, not \|b1\[15\]"),
        (lambda s: s.update(extra=np.zeros(2)), r"its extra is <f8\[2\], not there"),
        (lambda s: s.update({"sums/regret": np.zeros(14)}), r"its sums/regret is <f8\[14\], not <f8\[15\]"),
        (lambda s: s.update({"curves/regret": s["curves/regret"].astype(np.float32)}), r"its curves/regret is <f4"),
        (lambda s: s.update(active=s["active"][::-1].copy()), "its lanes, or its step"),
    ],
)
def test_a_snapshot_that_does_not_fit_is_refused(change, message, folder):
    own = folder / "lanes-0-of-1"
    about, snapshot = load_arrays(max(own.glob("step-*")))
    change(snapshot)
    run = prepare(STATIC["policy"], ENVIRONMENT, Request(3_000, **OPTIONS, skip_settled=False)).start(np.arange(15))
    with pytest.raises(ValueError, match=message):
        run.restore(about["step"], snapshot)


STATIC = OPTIONS | {
    "policy": jr.StaticRanking(),
    "environment": ENVIRONMENT,
    "num_steps": 3_000,
    "skip_settled": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run with two checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    jr.simulate(**STATIC, checkpoint_dir=folder, checkpoint_every="1 call")
    assert len(saved_steps(folder / "lanes-0-of-1")) == 2  # the last two of eight or so
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": jr.RandomRanking()}, r"policy is 'StaticRanking\(\) #\w+' there and 'RandomRanking\(\) #\w+' here"),
        ({"environment": ENVIRONMENT.__class__(MODEL, list_size=4, top=3)}, "environment is .* there and .* here"),
        ({"num_steps": 4_000}, "num_steps is 3000 there and 4000 here; recorded steps is"),
        ({"seed": 1, "num_seeds": 4}, r"seed is 0 there and 1 here; seeds is '\[0, 1, 2\] .* here"),
        ({"metrics": ("regret",)}, r"metrics is \['regret', 'misordered'\] there and \['regret'\] here"),
        ({"resume": False}, "checkpoint_dir must be empty, or resume must be set; .* holds the run of another call"),
    ],
)
def test_another_run_is_refused_with_what_differs(change, message, folder):
    with pytest.raises(ValueError, match=message):
        jr.simulate(**STATIC | {"checkpoint_dir": folder, "resume": True} | change)


def test_a_policy_that_keeps_something_else_since_is_refused(folder, monkeypatch):
    monkeypatch.setattr(jr.StaticRanking, "init", lambda self, key, query: jnp.zeros(2, jnp.float32))
    jax.clear_caches()
    with pytest.raises(ValueError, match=r"state of a lane is '\(\)' there and 'float32\[2\]' here"):
        jr.simulate(**STATIC, checkpoint_dir=folder, resume=True)
    jax.clear_caches()


def test_another_format_is_refused(folder):
    stored = Checkpoints(folder / "lanes-0-of-1", {"format": FORMAT + 1}, 60)
    with pytest.raises(ValueError, match=f"format is {FORMAT} there and {FORMAT + 1} here"):
        stored.load()


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "flipped":
        data[data.index(b"float") - 1] ^= 1  # in the configuration, which no number depends on
    path.write_bytes({"flipped": data, "truncated": data[: len(data) // 2], "emptied": b""}[how])


@pytest.mark.parametrize("how", ["truncated", "flipped", "emptied"])
def test_a_damaged_checkpoint_is_left_out_and_the_one_before_is_used(how, tmp_path):
    run = (jr.BubbleRank(delta=0.1), ENVIRONMENT, 3_000)
    options = OPTIONS | {"checkpoint_dir": tmp_path}
    expected = jr.simulate(*run, **options, checkpoint_every="1 call")
    own = tmp_path / "lanes-0-of-1"
    newest = max(own.glob("step-*"))
    damage(newest, how)
    with pytest.warns(RuntimeWarning, match=f"{newest.name} is damaged and left out"):
        assert_same(jr.simulate(*run, **options, resume=True), expected)
    for path in own.glob("step-*"):
        damage(path, how)
    for _ in range(2):  # and it stays refused
        with (
            pytest.warns(RuntimeWarning, match="damaged"),
            pytest.raises(ValueError, match=r"all of .* are damaged: remove them to start again"),
        ):
            jr.simulate(*run, **options, resume=True)


@pytest.mark.parametrize("every", ["often", "0 calls", -1, True])
def test_bad_intervals_are_refused(every, tmp_path):
    with pytest.raises(ValueError, match="checkpoint_every must be seconds, or text such as '5 calls'; got"):
        jr.simulate(jr.StaticRanking(), ENVIRONMENT, 10, checkpoint_dir=tmp_path, checkpoint_every=every)


def test_compare_keeps_what_has_finished(tmp_path):
    policies = {"static: a/b": jr.StaticRanking(), "random": jr.RandomRanking()}
    expected = jr.compare(policies, ENVIRONMENT, 3_000, **OPTIONS)
    with pytest.raises(jr.Interrupted, match="random"):
        jr.compare(
            policies,
            ENVIRONMENT,
            3_000,
            **OPTIONS | {"progress": stop_after_second(3_000)},
            checkpoint_dir=tmp_path,
        )
    result = jr.compare(policies, ENVIRONMENT, 3_000, **OPTIONS, checkpoint_dir=tmp_path, resume=True)
    assert_same(result, expected)


def stop_after_second(steps):
    """A progress callback that sends a signal in the run after the one that first came to its end."""
    ends = []

    def progress(done):
        if done == steps:
            ends.append(done)
        elif ends:
            os.kill(os.getpid(), signal.SIGTERM)

    return progress
