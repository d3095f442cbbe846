# make install | bench | paper | test | test-all | lint | types | lock | clean
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The tests are many and small, and some only wait: three processes for two cores, each with one thread of torch.
JOBS ?= 3
# Where `make paper` keeps its runs and its report.
OUT ?= outputs

.PHONY: install bench paper test test-all lint types lock clean
.DEFAULT_GOAL := install

install: $(VENV)/.installed

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(sys.version_info < (3, 11) and \
		"lopa_bench needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is " + v + ": make install PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The main job and its k = 0 twin on the embedded model, side by side.
bench: install
	$(BIN)/python -m lopa_bench -m decoder=lopa decoder.k=0,8 task=gsm8k task.limit=150

# The sweeps behind every table and figure, on the embedded model, then the report.
paper: install
	for name in decoders autoregressive k thresholds code; do \
		$(BIN)/python -m lopa_bench +experiment=paper/$$name run.out=$(OUT) || exit 1; done
	for name in branch_score confidence fallback attention block_size floor; do \
		$(BIN)/python -m lopa_bench +experiment=ablation/$$name task.limit=50 run.out=$(OUT) || exit 1; done
	$(BIN)/python -m analysis report $(OUT)

test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m "not slow"

# Also the long ones: whole benchmark files, cluster launchers, a browser.
test-all: lint types
	$(BIN)/python -m pytest -n $(JOBS) -m "not alone"
	$(BIN)/python -m pytest -m alone

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

# Versions that were tested together, from a fresh environment. The local part of a version (+cpu) is dropped, so that
# every platform finds its own build.
lock:
	rm -rf .lock && $(PYTHON) -m venv .lock
	.lock/bin/python -m pip install --quiet setuptools wheel "torch==2.13.0" -e ".[test]"
	.lock/bin/python -m pip freeze --all --exclude-editable | grep -v "^pip==" | sed "s/+cpu$$//" > requirements.lock
	rm -rf .lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
