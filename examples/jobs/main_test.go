package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// The replicas of this program are, in its test, processes of the test binary.
func TestMain(m *testing.M) {
	if os.Getenv(replicaVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// buffer is a strings.Builder that many goroutines write to.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// The demo ends, although a replica is killed, and handles every order.
func TestDemo(t *testing.T) {
	var out buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, "", "127.0.0.1:0", true, strings.NewReader(""), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"debug page: http://", "killing replica 2", "order/30 ", "fails", "all orders are handled"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not have %q:\n%s", want, out.String())
		}
	}
}

// Commands that make no sense are refused, and the others work.
func TestCommands(t *testing.T) {
	var out buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, "", "", false, strings.NewReader("kill 7\nfly\n\nadd 3\nstart\nquit\n"), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no replica 7 runs", `"fly" is none of`, "added 3 orders"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not have %q:\n%s", want, out.String())
		}
	}
}
