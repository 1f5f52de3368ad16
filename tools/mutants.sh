#!/usr/bin/env bash
# Checks whether a test fails when an operator is broken (tools/mutants does the work). Without arguments it checks all
# packages in the table of docs/testing.md, which takes about a quarter of an hour on two processors:
#
#	bash tools/mutants.sh [directory of a package ...]
#
# ONLY='heap.go:53' tries the mutants of one line.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off WORKQUEUE_STRESS=20ms
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
go -C tools build -o "$scratch/mutants" ./mutants

[ $# -gt 0 ] || set -- . internal/gate internal/keytable internal/slotheap priorityqueue worker prom
for package; do
	"$scratch/mutants" -only "${ONLY:-}" "./$package"
done
