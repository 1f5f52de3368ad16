package main

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/examples/internal/locked"
	"github.com/keyedqueue/workqueue/examples/internal/readme"
)

// The replicas of this program are, in its test, processes of the test binary.
func TestMain(m *testing.M) {
	if os.Getenv(replicaVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// patience is long, for busy machines.
const patience = 5 * time.Minute

// The demo ends, although a replica is killed, and handles every order.
func TestDemo(t *testing.T) {
	var out locked.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, "", "127.0.0.1:0", true, strings.NewReader(""), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"debug page: http://", "killing replica 2", "order/30 ", "fails",
		"all orders are handled"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not have %q:\n%s", want, out.String())
		}
	}
	lines := func(text string) []string {
		lines := strings.Split(strings.TrimRight(shape(text), "\n"), "\n")
		slices.Sort(lines)
		return slices.DeleteFunc(slices.Compact(lines), func(line string) bool {
			return strings.Contains(line, "was given up") // A slow machine may lose a lease.
		})
	}
	shown := readme.Output(t, "go run ./examples/jobs -demo")
	if printed, want := lines(out.String()), lines(shown); !slices.Equal(printed, want) {
		t.Errorf("README.md shows other lines than the program prints:\n%q\n%q", want, printed)
	}
}

// shape replaces what differs from run to run: numbers, how many digits the time has, and how many orders are
// held.
func shape(text string) string {
	text = regexp.MustCompile(`[0-9]+`).ReplaceAllString(text, "N")
	text = regexp.MustCompile(`(?m)^ +`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`held:( order/N)*`).ReplaceAllString(text, "held:")
	return strings.ReplaceAll(text, "held: \n", "held:\n")
}

// Commands that make no sense are refused, and the others work.
func TestCommands(t *testing.T) {
	var out locked.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, "", "", false, strings.NewReader("kill 7\nfly\n\nadd 3\nstart\nquit\n"),
		&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no replica 7 runs", `"fly" is not add, kill`, "added 3 orders"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not have %q:\n%s", want, out.String())
		}
	}
}
