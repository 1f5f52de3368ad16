package stacks_test

import (
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue/worker/internal/stacks"
)

func waitHere(number chan<- string, end <-chan struct{}) {
	number <- stacks.Current()
	<-end
}

func TestOf(t *testing.T) {
	number, end := make(chan string), make(chan struct{})
	defer close(end)
	go waitHere(number, end)
	waits := <-number
	found := stacks.Of([]string{waits, "none"}, 1<<10)
	if !strings.HasPrefix(found[waits], "goroutine "+waits) || !strings.Contains(found[waits], "waitHere") ||
		!strings.HasPrefix(found["none"], "not read") || len(found) != 2 {
		t.Errorf("%q", found)
	}
	if short := stacks.Of([]string{waits}, 20)[waits]; len(short) != 20 {
		t.Errorf("%q", short)
	}

	for range 3000 {
		go waitHere(number, end)
		<-number
	}
	if many := stacks.Of([]string{waits}, 1<<10)[waits]; !strings.HasPrefix(many, "not read: there are 300") {
		t.Errorf("%q", many)
	}
}
