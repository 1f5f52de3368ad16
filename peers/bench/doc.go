// Package bench measures this library beside client-go's queue and controller-runtime's priority queue, in
// one run and behind one interface. Its benchmarks have names that benchstat can pivot:
//
//	go test -c -o bench.test ./bench
//	for i in {1..11}; do ./bench.test -test.run '^$' -test.bench Cycle; done | tee raw
//	go run golang.org/x/perf/cmd/benchstat@latest -col /impl raw
//
// In each round the implementations take turns, so that what else the machine does falls on all of them.
// (With -count, go test would run one of them eleven times, and then the next.) Directory report does this
// for all benchmarks, and makes docs/performance.md of it.
//
// With -short the sizes that take seconds are left out.
package bench
