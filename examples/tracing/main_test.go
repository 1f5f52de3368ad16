package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/keyedqueue/workqueue/examples/internal/readme"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if want := readme.Output(t, "go run ./examples/tracing"); out.String() != want {
			t.Errorf("printed:\n%s\nREADME.md shows:\n%s", out.String(), want)
		}
	})
}
