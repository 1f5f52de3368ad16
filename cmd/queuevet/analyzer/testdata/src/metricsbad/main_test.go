package main

import (
	"testing"

	_ "github.com/keyedqueue/workqueue/prom"
)

// What a test imports does not register the program's metrics.
func TestMain(*testing.M) {}
