# make demo | test | test-slow | test-slurm | lint | format

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: demo install test test-slow test-slurm lint format clean

demo: $(STAMP)  ## Train SCSE on real text and show its depth curve
	$(BIN)/scse-dist demo

install: $(STAMP)

# torch first: asked for by itself pip takes the release that is pinned, not the newest that a dependency admits.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch torchvision
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test: $(STAMP)  ## Needs neither root nor GPU; at most 9 minutes on 2 cores
	$(PYTEST) -n 2 --dist loadfile

test-slow: $(STAMP)  ## Whole matrices, kills, the demo itself
	$(PYTEST) -m slow

test-slurm: $(STAMP)  ## Real Slurm on this machine
	$(PYTEST) -m slurm

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) build dist *.egg-info
