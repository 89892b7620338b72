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

.PHONY: run test verify fix bench fuzz soak attacks interop deps rocksdb build

# A three-node cluster on loopback: AMQP 5672-5674, HTTP 15672-15674. Ctrl-C stops it.
run: deps rocksdb
	cargo build --release --package quorate
	exec "$(CARGO_TARGET_DIR)/release/quorate" dev $(ARGS)

# Every test: of each floor, of real clusters, and with clients that nobody here wrote.
test: build
	cargo test --workspace --no-fail-fast
	$(MAKE) --no-print-directory interop

# The binary and all tests in one go, so that both have their dependencies with the same features.
build: deps rocksdb
	cargo build --workspace --bins --tests

# pika, aio-pika, amqplib, amqp091-go and Celery against a cluster of three nodes.
interop: build
	@.ci/deps interop
	cluster-tests/interop/run.sh install
	cargo test --package quorate-cluster-tests --test interop --no-fail-fast -- --ignored

# Read-only checks.
verify: deps rocksdb
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps

# Rewrites what can be rewritten.
fix: deps rocksdb
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	cargo fmt --all

# Look-ups of routes; the table of figures, with RabbitMQ beside it where ../shared/peer has it installed; then fail-over, many queues, a long backlog.
BENCH_QUEUES ?= 10000
BENCH_BACKLOG ?= 5000000
bench: deps rocksdb
	cargo build --release --package quorate
	cargo test --release --package quorate-catalog --test timing -- --ignored --nocapture
	export QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" QUORATE_TEST_QUEUES=$(BENCH_QUEUES) QUORATE_TEST_BACKLOG=$(BENCH_BACKLOG); \
	  cargo test --package quorate-cluster-tests --test bench -- --ignored --nocapture; \
	  cargo test --package quorate-cluster-tests --test cluster -- failover many_queues backlog

# Each fuzz target for FUZZ_SECONDS.
FUZZ_SECONDS ?= 60
fuzz: deps rocksdb
	cluster-tests/fuzz/run.sh $(FUZZ_SECONDS)

# Full speed with the log purged as eagerly as settings allow, for SOAK_SECONDS (openraft issue 2116).
SOAK_SECONDS ?= 1200
soak: deps rocksdb
	cargo build --release --package quorate
	QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" QUORATE_TEST_SOAK_SECONDS=$(SOAK_SECONDS) \
	  cargo test --package quorate-cluster-tests --test soak -- --ignored --nocapture

# Each attack of the security review at its full size on a node of 512 MiB, and what other clients notice of it.
attacks: deps rocksdb
	cargo build --release --package quorate
	QUORATE_BIN="$(CARGO_TARGET_DIR)/release/quorate" QUORATE_TEST_ATTACKS=full \
	  cargo test --package quorate-cluster-tests --test cluster -- attacks:: --test-threads 1 --nocapture

# What the build needs and the machine lacks: a C++ compiler, libclang.
deps:
	@.ci/deps

rocksdb: deps
	@.ci/rocksdb
