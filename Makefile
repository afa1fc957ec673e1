# ccctl: `make run` shows it at work on this machine, `make test` tests it.

BIN := .venv/bin
PYTEST := $(BIN)/python -P -m pytest
COVERED := $(BIN)/python -P -m coverage run -m pytest -q

# Many containers set it: every command and each of its ranks would then compile all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-long gpu papers coverage fuzz check docs site wheel clean

help:
	@echo 'make run     install into .venv and do the main job on this machine; results stay in out/'
	@echo 'make test    install what the tests need and run them; ARGS="-k word" chooses'
	@echo 'make test-long   campaigns that make test leaves out: sixteen times the examples, labs that are cut and healed, Slurm'
	@echo 'make gpu     on a machine with GPUs: all that needs one, in 8 minutes; out/gpu/results.md'
	@echo 'make papers  run the rows of the five papers and compare with what they printed last'
	@echo 'make coverage   which lines the tests run, here and in the commands and ranks that they start'
	@echo 'make fuzz    try it on mutants of all that it reads; MINUTES=30 SEED=7 chooses'
	@echo 'make check   ruff, mypy --strict, import-linter'
	@echo 'make docs    write man/ and completions/ anew from the command line'
	@echo 'make site    build docs/ as a site, dist/site/index.html'
	@echo 'make wheel   build dist/ccctl-….whl, with the loops compiled'
	@echo 'make clean   remove .venv, out/, dist/ and every cache'

run:
	@.ci/venv
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/first_run.sh out

# The files whose tests have a marker; to collect all others once more would take a while.
marked = $$(grep -rlE 'mark\.($(1))\b' --include='test_*.py' tests)
long = $$(grep -rlE 'mark\.long\b|chessboard\(' --include='test_*.py' tests)

# What starts ranks or hosts waits for most of its time, so it runs beside all else, file by file, the commands
# first, which take longest; its output comes after that of the others. What measures comes last, alone. All of it
# runs, whatever fails. A worker more than cores uses the time in which another waits for a command.
test:
	@.ci/venv dev
ifeq ($(ARGS),)
	@failed=; output=$$(mktemp); \
	$(PYTEST) -n $$(nproc) --dist loadfile --no-loadscope-reorder \
	  -m '(mpi or netns) and not alone and not long' $(call marked,mpi|netns) >$$output 2>&1 & beside=$$!; \
	trap 'kill $$beside 2>/dev/null; rm -f $$output' EXIT; trap 'exit 130' INT TERM; \
	$(PYTEST) -n $$(($$(nproc) + 1)) --dist worksteal -m 'not mpi and not netns and not long' || failed=yes; \
	wait $$beside || failed=yes; \
	cat $$output; \
	$(PYTEST) -m 'alone and not long' $(call marked,alone) || failed=yes; \
	echo 'left out: what is marked long; make test-long runs it'; \
	[ -z "$$failed" ]
else
	$(PYTEST) $(ARGS)
endif

# Property tests once more with sixteen times the examples; what starts ranks or hosts one at a time, as most of it
# reads rates.
test-long:
	@.ci/venv dev
	@failed=; \
	CCCTL_TEST_EXAMPLES=4 $(PYTEST) -n $$(nproc) --dist worksteal -m 'hypothesis and not mpi and not netns and not long' \
	  $$(grep -rl '^@given' --include='test_*.py' tests) || failed=yes; \
	$(PYTEST) -n $$(nproc) --dist worksteal -m 'long and not (mpi or netns or alone)' $(long) || failed=yes; \
	$(PYTEST) -m 'long and (mpi or netns or alone)' $(long) || failed=yes; \
	[ -z "$$failed" ]

gpu:
	@.ci/venv gpu
	$(BIN)/python -P benchmarks/gpu_report.py

papers:
	@.ci/venv dev
	$(BIN)/python -P benchmarks/papers.py $(ARGS)

# Python sees no line of a compiled loop: a third run has it carry the loops out itself. Slow tests give up there.
coverage:
	@.ci/venv dev
	$(BIN)/coverage erase
	-$(COVERED) -n $$(nproc) --dist worksteal -m 'not mpi and not netns'
	-$(COVERED) -n $$(nproc) --dist loadfile -m '(mpi or netns) and not alone'
	-$(COVERED) -m alone
	-NUMBA_DISABLE_JIT=1 $(COVERED) -n $$(nproc) --dist worksteal --deselect tests/synth/kernels/test_compiled.py tests/synth
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

# Findings are written to tests/fuzz/findings, where make test replays them.
fuzz:
	@.ci/venv dev
	$(BIN)/python -P tests/fuzz/campaign.py --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

check:
	@.ci/venv dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs:
	@.ci/venv dev
	$(BIN)/python -P -m ccctl.docs.manpages man
	$(BIN)/python -P -m ccctl.docs.completions completions

# Strict: a page outside the navigation, or a link or an anchor that leads nowhere, is an error.
site:
	@.ci/venv dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -P -m mkdocs build --quiet
	@echo dist/site/index.html

# Whose versions of Python and numba are those of .venv compiles no loop; others compile them as they need them.
wheel:
	@.ci/venv
	@echo 'compiling loops: two or three minutes on two cores'
	$(BIN)/python -P -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf .venv out dist synth/kernels/loops .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
