package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/worker"
)

func TestPanicHasValueAndStack(t *testing.T) {
	inBubble(t, func(t *testing.T, q stringQueue) {
		var got error
		q.Add("panics")
		r := run(t, worker.New(q, func(ctx context.Context, key string) error {
			if worker.CallOf(ctx).Attempt() > 1 {
				return nil
			}
			return acts(ctx, key)
		}, options{OnFinish: func(_ context.Context, r outcome) {
			if r.Err != nil {
				got = r.Err
			}
		}}))
		var p *worker.PanicError
		if !errors.As(got, &p) || p.Value != "what a value" ||
			!strings.Contains(string(p.Stack), "thePanickingFunction") {
			t.Fatalf("the error is %v", got)
		}
		if p.Error() != "panic: what a value" || p.Unwrap() != nil {
			t.Errorf("%v, %v", p, p.Unwrap())
		}
		r.after(time.Second)
		r.endCleanly()
	})
}

// TestCrashOnPanic runs itself in a process of its own, which is to crash.
func TestCrashOnPanic(t *testing.T) {
	const variable = "WORKER_TEST_CRASH"
	if where := os.Getenv(variable); where != "" {
		q := doneSays{newQueue()}
		addAll(q, "a b c d")
		o := options{CrashOnPanic: true}
		if where == "hook" {
			o.OnFinish = func(context.Context, outcome) { thePanickingFunction() }
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // If it does not crash.
		defer cancel()
		_ = worker.Run(ctx, q, func(_ context.Context, key string) error {
			if key != "a" {
				fmt.Println("no other worker should have got", key)
			} else if where == "handler" {
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
			for _, bad := range []string{"Done of a", "no other worker"} {
				if strings.Contains(string(out), bad) {
					t.Errorf("%q in\n%s", bad, out)
				}
			}
		})
	}
}

// doneSays is a queue that writes down its Dones.
type doneSays struct{ extended }

func (q doneSays) Done(key string) {
	fmt.Println("Done of", key)
	q.extended.Done(key)
}

// What a panic is called with is no answer.
func TestPanicThatFailsTheKey(t *testing.T) {
	for name, answer := range map[string]func() error{
		"panic with a fatal error": func() error { panic(worker.Fatal(errBroken)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q stringQueue) {
				var finishes []int
				q.Add("a")
				r := run(t, worker.New(q, func(ctx context.Context, _ string) error {
					if worker.CallOf(ctx).Attempt() == 1 {
						return answer()
					}
					return nil
				}, options{
					HandlerTimeout: time.Minute,
					OnFinish: func(_ context.Context, r outcome) {
						if finishes = append(finishes, r.Attempt); (r.Err == nil) != (r.Attempt == 2) {
							t.Errorf("attempt %d ended with %v", r.Attempt, r.Err)
						}
					},
				}))
				r.after(time.Second)
				equal(t, "attempts", finishes, 1, 2)
				r.endCleanly()
			})
		})
	}
}

// A fatal error is logged when it happens: also during the drain, and when Run has returned.
func TestLateFatalErrorIsLogged(t *testing.T) {
	for _, drain := range []time.Duration{time.Second, time.Minute} {
		inBubble(t, func(t *testing.T, q stringQueue) {
			logger, logs := newLogger()
			q.Add("a")
			r := run(t, worker.New(q, func(context.Context, string) error {
				time.Sleep(10 * time.Second)
				return worker.Fatal(errBroken)
			}, options{DrainTimeout: drain, CancelGrace: worker.NoGrace, Logger: logger}))
			r.end()
			r.after(2 * time.Minute)
			if n := strings.Count(logs.String(),
				`msg="The workers end because of a fatal error" err=`); n != 1 {
				t.Errorf("logged:\n%s", logs)
			}
		})
	}
}
