# The only commands anybody needs. Each target makes its own virtual environment first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
export SYNTHGEO_DATA ?= $(CURDIR)/data

.PHONY: help demo test test-lowest test-newest test-base ci fuzz fuzz-files hostile fuzz-guided browser java gdal ssh check audit mutants soak licences wheel bench bench-quick bench-time bench-spatial bench-tabular bench-trips bench-series bench-scale docs clean
help:            ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("synthgeo needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[all,spark,dev,bench,docs]'
	touch $@

demo: $(STAMP)   ## simulate a city, release it, leave datasets in demo/
	rm -rf demo
	$(BIN)/synthgeo demo --out demo

test: $(STAMP) browser java gdal ssh   ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile

ci:              ## all that CI runs: the suite, style, the documentation, and the quick tests in two more environments
	.ci/run

# The quick tests of the foundation, and of the contract of every product: none that takes long, draws samples,
# starts a cluster or compares bits. Old versions warn about each other.
QUICK := HYPOTHESIS_PROFILE=quick timeout 600 VENV/bin/python -m pytest -q -n 2 --dist loadfile -p no:cacheprovider -W default \
         -m "not slow and not statistical and not cluster and not pinned" tests/contract tests/synthgeo
LOWEST := .venv-lowest
NEWEST := .venv-3.13
PYTHON_NEWEST ?= $(shell for python in python3.13 "$$(pyenv prefix 3.13 2>/dev/null)/bin/python3.13"; do \
                   "$$python" -c '' 2>/dev/null && { echo "$$python"; break; }; done)

$(LOWEST)/.installed: pyproject.toml constraints/lowest.txt
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet -c constraints/lowest.txt -e '.[all,test]'
	touch $@

$(NEWEST)/.installed: pyproject.toml
	test -x $(NEWEST)/bin/python || $(PYTHON_NEWEST) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet -e '.[all,test]'
	touch $@

test-lowest: $(LOWEST)/.installed   ## the quick tests with the lowest supported versions of the dependencies
	$(subst VENV,$(LOWEST),$(QUICK))

ifeq ($(PYTHON_NEWEST),)
test-newest:     ## the quick tests on Python 3.13
	@echo "no Python 3.13 here: its tests are skipped"
else
test-newest: $(NEWEST)/.installed
	$(subst VENV,$(NEWEST),$(QUICK))
endif

# The report is tested in a real Chromium. Where it cannot be installed those tests skip and say so.
browser:
	@command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && echo "installing chromium for the report's tests" \
	       && apt-get update -qq >/dev/null && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no chromium here: the report's browser tests will skip"

# Spark is tested on a cluster of processes of its own, where there is Java or where it can be installed.
java:
	@command -v java >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && echo "installing Java for the tests on Spark" \
	       && apt-get update -qq >/dev/null && apt-get install -y -qq default-jre-headless >/dev/null; } \
	  || echo "no Java here: the tests on Spark will skip"

# Published folders are opened with GDAL's own ogrinfo, where it is there or can be installed.
gdal:
	@command -v ogrinfo >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && echo "installing gdal-bin for the tests of published files" \
	       && apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends gdal-bin >/dev/null; } \
	  || echo "no ogrinfo here: the tests of published files with GDAL will skip"

# Signatures are made by OpenSSH, where it is there or can be installed.
ssh:
	@command -v ssh-keygen >/dev/null 2>&1 \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && echo "installing openssh-client for the tests of signatures" \
	       && apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends openssh-client >/dev/null; } \
	  || echo "no ssh-keygen here: the tests of signatures will skip"

check: $(STAMP)  ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: $(STAMP)   ## property tests and fuzzing with fresh random examples
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests -k "fuzz or property or hypothesis or sensitivity or agreement or contribution or privtree or cells"

fuzz-files: $(STAMP)  ## hostile files for every loader, a minute each (SECONDS=600 for ten)
	$(BIN)/python -m tools.fuzz --seconds $(or $(SECONDS),60)

hostile: $(STAMP)  ## a hundred hostile files for every loader: one line, no value, less than 1 GiB
	$(BIN)/python -m tools.hostile

fuzz-guided: $(STAMP)  ## the same, led by coverage (atheris), ten minutes each
	$(BIN)/python -m pip install --quiet -e '.[fuzz]'
	$(BIN)/python -m benchmarks.fuzz --seconds $(or $(SECONDS),600)

audit: $(STAMP)  ## the long privacy audit; writes docs/audit.md
	$(BIN)/python -m benchmarks.audit

mutants: $(STAMP)  ## small changes that break a promise, each against the tests that should notice; resumable
	$(BIN)/python -m benchmarks.mutants --jobs $(or $(JOBS),1)

soak: $(STAMP)   ## 10,000 kills of durable runs (KILLS=...), and files damaged in every way; resumable
	$(BIN)/python -m benchmarks.soak --kills $(or $(KILLS),10000)
	$(BIN)/python -m benchmarks.damage

licences: $(STAMP)  ## every package that an installation brings, with its licence
	$(BIN)/python -m tools.inventory licences

test-base: $(STAMP)  ## the wheel in an empty environment without extras: README's example, each missing extra, its size
	$(BIN)/python -m benchmarks.install

wheel: $(STAMP)  ## the wheel, built twice and compared, with its bill of materials (CycloneDX) and checksums, in dist/
	$(BIN)/python -m tools.wheel

docs: $(STAMP)    ## the documentation site, strictly, in site/
	$(BIN)/mkdocs build --strict

bench: $(STAMP)  ## whatever is not measured yet (hours in all); writes benchmarks/results and docs/benchmarks.md
	$(BIN)/python -m benchmarks

bench-quick: $(STAMP)  ## the short benchmarks, in less than ten minutes; leaves the recorded results alone
	$(BIN)/python -m benchmarks --quick

bench-time: $(STAMP)  ## lifetimes, single windows, borrowing, long streams
	$(BIN)/python -m benchmarks time

bench-spatial: $(STAMP)  ## noise, counters, spatial streams and their sweeps
	$(BIN)/python -m benchmarks noise counters spatial sweeps dissertation

bench-tabular: $(STAMP)  ## tables over time and once, and peers
	$(BIN)/python -m benchmarks tabular peers_tabular

bench-trips: $(STAMP)  ## trips and map matching
	$(BIN)/python -m benchmarks trips matching

bench-series: $(STAMP)  ## scalar series
	$(BIN)/python -m benchmarks series

bench-scale: $(STAMP) java  ## files larger than memory, clusters, growth, and where the time goes
	$(BIN)/python -m benchmarks engines clusters growth profiles

clean:           ## remove what the targets made
	rm -rf $(VENV) $(LOWEST) $(NEWEST) demo build dist site .pytest_cache .mypy_cache .ruff_cache
