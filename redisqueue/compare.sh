#!/usr/bin/env bash
# Compares the server's CPU and memory a key with those of an older commit: compare.sh COMMIT [PAIRS [BENCHMARK]].
# Runs both in turn, ten times unless given, and prints the medians. BENCHMARK is a -bench pattern.
set -euo pipefail
cd "$(dirname "$0")"
commit=$1 pairs=${2:-10} pattern=${3:-Cycle}
bash ../tools/install-server.sh redis-server
work=$(mktemp -d)
trap 'git worktree remove --force "$work/old"; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/old" "$commit"
cp bench_test.go "$work/old/redisqueue/" # Both measure in the same way.
go test -c -o "$work/new.test" .
(cd "$work/old/redisqueue" && go test -c -o "$work/old.test" .)
for ((i = 0; i < pairs; i++)); do
	for side in old new; do
		"$work/$side.test" -test.run '^$' -test.bench "$pattern" -test.benchtime 100000x >>"$work/$side.txt"
	done
done
awk '
	function median(list, n,   i, j, v) { # of n values with blanks between them
		split(list, v, " ")
		for (i = 2; i <= n; i++)
			for (j = i; j > 1 && v[j - 1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
		return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
	}
	/^Benchmark/ {
		for (i = 5; i < NF; i += 2) {
			row = $1 " " $(i + 1)
			k = FILENAME " " row
			if (FILENAME ~ /old.txt$/ && !(row in n)) { rows[++count] = row; n[row] = 0 }
			value[k, ++seen[k]] = $i
		}
	}
	END {
		printf "%-58s %-12s %10s %10s %8s\n", "", "", "old", "new", "pairs"
		for (r = 1; r <= count; r++) {
			row = rows[r]; old = new = ratio = ""
			m = seen[ARGV[1] " " row]
			for (i = 1; i <= m; i++) {
				a = value[ARGV[1] " " row, i]; b = value[ARGV[2] " " row, i]
				old = old a " "; new = new b " "; ratio = ratio (a ? b / a : 0) " "
			}
			split(row, part, " ")
			printf "%-58s %-12s %10.2f %10.2f %+7.1f%%\n", part[1], part[2], median(old, m), median(new, m), 100 * (median(ratio, m) - 1)
		}
	}' "$work/old.txt" "$work/new.txt"
