# The jobs that scripts/test runs. Each has a name, the names of the jobs that must finish first, and its commands.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

# Filters for the names of tests: on_each selects the tests that run on every server, and on_one those that run only on
# redis-7.0.
on_each := every_server:: hostile::
on_one  := project

target  := $(abspath $(or $(CARGO_TARGET_DIR),target))
logs    := target/test
# The names in a table of scripts/servers. Without --everywhere, only the servers with a star are used.
names    = $(shell sed -nE "/^$(1)='/,/^'/s/^([a-z0-9.-]+) +[0-9.]+$(2).*/\1/p" scripts/servers)
servers := $(call names,supported,$(if $(EVERYWHERE),,\*))
targets := $(filter musl-% arm64-%,$(call names,others))
clients := $(patsubst clients/%/tests,client-%,$(wildcard clients/*/tests))
oldest  := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Use more threads than cores, because the tests spend most of their time waiting for servers.
export RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 2)))
export MODULE            ?= $(target)/release/libredis_cell.so
export REDIS_RS          ?= $(target)/debug/examples/redis_rs
export FUZZ_CALLS        ?= 20000
ifdef EVERYWHERE
on-redis-7.0: export SOAK_ROUNDS := 200000
on-redis-7.0: export FAIRNESS_CALLS := 30000
on-redis-7.0: export FUZZ_CALLS := 200000
endif

# Each job begins with this code, which redirects the job's output to a log. When the job ends, the code prints the last
# line of the log, or the whole log if the job has failed.
define job
exec 3>&1 >$(logs)/$@.log 2>&1
trap 'if (($$?)); then printf "\n======== %s\n" $(logs)/$@.log; cat $(logs)/$@.log;
    else echo "$@: $$(grep . $(logs)/$@.log | tail -n 1 | grep . || echo passed)"; fi >&3' EXIT
unset MAKEFLAGS MFLAGS
endef
# Stop tests after an hour, because a test must then be stuck: the longest run takes five minutes on two busy cores.
limit  = timeout --foreground 1h
tests  = $(limit) $(logs)/servers --include-ignored
# More workers than cores, because most of these tests wait.
pytest = /usr/bin/pytest -n 6 --dist loadgroup tests/examples
# Sets SERVER to the executable of the server that is called $(1) in scripts/servers.
at     = SERVER=$$(echo $(CURDIR)/target/servers/$(1)/*-server)

# Jobs that do not need the compiled tests come first, because make returns to a job that has to wait only after it has
# started all later ones. Otherwise, the longest jobs come first, so that no core is idle at the end. `all` lists the
# jobs themselves, because make would start the jobs of a group such as `clients` later.
for_clients   := examples $(clients) $(filter-out recipes-redis-7.0,$(servers:%=recipes-%)) \
    $(if $(EVERYWHERE),debian)
for_module    := programs $(on_one) $(servers:%=on-%) rule shellcheck format
for_platforms := $(targets:%=for-%) lints memcheck zizmor
quick:     here rule format
clients:   $(for_clients)
module:    $(for_module)
platforms: $(for_platforms)
all:       $(if $(EVERYWHERE),$(for_platforms)) $(for_clients) $(for_module)
.PHONY: quick all clients module platforms compiled release servers libraries here rule $(on_one) $(clients) \
    programs examples debian lints memcheck zizmor format shellcheck

# Compiles the tests with clippy-driver, which is rustc with clippy's lints. Other jobs run the tests through links in
# target/test, not with cargo: cargo 1.88 holds its lock while tests run, but some tests call cargo themselves.
compiled:
	@$(job)
	export RUSTC_WORKSPACE_WRAPPER=clippy-driver
	clippy-driver --version || { echo "left out: the lints (this Rust has no clippy)"; RUSTC_WORKSPACE_WRAPPER=; }
	cargo test --locked --no-run
	sed -nE 's/^ +Executable .*\((.*\/([a-z_]+)-[0-9a-f]+)\)$$/\1 \2/p' $(logs)/$@.log |
	    while read -r file name; do ln -sf "$$(realpath "$$file")" $(logs)/$$name; done

release:
	@$(job)
	cargo build --release --locked

# If a server cannot be downloaded, its tests are left out; with --everywhere, they fail.
servers:
	@$(job)
	scripts/servers lua $(servers) $(if $(EVERYWHERE),$(targets)) || true

# Downloads the libraries that the examples use, from PyPI and npm.
libraries:
	@$(job)
	/usr/bin/python3 tests/examples/packages.py

here: compiled release
	@$(job)
	$(limit) $(logs)/servers

rule: compiled
	@$(job)
	$(logs)/redis_cell

# Each server gets its own fuzz seed. If a server's version is not the one in scripts/servers, a failure may be due to
# that version rather than to this commit, so it counts only with --everywhere.
on-%: compiled release servers
	@$(job)
	export $(call at,$*) FUZZ_SEED=$$(cksum <<<$* | cut -d ' ' -f 1)
	[[ -e $$SERVER || $${EVERYWHERE-} ]] || { grep "left out: $* " $(logs)/servers.log; exit; }
	$(tests) $(on_each) || {
	    [[ ! $${EVERYWHERE-} ]] && grep -q "another version of $*:" $(logs)/servers.log || exit 1
	    echo "left out: the failures on $*, which is not the version that scripts/servers expects"
	}

# Tests the recipes' Lua scripts and functions on the other servers. The job `examples` tests them on redis-7.0.
recipes-%: release servers libraries
	@$(job)
	export $(call at,$*)
	[[ -e $$SERVER || $${EVERYWHERE-} ]] || { grep "left out: $* " $(logs)/servers.log; exit; }
	/usr/bin/pytest tests/examples/recipes --ignore=tests/examples/recipes/test_{recipe_programs,protect}.py

$(on_one): compiled release servers
	@$(job)
	$(call at,redis-7.0) $(tests) $@::

# The programs in docs/clients, one of which is in Rust.
programs: compiled release servers libraries
	@$(job)
	$(call at,redis-7.0) $(pytest)/test_programs.py

# All other tests of what users copy. They need no Rust, so they run while the tests in Rust are compiled.
examples: release servers libraries
	@$(job)
	$(call at,redis-7.0) $(pytest) --ignore=tests/examples/test_programs.py

# Tests the packages in clients/. For Node.js, prints the results in pytest's format, which scripts/test can count.
client-python: release servers libraries
	@$(job)
	$(call at,redis-7.0) $(limit) /usr/bin/pytest -n 2 clients/python/tests

client-node: release servers libraries
	@$(job)
	eval "$$(/usr/bin/python3 tests/examples/packages.py)"
	status=0
	$(call at,redis-7.0) $(limit) node --test --test-concurrency=4 --test-timeout=300000 --test-reporter=tap \
	    'clients/node/tests/*.test.*js' || status=$$?
	awk '/^# (pass|fail|skipped|duration_ms) / { of[$$2] = $$3 } END { printf "%d passed, %d failed, %d skipped in %ds\n",
	    of["pass"], of["fail"], of["skipped"], of["duration_ms"] / 1000; exit !of["pass"] }' $(logs)/$@.log
	exit $$status

# Tests the examples with the libraries in Debian's packages.
debian: compiled release servers libraries
	@$(job)
	$(call at,redis-7.0) LIBRARIES=debian $(pytest)

# Tests the library for another platform, on a server for that platform.
for-%: compiled servers
	@$(job)
	settings=$$(scripts/test.d/target target/servers/$*/*-server)
	env $$settings $(tests) $(on_each)

# Runs all lints of the oldest supported Rust version. Every lint is an error, because the lints of an old version no
# longer change.
lints: compiled
	@$(job)
	rustup toolchain install $(oldest) --profile minimal --component clippy
	cargo +$(oldest) clippy --locked --quiet --all-targets -- --deny warnings

# Runs a single test under valgrind, to check that scripts/memcheck works.
memcheck: compiled
	@$(job)
	scripts/memcheck reply::both_protocols

# Checks the security of the GitHub workflows. Every finding is an error.
zizmor:
	@$(job)
	[[ -e target/zizmor/zizmor-1.32.0.dist-info ]] || /usr/bin/python3 -m pip install --quiet --no-compile \
	    --root-user-action ignore --target target/zizmor zizmor==1.32.0
	target/zizmor/bin/zizmor --offline --pedantic --no-progress .github

format:
	@$(job)
	cargo fmt --check

shellcheck:
	@$(job)
	grep -rlE '^#!.*sh$$|^# shellcheck shell' scripts .ci | xargs shellcheck
