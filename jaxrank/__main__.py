"""``python -m jaxrank`` is ``jaxrank``."""

import sys

from jaxrank.cli import main

sys.exit(main())
