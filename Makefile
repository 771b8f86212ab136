# The commands of Transformer Anatomy; `make help` lists them.

PYTHON ?= python3
CORES ?= all
CONFIGFILE ?=

BIN := .venv/bin
STAMP := .venv/.installed
# The folder of results/ and logs/; the smoke run uses smoke/
DIRECTORY ?= .
REPORT := $(DIRECTORY)/results/report.html
NEW_REPORT := results/.report-new.html
SNAKEMAKE := $(BIN)/snakemake --directory "$(DIRECTORY)" --cores $(CORES) \
	$(if $(CONFIGFILE),--configfile "$(CONFIGFILE)")
# Tests of one file run in one worker, since they share costly fixtures
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# Programs that rules and snakefmt call by name also come from .venv.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help run smoke test test-faults test-cluster lint bench clean-env

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
	@echo "  Settings:         CORES=4  CONFIGFILE=config/smoke.yaml  DIRECTORY=elsewhere  PYTHON=python3.12"

run: $(STAMP) ## run the workflow, then write results/report.html if anything changed
	@$(if $(CONFIGFILE),$(BIN)/python -m scripts.anatomy.configuration "$(CONFIGFILE)")
	@$(SNAKEMAKE)
	@if $(report_is_current); then echo "Nothing to do: $(REPORT) and everything it shows are up to date."; \
	else $(SNAKEMAKE) --report $(NEW_REPORT) && mv "$(DIRECTORY)/$(NEW_REPORT)" "$(REPORT)" && echo "Wrote $(REPORT)."; fi

smoke: ## run the whole workflow at its smallest (config/smoke.yaml), in smoke/
	@$(MAKE) --no-print-directory run CONFIGFILE=config/smoke.yaml DIRECTORY=smoke

test: lint ## run lint, then all tests
	$(PYTEST)

test-faults: $(STAMP) ## run all tests of faults: kills, full disks, damaged files (half an hour)
	$(PYTEST) --slow tests/faults

test-cluster: $(STAMP) ## run all tests on a SLURM of one node that they start (root; slurm-wlm, munge)
	$(BIN)/pytest --slow tests/cluster

lint: $(STAMP) ## check the style of Python and rules, and run Snakemake's own lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

bench: $(STAMP) ## measure speed next to plain versions
	$(BIN)/python -m benchmarks

clean-env: ## remove .venv; the next command rebuilds it
	rm -rf .venv

# A report is current if no file in results/ and no caption is newer.
report_is_current = [ -e "$(REPORT)" ] && [ -z "$$(find "$(DIRECTORY)/results" $(wildcard report) -type f -newer "$(REPORT)")" ]

# The environment is always built from scratch, never on top of an interrupted or older install.
# Only a finished install leaves the stamp.
$(STAMP): envs/requirements.txt envs/assets.txt
	@$(check_python)
	@echo "Installing envs/requirements.txt and envs/assets.txt into .venv, once (a minute or two) ..."
	@"$(PYTHON)" -m venv --clear .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r envs/requirements.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r envs/assets.txt
	@touch $(STAMP)

check_python = \
	case "$(CURDIR)" in *" "*) echo "Snakemake cannot start a Python (.venv) from a folder with a space in its path; move this one." >&2; exit 1;; esac; \
	"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	|| { echo "$(PYTHON) is missing or older than Python 3.11; name another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }; \
	"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null \
	|| { echo "$(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
