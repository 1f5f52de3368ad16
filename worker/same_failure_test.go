package worker

import "testing"

func TestWithinDelay(t *testing.T) {
	for name, c := range map[string]struct {
		due, ended, next int64
		left             int64
		goesOn           bool
	}{
		"during the delay":                      {due: 10, ended: 4, next: 10, left: 6, goesOn: true},
		"during it, and an add has come before": {due: 10, ended: 4, next: 0, left: 6, goesOn: true},
		"as it ends":                            {due: 10, ended: 10, next: 0, left: 0},
		"as it ends, and the queue is slow":     {due: 10, ended: 10, next: 10, left: 0, goesOn: true},
		"afterwards":                            {due: 10, ended: 14, next: 0, left: -4},
		"afterwards, and the queue is slow":     {due: 10, ended: 14, next: 10, left: -4, goesOn: true},
		"afterwards, with another delay":        {due: 10, ended: 14, next: 20, left: -4},
	} {
		if left, goesOn := withinDelay(c.due, c.ended, c.next); int64(left) != c.left || goesOn != c.goesOn {
			t.Errorf("%s: %d is left, it goes on: %v", name, left, goesOn)
		}
	}
}
