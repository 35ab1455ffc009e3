"""``jaxrank bench``, from a checkout: python benchmarks/run.py [OPTIONS], see --help."""

import sys

from jaxrank.command.cli import main

sys.exit(main(["bench", *sys.argv[1:]]))
