# Needs git, make and a Python >= 3.12; the rest goes into .venv.
# Variables: PYTHON (the interpreter to build with), VENV, JOBS (test processes), ARGS (more for pytest), MINUTES (of fuzz-hdf5 and soak),
# MUTANTS (of each package) and SEED (of mutate).

VENV ?= .venv
# One process more than there are cores: many tests wait for servers and other processes. Each takes a gigabyte.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 8 ? n + 1 : 8)))
ARGS ?=
MINUTES ?= 10
MUTANTS ?= 40
SEED ?= 0
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMP := $(VENV)/.installed
PACKAGES := web/node_modules/.installed
VIEWER := src/gridref/faces/web/built/viewer.js

.DEFAULT_GOAL := help
.PHONY: assets gallery attack package release-check site site-versions help env demo test test-all test-minimum test-newest tried-assets lint types check clients interchange doors fuzz fuzz-hdf5 kill mutate overlay-changes overlay-suites soak viewers bench bench-check constraints clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: $(STAMP) ## make the environment in .venv (again only when its inputs changed)

$(STAMP): pyproject.toml constraints.txt
	@if ! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then \
	    python=$$(tools/find-python) || exit 1; \
	    echo "Making $(VENV) with $$python"; \
	    "$$python" -m venv --clear $(VENV); \
	fi
	@echo "Installing gridref into $(VENV) (the first time takes a minute or more)"
	@tools/install $(BIN)/python $(VENV) -c constraints.txt -e ".[all,dev]"
	@touch $@

demo: env ## open the sample files as one cube and compare every value; ARGS=--serve shows it
	@$(BIN)/python -m gridref.demo $(ARGS)

test: env tried-assets ## test every capability; what needs a program that is not installed is skipped
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --disable-warnings -m "not long" $(ARGS)

test-all: env tried-assets ## all tests: those of make test, and long ones; ARGS="-m long" for these alone
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --disable-warnings $(ARGS)

test-minimum: ## quick tests with the lowest versions of all dependencies, in build/minimum
	tools/test-versions lowest build/minimum -n $(JOBS) $(ARGS)

test-newest: ## the same with the newest versions, and those before a release, in build/newest
	tools/test-versions newest build/newest -n $(JOBS) $(ARGS)

tried-assets: env
	@! command -v npm >/dev/null || $(MAKE) --no-print-directory assets || echo "make assets failed: tests of the viewer are skipped"

lint: env ## style, format and direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: env ## strict type check of src/
	$(BIN)/mypy

assets: $(VIEWER) ## build the viewer of the served pages (needs Node and npm; again only when its inputs changed)
	@:

$(PACKAGES): web/package.json
	@cd web && npm install --no-package-lock --no-audit --no-fund --loglevel=error --cache=node_modules/.cache
	@touch $@

$(VIEWER): $(PACKAGES) web/build.mjs $(shell find web/viewer -type f)
	@cd web && npm run --silent build

package: env assets ## build sdist and wheel, and try the wheel in an environment of its own
	tools/check-package $(BIN)/python

release-check: env assets ## all that must hold before a tag: the package, its tests installed, metadata, licences, links, changelog
	tools/release-check $(BIN)/python

site: env ## the documentation as a site, in build/site; fails on broken links and on what would be fetched elsewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The site: build/site/index.html"

site-versions: env ## the site of each released version and of this one beside each other, in build/pages
	$(BIN)/python -m tools.site_versions

check: lint types test ## lint, types and test

interchange: env ## write the table of docs/interchange.md: what other tools keep
	$(BIN)/python -m tests.conformance.interchange

clients: env assets ## write docs/clients.md: which Zarr client reads what (needs Node and npm)
	$(BIN)/python -m tests.conformance.client_table

gallery: env assets ## draw docs/gallery.md, real data in the viewer (needs Node, npm, Chromium and GRIDREF_TEST_DATA)
	$(BIN)/python tools/draw_gallery.py docs

viewers: env ## viewers of others (OpenLayers, neuroglancer, ome-zarr.js) show what is served; installs them (needs Node, npm and Chromium)
	GRIDREF_VIEWERS=1 $(BIN)/python -m pytest tests/browser/test_viewers_of_others.py $(ARGS)

doors: env ## write docs/doors.md: arrays through every way in; ARGS=--every-array tries those that are alike, too (needs the shared data)
	$(BIN)/python -m tests.conformance.door_table $(ARGS)

fuzz: env ## the property tests with many more examples
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n $(JOBS) --timeout=3600 tests/property $(ARGS)

kill: env ## kill writers of catalogs at N_KILLS (1000) random moments; KILL_SEED draws others
	N_KILLS=$${N_KILLS:-1000} $(BIN)/python -m pytest --timeout=0 tests/integration/test_writers.py -k killed $(ARGS)

overlay-changes: env ## change an archive with overlays at N_CHANGES (10000) random steps, and find no stale value; SEED draws others
	$(BIN)/python -m tests.integration.overlay_archive $${N_CHANGES:-10000} $${SEED:-1}

# Drift, trust, growing catalogs, and doors.
OVERLAY_SUITES = $(addprefix tests/,property/test_combine_drift.py \
	$(patsubst %,integration/test_%.py,building allowed_files allowed_sources bad_input \
	verify_sources chunk_checksums append replace writers end_to_end open_zarr xarray_engine \
	direct_view filesystem))

overlay-suites: env ## run suites of drift, trust, growing and doors with an overlay of each array, and compare each read with the files
	$(BIN)/python -m pytest -q -n 0 --tb=short -p tests.with_overlays $(OVERLAY_SUITES)

fuzz-hdf5: env ## fuzz the HDF5 scanner, guided by coverage, for MINUTES; see docs/fuzzing.md
	$(BIN)/python -m tools.fuzz.fuzz_hdf5_scan --minutes $(MINUTES)

attack: env ## attack all that is trusted for MINUTES, with SEED; ONLY some; see docs/fuzzing.md
	$(BIN)/python -m tools.fuzz.attack --minutes $(MINUTES) --seed $(SEED) --only "$(ONLY)"

mutate: env ## try the tests on small wrong changes to the code: MUTANTS a package, drawn by SEED
	$(BIN)/python -m tools.mutation --mutants $(MUTANTS) --seed $(SEED) $(ARGS)

soak: env ## random selections through all doors for MINUTES, with flat memory
	$(BIN)/python -m tools.soak --minutes $(MINUTES)

bench: env ## run the benchmarks; ARGS="door serve" only some
	$(BIN)/python -m benchmarks $(ARGS)

bench-check: env ## compare ratios to peers with those of docs/measurements.md; ARGS="--keep" replaces them, "--all" adds long jobs
	$(BIN)/python -m benchmarks._check $(ARGS)

constraints: ## write constraints.txt with today's versions
	@python=$$(tools/find-python) || exit 1; tools/make-constraints "$$python"

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
