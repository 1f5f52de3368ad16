package workqueuetest_test

import (
	"fmt"

	"github.com/keyedqueue/workqueue/workqueuetest"
)

// The cases can be listed, for a document or to choose some of them.
func ExampleCases() {
	for _, c := range workqueuetest.Cases()[:3] {
		fmt.Printf("%s: %s\n", c.Name, c.Promise)
	}
	// Output:
	// Order: Keys come in the order in which they became queued.
	// AddTwice: Add of a queued key does nothing: it comes once, at its old place.
	// AddWhileHeld: A key that is added while a worker holds it is queued again by Done, once.
}
