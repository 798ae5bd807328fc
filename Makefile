# What one types; `make help` lists it.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/deploy-reward: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

.PHONY: install
install: $(BIN)/deploy-reward ## Make the virtual environment, exact versions in it

.PHONY: demo
demo: install ## Run the whole service here and see two deploys become verdicts
	$(BIN)/deploy-reward up --demo

.PHONY: up
up: install ## Run the whole service here
	$(BIN)/deploy-reward up

.PHONY: test
test: install check ## Pass the whole gate: form, lint, types, contracts, tests
	$(BIN)/pytest --numprocesses 2 --dist worksteal

.PHONY: quick
quick: install ## Check form and lint, and test the statistics and the pages (a minute or two)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pytest --numprocesses 2 --dist worksteal tests/domain tests/stats tests/test_architecture.py tests/test_docs.py

.PHONY: check
check: install ## Form, lint and types alone
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

.PHONY: format
format: install ## Put the code into form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# gbstats needs old dependencies: a virtual environment of its own, and no row where that fails.
PEERS = build/peers
SCALE ?= 1

$(PEERS)/.ready: benchmarks/gbstats.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --quiet --disable-pip-version-check --requirement $< \
		&& touch $@ || echo "gbstats can't be installed: its row is left out"

.PHONY: calibrate
calibrate: install $(PEERS)/.ready ## Write docs/calibration.md: error rates, coverage, power, peers
	$(BIN)/python -m tests.calibration.report --scale $(SCALE) --gbstats $(PEERS)/bin/python

.PHONY: peers
peers: install $(PEERS)/.ready ## Set the test beside gbstats, a z test and the oracle
	$(BIN)/python -m benchmarks.peers --scale $(SCALE) --gbstats $(PEERS)/bin/python

.PHONY: bench
bench: install ## Measure ingestion and polling against what bounds them (needs wrk)
	$(BIN)/python -m benchmarks.ingestion

.PHONY: bench-sealing
bench-sealing: install ## Seal a day of events: rows a second, bytes an event
	$(BIN)/python -m benchmarks.sealing

EVENTS ?= 1000000,10000000

.PHONY: bench-rebuild
bench-rebuild: install ## Compute a whole day in PostgreSQL, DuckDB and Spark: CPU, memory, the curve
	$(BIN)/python -m benchmarks.whole_lives --sizes $(EVENTS)
	$(BIN)/python -m benchmarks.rebuild --sizes $(EVENTS) --experiments 3
	$(BIN)/python -m benchmarks.commands --sizes $(EVENTS)
	$(BIN)/python -m benchmarks.spark --sizes $(EVENTS)

# The whole of Spark, with its JVM side: some 500 MB, for these tests alone. Needs a JDK 17.
SPARK = build/spark

$(SPARK)/.ready: tests/spark.txt
	$(PYTHON) -m venv $(SPARK)
	$(SPARK)/bin/python -m pip install --quiet --quiet --disable-pip-version-check --requirement $<
	@touch $@

.PHONY: spark
spark: install $(SPARK)/.ready ## Hold Spark, on a cluster of real processes, equal to DuckDB
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,spark]'
	$(BIN)/pytest -m spark

.PHONY: years
years: install ## Let 10,000 ticks go by, and print the disk in use (some minutes)
	$(BIN)/python -m benchmarks.years

.PHONY: deep
deep: install ## Run the long forms of the reliability tests
	$(BIN)/pytest -m deep

.PHONY: story
story: install ## Live the whole story in a browser, from an empty project to a verdict (some 20 minutes)
	$(BIN)/pytest -m deep tests/browser/test_story.py

.PHONY: mutants
mutants: install ## Break each promise in a copy of the source, and see a test catch it
	$(BIN)/pytest -m deep tests/test_mutants.py

.PHONY: clean
clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist *.egg-info
