# What one types; `make help` lists it.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
QUIET = --quiet --quiet --disable-pip-version-check

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The lock has the hash of every file of each version: what is installed is what was tested.
LOCKED = --no-deps --require-hashes

# uv takes a fifth of pip's time; but only pip reads its settings, which may name another index.
$(BIN)/deploy-reward: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.txt
	$(BIN)/python -m pip install $(QUIET) $(LOCKED) --requirement $(VENV)/uv.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(LOCKED) --requirement requirements.lock \
		|| $(BIN)/python -m pip install $(QUIET) --no-compile $(LOCKED) --requirement requirements.lock
	$(BIN)/python -m pip install $(QUIET) --no-deps --no-build-isolation --editable .
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
test: ## Pass the whole gate: form, contracts, types, tests; the time of each stage at the end
	VENV=$(VENV) $(PYTHON) tests/gate.py whole

.PHONY: quick
quick: ## Check form and contracts, and test the statistics and the pages (under a minute)
	VENV=$(VENV) $(PYTHON) tests/gate.py quick

RING ?= 1
SECONDS ?= 20

.PHONY: near
near: install ## Test what a change reaches, nearest first (FILES="stats/gates/vif.py", RING=2)
	$(BIN)/python -m tests.near --ring $(RING) --seconds $(SECONDS) $(FILES)

.PHONY: check
check: install ## Form, lint, import contracts and types alone
	VENV=$(VENV) $(PYTHON) tests/gate.py check

.PHONY: format
format: install ## Put the code into form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# gbstats needs old dependencies: a virtual environment of its own, and no row where that fails.
PEERS = build/peers
SCALE ?= 1

$(PEERS)/.ready: benchmarks/gbstats.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install $(QUIET) --requirement $< \
		&& touch $@ || echo "gbstats can't be installed: its row is left out"

.PHONY: calibrate
calibrate: install $(PEERS)/.ready ## Write docs/calibration.md: error rates, coverage, power, peers
	$(BIN)/python -m benchmarks.calibration.report --scale $(SCALE) --gbstats $(PEERS)/bin/python

.PHONY: peers
peers: install $(PEERS)/.ready ## Set the test beside gbstats, a z test and the oracle
	$(BIN)/python -m benchmarks.peers --scale $(SCALE) --gbstats $(PEERS)/bin/python

.PHONY: bench
bench: install ## Measure ingestion and polling against what bounds them (needs wrk)
	$(BIN)/python -m benchmarks.server.ingestion
	$(BIN)/python -m benchmarks.server.quiet_tenant
	$(BIN)/python -m benchmarks.server.restart

.PHONY: bench-experiments
bench-experiments: install ## Take a look at 10,000 experiments, and at one of 10,000 strata
	$(BIN)/python -m benchmarks.experiments
	$(BIN)/python -m benchmarks.strata

.PHONY: bench-sealing
bench-sealing: install ## Seal a day of events: rows a second, bytes an event
	$(BIN)/python -m benchmarks.days.sealing

EVENTS ?= 1000000,10000000

.PHONY: bench-rebuild
bench-rebuild: install ## Compute a whole day in PostgreSQL, DuckDB and Spark: CPU, memory, the curve
	$(BIN)/python -m benchmarks.days.whole_lives --sizes $(EVENTS)
	$(BIN)/python -m benchmarks.days.rebuild --sizes $(EVENTS) --experiments 3
	$(BIN)/python -m benchmarks.days.commands --sizes $(EVENTS)
	$(BIN)/python -m benchmarks.days.spark --sizes $(EVENTS)

# The whole of Spark, with its JVM side: some 500 MB, for these tests alone. Needs a JDK 17.
SPARK = build/spark

$(SPARK)/.ready: benchmarks/outside/spark.txt
	$(PYTHON) -m venv $(SPARK)
	$(SPARK)/bin/python -m pip install $(QUIET) --requirement $<
	@touch $@

.PHONY: spark
spark: install $(SPARK)/.ready ## Hold Spark, on a cluster of real processes, equal to DuckDB
	$(BIN)/python -m pip install $(QUIET) --constraint constraints.txt --editable '.[dev,spark]'
	$(BIN)/pytest -m spark benchmarks/outside

.PHONY: years
years: install ## Let 10,000 ticks go by, and print the disk in use (some minutes)
	$(BIN)/python -m benchmarks.years

.PHONY: nightly
nightly: ## Pass the tests that the gate has no time for: other forms of what it promises (minutes)
	VENV=$(VENV) $(PYTHON) tests/gate.py nightly

.PHONY: world
world: install ## Run other people's frameworks, routers and clients against the service (half an hour)
	$(BIN)/pytest -m world benchmarks/outside

.PHONY: deep
deep: install ## Run the long forms of the tests: kills, random worlds, more examples (hours)
	$(BIN)/pytest -m deep --hypothesis-profile long
	$(BIN)/pytest -m "hypothesis and not deep and not spark" --hypothesis-profile long --timeout 7200

.PHONY: story
story: install ## Live the whole story in a browser, from an empty project to a verdict (some 20 minutes)
	$(BIN)/pytest -m deep tests/browser/test_story.py

.PHONY: mutants
mutants: install ## Break each promise in a copy of the source, and see a test catch it
	$(BIN)/pytest -m deep tests/mutants/test_mutants.py

FLOORS = build/floors
# Each room of the source, by what leans most on other people's packages. Old ones warn.
AT_FLOORS = tests/stats tests/storage/schema tests/storage/log/test_sealing.py tests/pipeline/engines \
	tests/api/routes/test_reward.py tests/api/otlp/test_protobuf.py tests/api/server/test_connections.py \
	tests/mcp_server tests/cli/changes tests/cli/imports tests/cli/operations \
	tests/orchestration/test_definitions.py tests/orchestration/dagster/test_days.py

.PHONY: lock
lock: install ## Write requirements.lock from pyproject.toml and constraints.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev \
		--constraint constraints.txt --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --output-file requirements.lock pyproject.toml

.PHONY: floors
floors: install ## Test with the oldest versions that pyproject.toml allows (some minutes)
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) $(FLOORS)
	VIRTUAL_ENV=$(FLOORS) $(BIN)/uv pip install --quiet --resolution lowest-direct --editable '.[dev]'
	$(FLOORS)/bin/python -m pytest -W default $(AT_FLOORS)

NEWEST = build/newest

.PHONY: newest
newest: install ## Test with the newest version of everything, and write docs/newest.md (nightly, no lock)
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) $(NEWEST)
	VIRTUAL_ENV=$(NEWEST) $(BIN)/uv pip install --quiet --upgrade --editable '.[dev]'
	$(NEWEST)/bin/python -m benchmarks.newest $(AT_FLOORS)

.PHONY: host
host: install ## Install the oldest Dagster that the service is tested as a guest of
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/host
	VIRTUAL_ENV=build/host $(BIN)/uv pip install --quiet "dagster==1.12.22" \
		"dagster-postgres==0.28.22" "sqlalchemy<2.1"

.PHONY: findings
findings: ## Run what surprised us in other people's tools, and say what changed (minutes)
	findings/run

.PHONY: clean
clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist *.egg-info
