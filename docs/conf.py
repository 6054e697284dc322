"""How the site is built: ``make docs``, offline, warnings are errors."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

from small_examples import runnable  # noqa: E402

import deceptron  # noqa: E402

project = "deceptron"
author = "the deceptron developers"
copyright = f"2026, {author}"
release = version = deceptron.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "command_line",
    "mathml",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.py", "gallery/*.json", "gallery/*.zip"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # tables that a report wrote begin with a second heading

html_theme = "furo"
html_title = f"deceptron {release}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_attr_annotations = False  # shapes such as "B *x" are no markup
napoleon_use_ivar = True
maximum_signature_line_length = 88

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": rf"/({'|'.join(runnable())})\.py$",
    "ignore_pattern": r"^common\.py$",
    "within_subsection_order": "FileNameSortKey",
    "reset_argv": "small_examples.arguments",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "first_notebook_cell": None,
}
