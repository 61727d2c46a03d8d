# rltuned. `make help` lists what there is. Everything runs from .venv; nothing else is touched,
# except that `make setup` and `make test` install Debian packages when run as root on Debian.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
BASE := $(VENV)/.base
LAB := .run/slurm
RUFF := $(BIN)/ruff
STUDY := $(BIN)/python -m scripts.studies

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-packages test-quick test-examples check-tools lint fmt types arch check bench bench-check bench-scale \
        record docs pictures site slurm-up slurm-down wheel deb deb-train rpm dist fuzz test-systemd test-matrix test-newest test-corpus test-pyslurm test-container check-learning results results-check paper forecast mutants soak day experiment-slurm clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with rltuned, the training extras and the developers' tools

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@sh scripts/setup.sh $(VENV) train,dev
	@touch $(BASE) $@

$(BASE): pyproject.toml constraints.txt scripts/setup.sh
	@sh scripts/setup.sh $(VENV)
	@touch $@

demo: $(BASE) ## a day of jobs like Philly's, without and with rltuned; half a minute
	@$(BIN)/python -m scripts.tools.demo

test-packages: # Slurm, munge, Prometheus for the tests, if they may be installed
	@sh scripts/test-packages.sh

test: $(STAMP) test-packages ## the tests of the package, against a real Slurm of their own
	@sh scripts/test.sh $(BIN)/python

check-tools: $(STAMP) test-packages ## tests of documents, pictures, dashboards, units and scripts
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/tools

test-examples: $(STAMP) ## the property tests, four times as many examples as in `make test`
	@RLTUNED_EXAMPLES=all $(BIN)/python -m pytest -q -n 2 --dist load -m "hypothesis or examples" tests

test-quick: $(STAMP) ## the tests that need no other program
	@$(BIN)/python -m pytest -q -m "not slurm and not prometheus" tests/unit tests/property

lint: $(STAMP) ## ruff: rules and format; the English of README and docs
	@$(RUFF) check . && $(RUFF) format --check . && $(BIN)/python -m scripts.tools.prose

fmt: $(STAMP) ## ruff: fix what can be fixed
	@$(RUFF) check --fix . && $(RUFF) format .

types: $(STAMP) ## mypy, strict
	@$(BIN)/mypy

arch: $(STAMP) ## import-linter: the floors
	@$(BIN)/lint-imports

check: lint types arch test-quick ## what to run before a commit

bench: $(STAMP) ## the figures of docs/performance.md; JSON=1: as JSON
	@$(BIN)/python -m scripts.benchmarks $(if $(JSON),--json) \
	    $(addprefix --philly ,$(wildcard ../shared/traces/philly_train_2017-10.csv.gz))

bench-check: $(STAMP) ## whether something has become slower than what is stored for this class of machine
	@$(BIN)/python -m scripts.benchmarks.check

bench-scale: $(STAMP) ## whole cycles of 10,000 and 100,000 jobs on up to 10,000 nodes; minutes
	@$(BIN)/python -m scripts.benchmarks cycling

record: $(STAMP) ## record the answers of a real Slurm into tests/data
	@$(BIN)/python -m scripts.tools.record

pictures: $(STAMP) test-packages ## draw the pictures of the README and the docs; four minutes
	@$(BIN)/python -m scripts.tools.pictures

docs: $(STAMP) ## write the generated pages
	@$(BIN)/python -m scripts.tools.docs

site: ## build/site: the documentation as a site
	@[ -x build/mkdocs/bin/mkdocs ] || python3 -m venv build/mkdocs
	@build/mkdocs/bin/python -m pip install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2'
	@build/mkdocs/bin/mkdocs build --quiet --strict

slurm-up: $(STAMP) test-packages ## start a test Slurm with 13 fake GPUs
	@$(BIN)/python -m tests.lab up --dir $(LAB)

slurm-down: $(STAMP) ## stop it
	@$(BIN)/python -m tests.lab down --dir $(LAB)

wheel: $(BASE) ## dist/: the Python wheel
	@sh scripts/dist.sh wheel

deb: $(BASE) ## dist/: a Debian package with every dependency in it
	@sh scripts/dist.sh deb

deb-train: $(BASE) ## dist/: rltuned-train, what simulation, backtest and training need besides
	@sh scripts/dist.sh deb-train

rpm: $(BASE) ## dist/: the package for systems with RPM
	@sh scripts/dist.sh rpm

dist: $(BASE) ## dist/: wheel, package, bill of materials, hashes
	@sh scripts/dist.sh all

test-systemd: $(STAMP) ## the package on a Debian 12 that systemd boots (root; half an hour)
	@sh scripts/test-packages.sh debootstrap systemd-container lintian rpm
	@$(BIN)/python -m pytest -q tests/booted

fuzz: $(STAMP) ## 10,000 files and 2,000 arguments with something wrong in them; minutes
	@RLTUNED_MUTATIONS=10000 $(BIN)/python -m pytest -q tests/property/test_mutated_files.py tests/unit/cli/test_arguments.py

test-matrix: $(STAMP) ## the tests that drive Slurm, on five releases from 22.05 to 26.05 (root; 40 minutes)
	@sh scripts/test-packages.sh debootstrap
	@$(BIN)/python -m scripts.tools.matrix

test-newest: $(STAMP) ## integration, faults, forecast and backfill on Slurm 25.11, for the gate (root; 10 minutes)
	@sh scripts/test-packages.sh debootstrap
	@$(BIN)/python -m scripts.tools.matrix --release 25.11 -- -n 3 --dist loadfile tests/integration tests/faults

test-corpus: $(STAMP) ## 500 odd submissions and updates, on the same releases (root; minutes)
	@sh scripts/test-packages.sh debootstrap
	@$(BIN)/python -m scripts.tools.matrix --corpus

test-pyslurm: $(STAMP) ## the contract through a real pyslurm on 26.05 (root; builds it once, minutes)
	@sh scripts/test-packages.sh debootstrap
	@$(BIN)/python -m scripts.tools.matrix --pyslurm

test-container: $(STAMP) ## the container, built and started by buildah in chroots (root; some minutes)
	@sh scripts/test-packages.sh debootstrap buildah
	@sh scripts/container.sh

check-learning: $(STAMP) ## whether PPO finds orders that are known to be the best; ten minutes
	@OMP_NUM_THREADS=1 $(BIN)/python -m scripts.studies.learning

results: $(STAMP) ## play every simulated figure of the docs that docs/data lacks; four hours from nothing
	@$(STUDY) results run $(if $(MINUTES),--minutes $(MINUTES)) && $(STUDY) results table && $(BIN)/python -m scripts.tools.docs

paper: $(STAMP) ## what RLTune, DL2 and WORL-RTGS claim beside what is measured here. MINUTES=60 plays what docs/data lacks first. JSON=1: the claims as JSON
	@$(if $(MINUTES),OMP_NUM_THREADS=1 nice $(STUDY) paper run --minutes $(MINUTES) &&) $(STUDY) paper table $(if $(JSON),--json)

forecast: $(STAMP) ## expected starts beside real ones, on parts of three traces; a quarter of an hour from nothing
	@nice $(STUDY) forecasts run && $(STUDY) forecasts table && $(STUDY) forecasts draw

results-check: $(STAMP) ## play a draw of the stored runs again and compare every figure; half an hour. ONLY='Helios Venus, 0.9, own': those of delays
	@$(STUDY) $(if $(ONLY),delays check --only '$(ONLY)',results check)

mutants: $(STAMP) ## change lines of core, journal, slurm and daemon and see whether a test notices; many hours
	@$(BIN)/python -m scripts.tools.mutants run
	@$(BIN)/python -m scripts.tools.mutants report

soak: $(STAMP) ## 2,000 cycles on the built-in cluster: does anything grow?
	@$(BIN)/python -m scripts.tools.soak --cycles 2000

day: $(STAMP) test-packages ## eight more of 24 hours of a slurmctld with 1,000 nodes and 3,000 waiting jobs; an hour each
	@$(BIN)/python -m scripts.tools.day run

experiment-slurm: $(STAMP) test-packages ## rltuned against multifactor and FIFO on real Slurms; hours, goes on where it stopped
	@$(BIN)/python -m scripts.studies.experiment_slurm run
	@$(BIN)/python -m scripts.studies.experiment_slurm report

clean: ## remove .venv and what tools left behind
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
