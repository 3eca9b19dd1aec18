# SPDX-License-Identifier: MIT
"""Settings of the site, read by Sphinx, which `docs/site/build.py` starts (`make site`)."""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "ROCm LLM Guide"
author = "the authors of the ROCm LLM Guide"
copyright = "the authors; MIT licence"
release = _PROJECT["version"]
language = "en"
root_doc = "index"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "docs.site.sphinx_parts"]
exclude_patterns = ["jupyter_execute"]

# The notebooks are shown as they are stored; nothing is executed.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [("html", "text/html", 0)]
myst_enable_extensions = ["dollarmath"]
# The rule of course/html.py: "$5 or $6" are prices.
myst_dmath_allow_space = False
myst_heading_anchors = 4
html_math_renderer = "mathml"

# What a page of the reference needs from a module are its docstrings: the heavy libraries are stood in for.
autodoc_mock_imports = [
    "torch",
    "triton",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "accelerate",
    "matplotlib",
    "tokenizers",
    "safetensors",
    "IPython",
    "openai",
    "cycler",
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": False}
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "literal"

html_theme = "sphinx_book_theme"
html_title = "ROCm LLM Guide"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = True
# A summary would be fetched from each page that was found, which a browser refuses to a page opened from a file.
html_show_search_summary = False
html_sourcelink_suffix = ""
html_theme_options = {
    "use_download_button": True,
    "use_fullscreen_button": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "navbar_persistent": [],
    "navbar_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
