package main

import (
	"testing"
	"testing/synctest"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
	"github.com/keyedqueue/workqueue/examples/internal/readme"
)

// Without ownwrites there are two ConfigMaps, with it one.
func TestRun(t *testing.T) {
	for command, without := range map[string]bool{"go run ./examples/lag -without": true,
		"go run ./examples/lag": false} {
		t.Run(command, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out locked.Buffer
				if err := run(t.Context(), without, &out); err != nil {
					t.Fatal(err)
				}
				if got, want := out.Take(), readme.Output(t, command); got != want {
					t.Errorf("printed:\n%s\nREADME.md shows:\n%s", got, want)
				}
			})
		})
	}
}
