"""How fast is a step? ``jaxrank bench``: lane-steps per second, against scalar loops compiled by numba, in one run.

Machines are noisy, so what counts is the ratio of two measurements next to each other, each the best of several.
"""

from jaxrank.bench.measurement import FEATURE_FREE, Cell, devices_of, measure, policies_for
from jaxrank.bench.report import listing, machine, table, write

__all__ = ["FEATURE_FREE", "Cell", "devices_of", "listing", "machine", "measure", "policies_for", "table", "write"]
