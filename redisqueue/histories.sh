#!/usr/bin/env bash
# Runs random crash histories: how many (10,000 unless given) and the seed of the first (1 unless given). So a long run can
# be made in parts: histories.sh 5000 1, histories.sh 5000 5001. The end of the output says how many ran and what
# happened in them; a failure prints its seed and all that handlers did. Takes about 200 ms each on two cores that are idle.
set -euo pipefail
cd "$(dirname "$0")"
bash ../tools/install-server.sh redis-server
WORKQUEUE_HISTORIES=${1:-10000} WORKQUEUE_SEED=${2:-1} go test -v -count=1 -timeout 12h -run '^TestRandomHistories$' . |
	grep -v -e '^=== ' -e '--- PASS: TestRandomHistories/'
