# One-line doors to the project's tasks. Everything sets itself up on Debian 12 as root.
SHELL := /bin/bash
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

setup: ## install what building and testing need and the machine lacks
	@scripts/setup

build: setup ## build the calico binary (development profile)
	@. scripts/env; start=$$(date +%s); cargo build --locked -p calico && echo "built $$CARGO_TARGET_DIR/debug/calico in $$(( $$(date +%s) - start )) s"

release: setup ## build the static release binary
	@. scripts/env; start=$$(date +%s); cargo xtask release && echo "took $$(( $$(date +%s) - start )) s"

demo: build ## build a cluster of three nodes and enforce a NetworkPolicy in it
	@. scripts/env; start=$$(date +%s); "$$CARGO_TARGET_DIR/debug/calico" lab run tests/scenarios/demo.yaml && echo "demo took $$(( $$(date +%s) - start )) s"

test: setup ## run all tests
	@scripts/test

bench: setup ## run the benchmarks of docs/performance.md
	@. scripts/env; bench/run

check: setup ## formatting, lints, direction of dependencies, sizes, generated files
	@. scripts/env; cargo fmt --all --check && cargo clippy --workspace --all-targets --locked -- -D warnings && cargo xtask check-deps && cargo xtask check-tree && cargo xtask check-gen

.PHONY: help setup build release demo test bench check
