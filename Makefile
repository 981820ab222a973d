# Each target makes its own environment in .venv from a bare Python >= 3.11.
#
#   make demo    one word in several contexts, on the bundled model
#   make test    format, lint, types, rooms and tests: what CI runs
#   make check   make test and the slow proofs
#   make api-fuzz  10,000 valid and invalid requests to the server, made from its OpenAPI document
#   make sanitize  the kernels' tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   make chaos   kill every verb that writes, and the server, 100 times each; all must end with the same bytes
#   make fuzz    read damaged files of every format for ten minutes, then guided by coverage if atheris has a wheel
#   make faults  fail every write, fsync, rename, open, mmap and large allocation of each verb once
#   make soak    embed, score, predict and index for 30 minutes in one process; its memory must not grow
#   make integrations    test spaCy, scikit-learn, transformers, flair and others, in three environments
#   make test-lowest     test with the oldest versions of the dependencies that pyproject.toml allows
#   make docs    build the documentation site in build/site
#   make release-check   build sdist and wheels, install them in bare environments, run the README there
#   make clean   remove the environment, caches and builds

PYTHON ?= python3
SEED ?= 0
READY := .venv/.ready
READY_SLOW := .venv/.ready-slow
READY_DOCS := .venv/.ready-docs

.PHONY: api-fuzz demo test check chaos faults fuzz integrations docs release-check sanitize soak test-lowest clean

demo: $(READY)
	@.venv/bin/python examples/demo.py

test: $(READY)
	@scripts/check

check: $(READY_SLOW)
	@scripts/check --slow

api-fuzz: $(READY)
	@.venv/bin/python -m pip install -qq -c constraints.txt schemathesis
	@OMP_NUM_THREADS=1 .venv/bin/python scripts/api_fuzz.py --cases 10000

chaos: $(READY)
	@OMP_NUM_THREADS=1 .venv/bin/python -m pytest -m chaos tests/pretrain/test_chaos.py
	@.venv/bin/python tests/faults/chaos.py --seed $(SEED)

fuzz: $(READY)
	@OMP_NUM_THREADS=1 .venv/bin/python tests/fuzz/run.py --seed $(SEED)
	@.venv/bin/python -m pip install -qq --only-binary :all: -c constraints.txt atheris 2>/dev/null || \
		echo "atheris has no wheel for this machine; skipped fuzzing that is guided by coverage"
	@! .venv/bin/python -c "import atheris" 2>/dev/null || \
		OMP_NUM_THREADS=1 .venv/bin/python tests/fuzz/guided.py --seed $(SEED)

faults: $(READY)
	@.venv/bin/python tests/faults/run.py

soak: $(READY)
	@OMP_NUM_THREADS=1 .venv/bin/python scripts/soak.py README.md docs/*.md

integrations:
	@PYTHON="$(PYTHON)" scripts/integrations

docs: $(READY_DOCS)
	@.venv/bin/python scripts/site.py
	@.venv/bin/zensical build --strict --clean
	@.venv/bin/python scripts/site_links.py build/site
	@echo "Built build/site; look at it with: python3 -m http.server --directory build/site"

release-check: $(READY)
	@.venv/bin/python scripts/release_check.py

test-lowest:
	@"$(PYTHON)" scripts/test_lowest.py

sanitize: $(READY)
	@scripts/sanitize

clean:
	@rm -rf .venv .venv-integrations-* .venv-lowest build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find elmokit tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Constraints are set in the environment, so that they also apply to the tools that build the package.
$(READY) $(READY_SLOW) $(READY_DOCS): export PIP_CONSTRAINT := constraints.txt
$(READY) $(READY_SLOW) $(READY_DOCS): export PIP_BUILD_CONSTRAINT := constraints.txt
$(READY) $(READY_SLOW) $(READY_DOCS): export PIP_DISABLE_PIP_VERSION_CHECK := 1
$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard elmokit/kernels/src/*)
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "No '$(PYTHON)' found; install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "'$(PYTHON)' is $$("$(PYTHON)" --version 2>&1); elmokit needs 3.11 or newer, name one: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "'$(PYTHON)' has no venv; install it (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv
	@echo "Installing elmokit and its tools into .venv (minutes the first time, seconds later)"
	@.venv/bin/python -m pip install -qq --editable '.[dev,onnx,plot,serve,tasks,train]'
	@touch $@

# Ray is half a gigabyte, and only one slow proof needs it.
$(READY_SLOW): $(READY)
	@.venv/bin/python -m pip install -qq --editable '.[dev,onnx,plot,ray,serve,tasks,train]'
	@touch $@

$(READY_DOCS): $(READY)
	@.venv/bin/python -m pip install -qq --editable '.[dev,docs,onnx,plot,tasks,train]'
	@touch $@
