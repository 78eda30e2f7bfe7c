# The jobs of scripts/test: a name, the jobs that come first, and the commands.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

# The folders of tests/ whose tests run on each server, and those whose tests run on one.
on_each := every_server:: hostile::
on_one  := one_server

target  := $(abspath $(or $(CARGO_TARGET_DIR),target))
logs    := target/test
# The names in the tables of scripts/servers; a star marks the usual servers.
names    = $(shell sed -nE "/^$(1)='/,/^'/s/^([a-z0-9.-]+) +[0-9.]+$(2).*/\1/p" scripts/servers)
servers := $(call names,supported,$(if $(EVERYWHERE),,\*))
targets := $(filter musl-% arm64-%,$(call names,others))
oldest  := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# More threads than cores: tests wait for servers more than they compute.
export RUST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 2)))
export MODULE            ?= $(target)/release/libredis_cell.so
export REDIS_RS          ?= $(target)/debug/examples/redis_rs
export SOAK_SECONDS      ?= 5
export FAIRNESS_SECONDS  ?= 1
export FUZZ_CALLS        ?= 20000
ifdef EVERYWHERE
on-redis-7.0: export SOAK_SECONDS := 60
on-redis-7.0: export FAIRNESS_SECONDS := 2
on-redis-7.0: export FUZZ_CALLS := 200000
endif

# The first line of each job: its output goes to its log. At its end, the log's last line is printed; after a failure,
# all.
define job
exec 3>&1 >$(logs)/$@.log 2>&1
trap 'if (($$?)); then printf "\n======== %s\n" $(logs)/$@.log; cat $(logs)/$@.log;
    else echo "$@: $$(grep . $(logs)/$@.log | tail -n 1 | grep . || echo passed)"; fi >&3' EXIT
unset MAKEFLAGS MFLAGS
endef
tests  = $(logs)/servers --include-ignored
pytest = /usr/bin/pytest -n 4 --dist loadgroup tests/examples
# The variable SERVER, for a server that is called $(1) in scripts/servers.
at     = SERVER=$$(echo $(CURDIR)/target/servers/$(1)/*-server)

# The longest jobs come first, so that no core is idle at the end.
quick:      here rule format
all:        examples $(on_one) $(servers:%=on-%) rule shellcheck format
everywhere: $(targets:%=for-%) all debian lints memcheck
.PHONY: quick all everywhere here rule format examples $(on_one) shellcheck debian lints memcheck \
    compiled release servers fetched

# The compiler is clippy-driver, which is rustc and also checks the lints that Cargo.toml denies. The tests run without
# cargo, through these links: cargo 1.88 has been seen to lock the crates while tests ran, and tests call cargo.
compiled:
	@$(job)
	export RUSTC_WORKSPACE_WRAPPER=clippy-driver
	clippy-driver --version || { echo "left out: the lints (this Rust has no clippy)"; RUSTC_WORKSPACE_WRAPPER=; }
	cargo test --locked --no-run
	sed -nE 's/^ +Executable .*\((.*\/([a-z_]+)-[0-9a-f]+)\)$$/\1 \2/p' $(logs)/$@.log |
	    while read -r file name; do ln -s "$$(realpath "$$file")" $(logs)/$$name; done

release:
	@$(job)
	cargo build --release --locked

# Succeeds if a server cannot be fetched: its tests are left out, and with --everywhere they fail.
servers:
	@$(job)
	scripts/servers $(servers) || true

fetched: servers
	@$(job)
	scripts/servers $(targets)

here: compiled release
	@$(job)
	$(logs)/servers

rule: compiled
	@$(job)
	$(logs)/redis_cell

# Each server gets other attacks. If the origin has a newer version than scripts/servers expects, its failures are no
# fault of this commit: only --everywhere counts them.
on-%: compiled release servers
	@$(job)
	export $(call at,$*) FUZZ_SEED=$$(cksum <<<$* | cut -d ' ' -f 1)
	[[ -e $$SERVER || $${EVERYWHERE-} ]] || exit 0
	$(tests) $(on_each) || {
	    [[ ! $${EVERYWHERE-} ]] && grep -q "another version of $*:" $(logs)/servers.log
	    echo "left out: the failures on $*, which has another version than scripts/servers expects"
	}

$(on_one): compiled release servers
	@$(job)
	$(call at,redis-7.0) $(tests) $@::

examples: compiled release servers
	@$(job)
	$(call at,redis-7.0) $(pytest)

# The examples with Debian's own libraries.
debian: compiled release servers
	@$(job)
	$(call at,redis-7.0) LIBRARIES=debian $(pytest)

# A server for another platform, with a library for it.
for-%: compiled fetched
	@$(job)
	settings=$$(scripts/test.d/target target/servers/$*/*-server)
	env $$settings $(tests) $(on_each)

# All lints of the oldest Rust, which do not change.
lints: compiled
	@$(job)
	cargo +$(oldest) clippy --locked --quiet --all-targets -- --deny warnings

# A part of scripts/memcheck, which must find a server's report without an error.
memcheck: compiled
	@$(job)
	scripts/memcheck reply::both_protocols

format:
	@$(job)
	cargo fmt --check

shellcheck:
	@$(job)
	grep -rlE '^#!.*sh$$|^# shellcheck shell' scripts .ci | xargs shellcheck
