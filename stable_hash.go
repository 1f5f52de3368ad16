package workqueue

import "github.com/keyedqueue/workqueue/internal/stablehash"

// StableHash returns a hash of keys of type T that is the same in every process and version of a program, and that never
// changes. It is for dividing keys among processes, and for moments within a period. T can have strings, numbers, booleans,
// arrays and structs of these; for another type StableHash returns an error that names what it cannot hash. The returned
// function may be called by many goroutines at once, and allocates nothing.
func StableHash[T comparable]() (func(key T) uint64, error) {
	h, err := stablehash.New[T]()
	if err != nil {
		return nil, err
	}
	return h.Hash, nil
}
