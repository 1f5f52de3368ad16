package wait_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/wait"
)

func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group wait.Group
		group.Wait() // empty

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		stop := make(chan struct{})
		time.AfterFunc(2*time.Second, func() { close(stop) })
		ended := make(chan string, 4)
		group.Start(func() { time.Sleep(time.Second); ended <- "f" })
		group.StartWithChannel(stop, func(got <-chan struct{}) { <-got; ended <- "channel" })
		group.StartWithContext(ctx, func(got context.Context) { <-got.Done(); ended <- "context" })
		group.Start(runtime.Goexit)

		begin := time.Now()
		group.Wait()
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("waited for %v, want 3s", d)
		}
		close(ended)
		var got []string
		for what := range ended {
			got = append(got, what)
		}
		if want := []string{"f", "channel", "context"}; !slices.Equal(got, want) {
			t.Errorf("ended: %v, want %v", got, want)
		}

		again := false
		group.Start(func() { time.Sleep(time.Second); again = true })
		group.Wait()
		if !again {
			t.Error("does not wait the second time")
		}
	})
}

func TestConditionFuncWithContext(t *testing.T) {
	for _, done := range []bool{true, false} {
		condition := wait.ConditionFunc(func() (bool, error) { return done, errBroken }).WithContext()
		if got, err := condition(t.Context()); got != done || err != errBroken {
			t.Errorf("%t, %v", got, err)
		}
	}
}
