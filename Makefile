# Every target works from a fresh clone and does only what is still to do.
# On Windows the same steps are plain commands: README.md.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && echo $$python && break; done)
PORT ?= 8000
BIN := .venv/bin
ENV = $(or $(PYTHON),$(error Python 3.11 to 3.14 is needed: install it (Debian: sudo apt-get install python3 python3-venv) \
  or name it with PYTHON=/path)) tools/env.py

# Byte code that is kept lets each of the many processes start in a fraction of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help book test lab serve bench golden locks clean
.NOTPARALLEL:

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

book: ## build the site into _build/html
	@$(ENV) book
	@$(BIN)/python tools/book.py

test: ## check everything: style, types, package, book, browser
	@$(ENV) test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python tools/book.py $(if $(filter true,$(CI)),--fresh,--full)
	$(BIN)/pytest --cov --numprocesses auto --dist worksteal

lab: ## open the chapters in JupyterLab
	@$(ENV) lab
	JUPYTER_CONFIG_PATH="$(CURDIR)/jupyter" $(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root)

serve: book ## serve the built site on http://127.0.0.1:8000 (PORT=...)
	@$(BIN)/python tools/serve.py "$(PORT)"

bench: ## measure perfmodel beside llm-analysis, GenZ and mlsysim; the page book/reference/benchmark.md shows it
	@$(ENV) bench
	.venv-bench/bin/python tools/bench.py

golden: ## accept the numbers that the chapters now say
	@$(ENV) test
	$(BIN)/pytest tests/test_chapters.py --update-golden

LOCK = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11 $(UPGRADE)

locks: ## pin the dependencies again (UPGRADE=--upgrade takes newer versions)
	@$(ENV) book
	$(LOCK) --group uv -o locks/uv.txt
	$(LOCK) pyproject.toml --extra course --group test -o locks/test.txt
	$(LOCK) pyproject.toml --extra course --group lab -c locks/test.txt -o locks/lab.txt
	$(LOCK) --group bench -o locks/bench.txt
	$(LOCK) pyproject.toml --extra course --group book -c locks/test.txt -o locks/book.txt

clean: ## remove what was built (.venv stays)
	rm -rf _build build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
