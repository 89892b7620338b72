# Quorate. `make run` and `make test` are all one needs; the other targets are their parts and their kin.
# Build outputs and the compiled RocksDB are kept under QUORATE_CACHE_DIR (~/.cache/quorate), for every checkout.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

export QUORATE_CACHE_DIR ?= $(HOME)/.cache/quorate
QUORATE_TARGET_DIR ?= $(QUORATE_CACHE_DIR)/target
export CARGO_TARGET_DIR ?= $(QUORATE_TARGET_DIR)
# librocksdb is compiled once a machine, not once for every profile.
export ROCKSDB_LIB_DIR ?= $(QUORATE_CACHE_DIR)/rocksdb
export ROCKSDB_STATIC := 1

# What `quorate dev` is given, as in `make run ARGS=--port-offset=1000`.
ARGS ?=

.PHONY: run release newcomer test crates seeds beside nightly verify fix bench acceptance redrive chaos chaos-runs pauses changes simulate planted upgrade fuzz soak powerloss attacks interop suites browser chart image k8s-e2e peer peer-stop deps rocksdb build measures

# A three-node cluster on loopback: AMQP 5672-5674, HTTP 15672-15674. Ctrl-C stops it.
run: deps
	@.ci/rocksdb $(BUILD_RUN) --keep-going
	$(BUILD_RUN)
	exec "$(CARGO_TARGET_DIR)/quick/quorate" dev $(ARGS)

BUILD_RUN := cargo build --profile quick --package quorate

# The binary as it is packaged: with link-time optimization, which takes some minutes more.
release: deps rocksdb
	cargo build --release --package quorate

# How long a newcomer waits: a new clone and an empty cache, until three nodes are ready and README's first program has run.
newcomer:
	.ci/newcomer

# The tests of each floor and of real clusters. Beside them, since they mostly wait, runs all that takes a process of its own
# for long: a simulation, chaos, a client, the HTTP API and the commands of the documents, the web page. What these say comes
# when they have ended. `make nightly` has the rest.
test: build
	@.ci/deps chaos && .ci/deps interop && .ci/deps browser
	$(MAKE) --no-print-directory --keep-going --jobs=2 crates beside

# The tests of all crates, each with its time. Most of them wait for clusters most of the time, so more run than there are
# processors.
crates: build
	RUST_TEST_THREADS=$$((3 * $$(nproc))) $(TIMED) cargo test --workspace --no-fail-fast

# A simulation of some seeds, and chaos of two.
seeds: build
	$(TIMED) cargo test --workspace --no-fail-fast --test simulation --test chaos -- --include-ignored

beside: build
	@log=$$(mktemp) && trap 'rm -f "$$log"' EXIT && failed=0; \
	  $(MAKE) --no-print-directory --keep-going --jobs=1 seeds interop browser CLIENTS="pika management docs" \
	    >"$$log" 2>&1 || failed=$$?; \
	  cat "$$log"; exit $$failed

# Cargo's variable for the program that runs test binaries.
TIMED = env -u MAKEFLAGS CARGO_TARGET_$(shell rustc -vV | awk '/^host:/ { print toupper($$2) }' | tr - _)_RUNNER="$(CURDIR)/.ci/timed"

# Everything that there is, in some hours, and a table: NIGHT="acceptance upgrade" picks steps by words of their names.
NIGHT ?=
nightly:
	.ci/nightly $(NIGHT)

# The binary and all tests in one go, so that both have their dependencies with the same features. For the same reason tests
# of one crate are run as tests of the workspace: with --package, cargo would compile the dependencies again, with fewer.
build: deps rocksdb
	cargo build --workspace --bins --tests

# pika, aio-pika, amqplib, amqp091-go and Celery, what management tools ask, the dashboard, and the commands of README and docs, against
# clusters of three nodes.
CLIENTS ?= pika aio_pika amqplib amqp091 celery management dashboard docs
interop: build
	@.ci/deps interop
	cluster-tests/interop/run.sh install $(CLIENTS)
	cargo test --workspace --test interop --no-fail-fast -- --ignored --exact $(CLIENTS)

# The tests of rabbitmqadmin 2 and of its client library, which these crates bring along.
suites: build
	@.ci/deps interop
	cluster-tests/interop/run.sh install http_client rabbitmqadmin
	cargo test --workspace --test interop --no-fail-fast -- --ignored --exact http_client rabbitmqadmin

# The web page in a headless Chromium against a cluster of three nodes. Leaves screenshots.
browser: build
	@.ci/deps browser
	cluster-tests/browser/run.sh install
	cargo test --workspace --test browser -- --ignored

# Read-only checks. The fuzz targets are a workspace of their own.
FUZZ := --manifest-path cluster-tests/fuzz/Cargo.toml
verify: deps rocksdb
	cargo fmt --all --check
	cargo fmt $(FUZZ) --check
	cargo clippy --workspace --all-targets -- --deny warnings
	cargo clippy $(FUZZ) --all-features -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps

# Rewrites what can be rewritten.
fix: deps rocksdb
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	cargo fmt --all
	cargo fmt $(FUZZ)

# Faults from a seed on a cluster under load, and a verdict: make chaos ARGS="--seed 7 --duration 10m".
chaos: release
	@.ci/deps chaos
	QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" \
	  cargo run --package quorate-cluster-tests --bin chaos -- $(ARGS)

# Whether pauses of confirms keep to their bounds: crashes, hangs and losses of a majority of leaders, and faults
# of followers, one at a time (cluster-tests/chaos/gaps.rs). 20 minutes have some 80 faults.
PAUSES ?= --duration 20m
pauses: ARGS = $(PAUSES) --alone --bounds \
  --faults kill-leader,kill-node,pause-long,isolate-leader,isolate-node,cut-link,stuck-disk
pauses: chaos

# The same of what operators do: nodes that join, leave, lose their disks, are drained, move and are restarted.
CHANGES ?= --duration 20m
changes: ARGS = $(CHANGES) --alone --bounds \
  --faults scale-up,scale-down,lost-disk,drain,new-address,rolling-restart
changes: chaos

# So many runs in a row, each of a new seed and as long as CI's; the first failure ends them.
RUNS ?= 20
chaos-runs: release
	@.ci/deps chaos
	cargo build --package quorate-cluster-tests --bin chaos
	first=$$(date +%s); for seed in $$(seq $$first $$((first + $(RUNS) - 1))); do \
	  QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" "$(CARGO_TARGET_DIR)/debug/chaos" \
	    --seed $$seed --duration 80s 2>/dev/null || exit 1; done

# A rolling upgrade under load and its roll-back, from the last commit whose binary knows machine version 1 only; then
# upgrades and roll-backs again and again, whose pauses of confirms keep to their bound.
BEFORE ?= d0be689
UPGRADES ?= --duration 5m
upgrade: build
	@.ci/deps chaos
	before="$(QUORATE_CACHE_DIR)/before-$(BEFORE)"; \
	if ! [ -x "$$before/debug/quorate" ]; then \
	  git worktree prune; git worktree add --force --detach "$$before/source" $(BEFORE); \
	  cargo build --manifest-path "$$before/source/Cargo.toml" --target-dir "$$before" --bin quorate; \
	  git worktree remove --force "$$before/source"; \
	fi; \
	QUORATE_BIN_BEFORE="$$before/debug/quorate" \
	  cargo test --package quorate-cluster-tests --test cluster -- --ignored rolling_upgrade; \
	cargo run --package quorate-cluster-tests --bin chaos -- \
	  $(UPGRADES) --alone --bounds --faults rolling-upgrade --before "$$before/debug/quorate"

# Look-ups of routes; the table of figures, with RabbitMQ beside it where `make peer` has installed it.
bench: release
	cargo test --release --package quorate-catalog --test timing -- --ignored --nocapture
	QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" \
	  cargo test --package quorate-cluster-tests --test bench -- --ignored --nocapture

# RabbitMQ 4.3 as a cluster of three nodes on loopback, installed in a folder of its own; prints its addresses. For `make
# bench`, which starts and stops it by itself, and `chaos --against` with cluster-tests/faults/rabbitmq. Needs root and
# apt. cluster-tests/peer/rabbitmq.sh has more verbs, as to delete its data (wipe) or all of it (remove).
peer:
	cluster-tests/peer/rabbitmq.sh install
	cluster-tests/peer/rabbitmq.sh start
	cluster-tests/peer/rabbitmq.sh uris

peer-stop:
	cluster-tests/peer/rabbitmq.sh stop

# What was asked of the release build at the sizes that were asked for: bounds and sizes are in
# cluster-tests/harness/scale.rs. Wants the machine for itself. ACCEPTANCE picks tests by their names.
ACCEPTANCE ?= beside:: failover:: letter_chain:: backlog:: many_queues::many policies::pol_04_pol_10 dead_letters::q_40 \
  topologies::q_40 expiry:: partitions:: body_memory::large large_bodies::
acceptance: export QUORATE_TEST_ACCEPTANCE := 1
acceptance: export QUORATE_TEST_TABLE := $(QUORATE_CACHE_DIR)/acceptance.txt
acceptance: release
	rm -f "$(QUORATE_TEST_TABLE)"
	passed=0; QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" \
	  cargo test --package quorate-cluster-tests --test cluster -- --include-ignored --test-threads 1 $(ACCEPTANCE) || passed=$$?; \
	  cat "$(QUORATE_TEST_TABLE)"; exit $$passed

# A million dead letters are put back under load while a leader is killed every ten seconds: each once.
redrive: export QUORATE_TEST_ACCEPTANCE := 1
redrive: release
	QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" \
	  cargo test --package quorate-cluster-tests --test cluster -- --ignored --nocapture redrive::

# Simulations of whole clusters with these seeds (CI runs 0..40): 2,000 take about half an hour. The state of each Raft
# node is checked at each access to it.
SEEDS ?= 0..2000
simulate: deps rocksdb
	QUORATE_SIMULATION_SEEDS="$(SEEDS)" cargo test --config profile.dev.package.validit.debug-assertions=true --workspace --test simulation -- --include-ignored --nocapture

# Whether simulations find the errors that are planted in a special build. PLANTED picks some by
# their names in src/types/planted.rs, or "turn N" two of them.
PLANTED ?=
planted: deps rocksdb
	$(if $(PLANTED),QUORATE_PLANTED_BUGS="$(PLANTED)") cargo test --workspace \
	  --features quorate-broker/planted-bugs --test simulation -- --nocapture planted

# Sizes of files and functions, comments, tests and import cycles of every crate: two tables.
measures:
	@python3 cluster-tests/measures.py

# Each fuzz target for FUZZ_SECONDS.
FUZZ_SECONDS ?= 60
fuzz: deps rocksdb
	cluster-tests/fuzz/run.sh $(FUZZ_SECONDS)

# Full speed with the log purged as eagerly as settings allow, for SOAK_SECONDS, and purges and installs
# with a follower that is always behind, in one process (openraft issue 2116).
SOAK_SECONDS ?= 1200
soak: release
	QUORATE_SOAK_S=$(SOAK_SECONDS) cargo test --package quorate-raft --test cluster -- --ignored
	QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" QUORATE_TEST_SOAK_SECONDS=$(SOAK_SECONDS) \
	  cargo test --package quorate-cluster-tests --test soak -- --ignored --nocapture

# Cuts the power of the nodes' disks POWER_LOSSES times under load, and shows that a broker that does not sync is
# caught. Needs root, loop devices and ext4; says so and passes where they are missing.
POWER_LOSSES ?= 25
powerloss: build
	QUORATE_TEST_POWER_LOSSES=$(POWER_LOSSES) \
	  cargo test --package quorate-cluster-tests --test cluster -- power_loss --nocapture

# Each attack of the security review at its full size on a node of 512 MiB, and what other clients notice of it.
attacks: release
	QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" QUORATE_TEST_ATTACKS=full \
	  cargo test --package quorate-cluster-tests --test cluster -- attacks:: --test-threads 1 --nocapture

# The Helm chart without a cluster; ARGS=--update writes what is made from other files. Needs Go and Python the first time.
chart:
	@helm/check.sh $(ARGS)

# The image, built from the Dockerfile with buildah on base images that are made here, and checked. Needs root.
image:
	@.ci/deps image
	cluster-tests/kubernetes/image.sh

# The chart on a real Kubernetes of three nodes on this machine, under load and faults; about ten minutes, and 25 more on
# a new machine, where Kubernetes is compiled. Needs root, Go and apt. CLUSTER names another script that makes the cluster
# than cluster-tests/kubernetes/cluster.sh.
k8s-e2e: release
	@.ci/deps chaos
	cargo build --package quorate-cluster-tests --bin chaos
	QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" CHAOS="$(CARGO_TARGET_DIR)/debug/chaos" \
	  cluster-tests/kubernetes/e2e.sh

# What the build needs and the machine lacks: a C++ compiler, libclang.
deps:
	@.ci/deps

rocksdb: deps
	@.ci/rocksdb
