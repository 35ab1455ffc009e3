"""``python -m jaxrank`` is ``jaxrank``."""

import sys

from jaxrank.command.cli import main

sys.exit(main())
