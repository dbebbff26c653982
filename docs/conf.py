"""How the documentation becomes a site: ``python -m sphinx -W --keep-going docs build/site``.

The pages are the Markdown files beside this one, so that they can be read in the repository, too. Nothing in the built pages asks
another host for anything, and a link to a page or heading that is not there ends the build.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import undirected

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "undirected"
author = "The undirected developers"
project_copyright = author
version = release = undirected.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "command_line"]
exclude_patterns = ["extensions"]

# Markdown: headings can be linked to down to the third level, and tables may be wide.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# The API: docstrings have sections as NumPy's; single backticks name things of this package.
default_role = "py:obj"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_use_param = False  # parameters that are described together stay together
napoleon_preprocess_types = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "undirected"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def setup(app: Any) -> None:
    """Let arrays be called ``ndarray`` in signatures; their types of shape and number are always ``Any``."""

    def shorten(text: str | None) -> str | None:
        return None if text is None else re.sub(r"(ndarray)\[[^\[\]]*\]", r"\1", text)

    app.connect("autodoc-process-signature", lambda *found: (shorten(found[-2]), shorten(found[-1])))
