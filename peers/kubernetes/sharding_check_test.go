package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func logOf(t *testing.T, name, text string, end time.Duration, stops ...stopped) *shardingLog {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := readLog(name, path, end, stops)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Two replicas with a key at once are found: also if one was killed in the middle. What a stopped process
// does is left out.
func TestCheckTwice(t *testing.T) {
	const at100to200 = "start 100 key 1\nsomething else\ndone 200 key 1\n"
	for _, test := range []struct {
		name, other string
		end         time.Duration
		stops       []stopped
		errors      int
	}{
		{"later", "start 200 key 1\ndone 300 key 1\n", 1000, nil, 0},
		{"another key", "start 150 other 1\ndone 160 other 1\n", 1000, nil, 0},
		{"inside", "start 150 key 1\nended 160 key 1\n", 1000, nil, 1},
		{"killed before", "start 50 key 1\n", 90, nil, 0},
		{"killed meanwhile", "start 50 key 1\n", 110, nil, 1},
		{"stopped before", "start 50 key 1\ndone 150 key 1\n", 1000, []stopped{{60, 140}}, 0},
		{"stopped meanwhile", "start 50 key 1\ndone 250 key 1\n", 1000, []stopped{{120, 240}}, 1},
	} {
		errs := checkTwice([]*shardingLog{logOf(t, "a", at100to200, 1000),
			logOf(t, "b", test.other, test.end, test.stops...)})
		if len(errs) != test.errors {
			t.Errorf("%s: %v, want %d errors", test.name, errs, test.errors)
		}
	}
}

func TestUnhandled(t *testing.T) {
	l := logOf(t, "a", "start 1 x 1\ndone 2 x 1\nstart 3 y 2\nended 4 y 2\nstart 5 z 3\n", 10)
	if got := unhandled([]*shardingLog{l}, map[string]string{"x": "1", "y": "2", "z": "3"}); !slices.Equal(got,
		[]string{"y", "z"}) {
		t.Errorf("unhandled are %v, want y, whose handler was ended, and z, whose handler did not return", got)
	}
}

func TestGaps(t *testing.T) {
	a := logOf(t, "a", "held 10 ffffffffffffffff\nheld 50 fffffffffffffffe\n", 100)
	b := logOf(t, "b", "held 70 1\n", 1000, stopped{80, 90})
	if got, want := gaps([]*shardingLog{a, b}, 95), []stopped{{50, 70}}; !slices.Equal(got, want) {
		t.Errorf("the gaps are %v, want %v", got, want)
	}
}
