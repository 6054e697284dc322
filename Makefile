# `make demo` and `make test` are all a fresh machine needs; both make the virtual environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: test lint types imports unit quick cluster demo docs contact-sheet zoo benchmarks format clean

test: lint types imports unit

# torch goes first and pinned: resolving it as someone's dependency may pull a CUDA build.
$(STAMP): pyproject.toml paper/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,hdf5,tensorboard,zarr,jax,umbridge,examples]' -e ./paper
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/pytest -n 2

# Ray is large and its processes are slow to start: apart from the rest.
cluster: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(BIN)/pytest -n 0 -m cluster

# Seconds: the rooms that most changes touch.
quick: $(STAMP)
	$(BIN)/pytest -n 2 tests/core tests/geometry tests/maps tests/theory -m 'not slow and not cluster'

demo: $(STAMP)
	$(BIN)/deceptron demo --output demo.png

# The site, in build/site: offline, warnings are errors, nothing on a page comes from elsewhere.
docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs,jax,umbridge,examples]'
	$(BIN)/sphinx-build -W --keep-going docs build/site
	! grep -rlE '<(script|link|img|iframe)[^>]+(src|href)="(https?:)?//' build/site --include='*.html'
	@echo "read build/site/index.html"

# Screenshots of everything that people look at, in build/contact_sheet.png; needs Debian's chromium.
contact-sheet: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/sphinx-build -q -D plot_gallery=0 docs build/site-without-gallery
	$(BIN)/python -m tools.contact_sheet --site build/site-without-gallery

# Trains the models that ship; resumable, half an hour on two cores.
zoo: $(STAMP)
	$(BIN)/python -m tools.make_zoo

benchmarks: $(STAMP)
	$(BIN)/python -m benchmarks

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist src/*.egg-info paper/src/*.egg-info docs/gallery demo.png
