"""What a run will take, before it is run: lanes, memory, time."""

import dataclasses
import math
import warnings
from functools import partial

import numpy as np

from jaxrank.core.checks import positive, real
from jaxrank.core.types import Environment, Policy
from jaxrank.engine import memory
from jaxrank.engine.request import Request, option, options, takes_request
from jaxrank.engine.task import prepare
from jaxrank.output.tables import counted


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What ``estimate`` found; printed, it is one line."""

    num_lanes: int
    num_steps: int
    num_shares: int  # of lanes that fit in memory, run one after the other
    loop_bytes: float  # on the devices, for one share
    curve_bytes: float  # on the host, for all lanes
    compile_seconds: float
    step_seconds: float  # of all steps of all lanes
    calibrated_steps: int  # run to measure the speed, on one share; 0 if it was taken from another estimate
    way: str = "loop"  # how its calls are run: as a "kernel", or as a "loop" and why

    @property
    def num_groups(self) -> int:
        """The name that ``num_shares`` had in 0.1.0."""
        warnings.warn(
            "Estimate.num_groups is now called num_shares; the old name goes with jaxrank 0.3",
            FutureWarning,
            stacklevel=2,
        )
        return self.num_shares

    @property
    def lane_step_seconds(self) -> float:
        return self.step_seconds / (self.num_lanes * self.num_steps)

    @property
    def seconds(self) -> float:
        return self.compile_seconds + self.step_seconds

    @property
    def total_bytes(self) -> float:
        """What the run adds to the process, where devices and host share their memory."""
        return self.loop_bytes + self.curve_bytes

    def __str__(self) -> str:
        rate = 1e-6 / self.lane_step_seconds
        shares = f" in {self.num_shares} shares" if self.num_shares > 1 else ""
        tried = f"{counted(self.calibrated_steps, 'step')} tried" if self.calibrated_steps else "not tried"
        return (
            f"{counted(self.num_lanes, 'lane')}{shares} × {counted(self.num_steps, 'step')}: about "
            f"{duration(self.seconds)} ({duration(self.compile_seconds)} of it compiling; {rate:.2f} M lane-steps/s; "
            f"{tried}; {self.way.partition(' ')[0]}) and "
            f"{memory.gigabytes(self.total_bytes)} ({memory.gigabytes(self.curve_bytes)} of it curves)"
        )


@options
class Trial(Request):
    """A request of which only the first steps are run, to measure their speed."""

    calibration_seconds: float = option(
        partial(real, check=positive),
        "the seconds to run for, not counting compilation.",
        default=5.0,
    )


@takes_request(Trial)
def estimate(policy: Policy, environment: Environment, trial: Trial) -> Estimate:
    """Predicts the lanes, memory and time that ``simulate`` with the same arguments will take.

    Memory is the compiler's count. Time is extrapolated from the first steps, which are run for some seconds: compiling
    is counted apart, and the remaining steps are assumed to have the pace of the second half of this trial. So a policy
    whose steps become cheaper later (lists that rarely change, lanes that settle) will take less time, and one that
    computes more as it learns will take longer.

    Args:
      policy: as in ``simulate``, like all other options but the last. Nothing is shown, saved or resumed.
      environment: likewise.
      {request}

    Example:
      >>> import jaxrank as jr
      >>> env = jr.ClickBandit(jr.CascadeModel([[0.2, 0.5, 0.1], [0.3, 0.3, 0.4]]), list_size=2)
      >>> plan = jr.estimate(jr.RandomRanking(), env, 1000, num_seeds=3, calibration_seconds=0.1)
      >>> plan.num_lanes, plan.num_shares
      (6, 1)
    """
    task, num_steps = prepare(policy, environment, trial), trial.num_steps
    limit = memory.usable(task)
    shares, needs = 1, None
    if not memory.fits_surely(task, limit):
        needs = memory.needed(task)
        shares = memory.shares_that_fit(task, needs, limit)
    run = task.start(np.arange(math.ceil(task.num_lanes / shares)))
    run.compile()
    loop_bytes = (run.loop_bytes() if needs is None else needs.loop) or memory.guessed(task).loop
    marks = [(0, 0.0)]  # (steps, seconds) after each call
    while not run.finished and run.seconds < trial.calibration_seconds:
        run.advance()
        marks.append((run.step, run.seconds))
    steps, seconds = np.array(marks).T
    middle = min(int(np.searchsorted(seconds, seconds[-1] / 2)), len(marks) - 2)
    pace = (seconds[-1] - seconds[middle]) / (steps[-1] - steps[middle])
    return Estimate(
        num_lanes=task.num_lanes,
        num_steps=num_steps,
        num_shares=shares,
        loop_bytes=loop_bytes / shares,
        curve_bytes=memory.curve_bytes(task),
        compile_seconds=run.compile_seconds,
        step_seconds=(seconds[-1] + pace * (num_steps - run.step)) * shares,
        calibrated_steps=run.step,
        way=str(task.way),
    )


def estimate_like(policy: Policy, environment: Environment, request: Request, known: Estimate) -> Estimate:
    """An estimate without compiling or running anything: the pace is that of ``known``, the memory is a guess."""
    task = prepare(policy, environment, request)
    limit = memory.usable(task)
    memory.fits_surely(task, limit)
    needs = memory.guessed(task)
    shares = memory.shares_that_fit(task, needs, limit)
    return dataclasses.replace(
        known,
        num_lanes=task.num_lanes,
        num_steps=request.num_steps,
        num_shares=shares,
        loop_bytes=needs.loop / shares,
        curve_bytes=needs.curves,
        step_seconds=known.lane_step_seconds * task.num_lanes * request.num_steps,
        calibrated_steps=0,
        way=str(task.way),
    )


def duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
