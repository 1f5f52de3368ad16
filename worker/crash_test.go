package worker_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/keyedqueue/workqueue/worker"
)

// TestCrashOnPanic runs itself in a process of its own, which is to crash.
func TestCrashOnPanic(t *testing.T) {
	const variable = "WORKER_TEST_CRASH"
	if where := os.Getenv(variable); where != "" {
		q := newQueue()
		q.Add("a")
		o := options{CrashOnPanic: true}
		if where == "hook" {
			o.OnFinish = func(context.Context, outcome) { thePanickingFunction() }
		}
		_ = worker.Run(t.Context(), q, func(context.Context, string) error {
			if where == "handler" {
				thePanickingFunction()
			}
			return nil
		}, o)
		return
	}
	for _, where := range []string{"handler", "hook"} {
		t.Run(where, func(t *testing.T) {
			command := exec.Command(os.Args[0], "-test.run=^TestCrashOnPanic$")
			command.Env = append(os.Environ(), variable+"="+where)
			out, err := command.CombinedOutput()
			if err == nil {
				t.Error("the process has not crashed")
			}
			for _, want := range []string{"panic: what a value", "thePanickingFunction"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}
