#!/usr/bin/env bash
# Checks whether a test fails when a line is broken: gremlins breaks the operators of a package one by one
# (tools/gremlins.yaml says how) and runs the package's tests each time. Without arguments it does so for all packages
# that docs/testing.md has figures of, which takes most of a day:
#
#	bash tools/mutants.sh [directory of a package ...]
#
# To share the work between machines, give each a part of the source files, here the second of three:
#
#	MUTANTS_SHARD=2/3 bash tools/mutants.sh ./worker
#
# The sums of the parts' figures are those of the package.
set -euo pipefail
cd "$(dirname "$0")/.."

# What gremlins passes on to the tests. Cached results, vet and the linker's tables would say nothing of a mutant.
export GOWORK=off GOFLAGS='-short -count=1 -vet=off -ldflags=-w' WORKQUEUE_STRESS=20ms

shard=${MUTANTS_SHARD:-1/1}
part=${shard%/*} parts=${shard#*/}
[[ $shard =~ ^[0-9]+/[0-9]+$ && $part -ge 1 && $part -le $parts ]] || { echo "MUTANTS_SHARD=$shard, want 2/3 or the like" >&2; exit 2; }

# others prints the source files of a package that are not in this part, the largest dealt out first.
others() {
	find "$1" -maxdepth 1 -name '*.go' ! -name '*_test.go' -printf '%s %f\n' | sort -rn |
		awk -v part="$part" -v parts="$parts" '(NR - 1) % parts != part - 1 { print $2 }'
}

[ $# -gt 0 ] || set -- . internal/gate internal/keytable internal/slotheap priorityqueue worker prom
for package; do
	# A mutant may take this many times as long as the tests of that directory and all below it.
	patience=5
	[ "$package" != . ] || patience=1
	exclude=(--exclude-files /) # The files of packages below this one.
	for file in $(others "$package"); do
		exclude+=(--exclude-files "^${file//./\\.}\$")
	done
	echo "== $package, part $shard"
	go tool -modfile=tools/go.mod gremlins unleash --config tools/gremlins.yaml \
		--timeout-coefficient "$patience" "${exclude[@]}" "./$package"
done
