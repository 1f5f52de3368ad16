#!/usr/bin/env bash
# Tries whether a test fails when a line is broken: gremlins breaks them one by one (tools/gremlins.yaml says how)
# and runs the tests of the package each time. Without arguments for the packages that docs/testing.md has figures of:
#
#	bash tools/mutants.sh [directory of a package ...]
set -euo pipefail
cd "$(dirname "$0")/.."
# What gremlins passes on to the tests. Cached results, vet and the linker's tables would say nothing of a mutant.
export GOWORK=off GOFLAGS='-short -count=1 -vet=off -ldflags=-w' WORKQUEUE_STRESS=20ms
[ $# -gt 0 ] || set -- . internal/keytable internal/slotheap
for package; do
	# A mutant may take this many times as long as the tests of that directory and all below it.
	patience=5
	[ "$package" != . ] || patience=1
	go tool -modfile=tools/go.mod gremlins unleash --config tools/gremlins.yaml --timeout-coefficient "$patience" "./$package"
done
