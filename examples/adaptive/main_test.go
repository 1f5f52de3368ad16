package main

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/keyedqueue/workqueue/examples/internal/readme"
)

// TestRun runs the program in virtual time. What it prints has the shape of what README.md shows, and both
// show the same difference. The numbers of README.md are from a real run.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		shown := readme.Output(t, "go run ./examples/adaptive")
		if shape(out.String()) != shape(shown) {
			t.Errorf("printed:\n%s\nREADME.md shows:\n%s", out.String(), shown)
		}
		for name, text := range map[string]string{"the program": out.String(), "README.md": shown} {
			rows := numbers(t, text)
			for i, capacity := range capacities {
				fixed, adaptive := rows[i], rows[len(capacities)+i]
				if fixed.capacity != capacity || adaptive.capacity != capacity {
					t.Fatalf("%s: phase %d is one of capacity %d and %d", name, i, fixed.capacity, adaptive.capacity)
				}
				better := adaptive.p50*2 < fixed.p50 && adaptive.calls*10 > fixed.calls*11
				if i == 2 { // The limiter takes its time to try more workers again.
					better = adaptive.p50 < fixed.p50
				}
				if !better {
					t.Errorf("%s: with %d workers %+v, with an adaptive number %+v", name, mostWorkers, fixed, adaptive)
				}
			}
		}
	})
}

var digits = regexp.MustCompile(` *[0-9]+`)

func shape(text string) string { return digits.ReplaceAllString(text, " N") }

type row struct{ capacity, calls, p50 int }

func numbers(t *testing.T, text string) (rows []row) {
	t.Helper()
	for _, m := range regexp.MustCompile(`handles +(\d+) at once: +(\d+) calls/s, p50 +(\d+) ms`).FindAllStringSubmatch(text, -1) {
		var n [3]int
		for i := range n {
			n[i], _ = strconv.Atoi(m[i+1])
		}
		rows = append(rows, row{n[0], n[1], n[2]})
	}
	if len(rows) != 2*len(capacities) {
		t.Fatalf("%d rows in\n%s", len(rows), text)
	}
	return rows
}
