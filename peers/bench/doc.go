// Package bench measures this library beside client-go's queue and controller-runtime's priority queue, in
// one run and behind one interface. Its benchmarks have names that benchstat can pivot:
//
//	go test -run '^$' -bench Cycle -count 11 ./bench | tee raw
//	go run golang.org/x/perf/cmd/benchstat@latest -col /impl raw
//
// With -count the implementations take turns, so that what else the machine does falls on all of them.
package bench
