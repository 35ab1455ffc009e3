"""The site's settings. ``scripts/docs`` builds it; nothing here needs a network."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import mathml  # noqa: E402
import pages  # noqa: E402

import jaxrank  # noqa: E402

project = "jaxrank"
author = "The jaxrank authors"
copyright = "the jaxrank authors; MIT licence"
release = version = jaxrank.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "_results", "texts"]
html_theme = "furo"
html_title = "jaxrank"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "source_repository": "https://github.com/jaxrank/jaxrank/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
autodoc_typehints = "none"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Reference", "notes")]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def escape_bars(app, what, name, obj, options, lines):
    """|x| in a docstring is an absolute value, not a substitution of reStructuredText."""
    for number, line in enumerate(lines):
        parts = line.split("``")  # what is between two of them is code
        lines[number] = "``".join(part if i % 2 else part.replace("|", r"\|") for i, part in enumerate(parts))


def setup(app):
    mathml.setup(app)
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("builder-inited", lambda app: pages.write_all(HERE))
    app.connect("build-finished", pages.copy_reports)
