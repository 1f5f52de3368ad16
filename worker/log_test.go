package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// defaultLog makes the default logger write into a buffer, without times, until the test ends.
func defaultLog(t *testing.T, level slog.Level) *bytes.Buffer {
	var b bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
	return &b
}

// Without a Logger everything that goes wrong is logged nevertheless, and nothing else.
func TestLogByDefault(t *testing.T) {
	for _, c := range []struct {
		key   string
		wants []string // lines, each as what it contains, separated by " … "
	}{
		{"0s", nil},
		{"later", nil},
		{"fails",
			[]string{`level=WARN msg="The handler failed, its key is retried" queue=q key=fails next=retry attempt=1 … err="fails is broken"`,
				`level=WARN msg="Keys are left undone" queue=q unfinished=0 notStarted=0 failing=1 left="1 failed and not retried: fails"`}},
		{"panics",
			[]string{`level=WARN msg="The handler failed, its key is retried" queue=q key=panics … err="panic: what a value" stack="goroutine … worker_test.thePanickingFunction`,
				`level=WARN msg="Keys are left undone"`}},
		{"exits",
			[]string{`level=WARN msg="The handler failed … key=exits … err="worker: runtime.Goexit was called"`,
				`level=WARN msg="Keys are left undone"`}},
		{"drops",
			[]string{`level=ERROR msg="The handler failed, its key is given up" queue=q key=drops next=give_up attempt=1 … err="drops is broken"`}},
		{"fatal", []string{`level=ERROR msg="The workers end because of a fatal error" queue=q err=broken`,
			`level=ERROR msg="The handler failed, its key is given up" queue=q key=fatal`}},
		{"waits", []string{`level=WARN msg="A handler is stuck" queue=q key=waits running=100ms stack="goroutine`}},
		{"2h", []string{`level=WARN msg="A handler is stuck"`,
			`level=WARN msg="Keys are left undone" queue=q unfinished=1 notStarted=0 failing=0 left="1 still running: 2h"`}},
	} {
		t.Run(c.key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for silent, logger := range map[bool]*slog.Logger{false: nil, true: slog.New(slog.DiscardHandler)} {
					logs := defaultLog(t, slog.LevelInfo)
					q := newQueue()
					q.Add(c.key)
					r := run(t, worker.New(q, acts, options{Name: "q", StuckAfter: 100 * time.Millisecond, Logger: logger}))
					r.after(500 * time.Millisecond)
					_ = r.end()
					time.Sleep(3 * time.Hour)
					lines := strings.Split(strings.TrimSpace(logs.String()), "\n")
					wants := c.wants
					if silent || wants == nil {
						wants = []string{""}
					}
					if len(lines) != len(wants) {
						t.Fatalf("logged, want %d lines:\n%s", len(wants), logs)
					}
					for i, want := range wants {
						rest, found := lines[i], true
						for part := range strings.SplitSeq(want, " … ") {
							if _, rest, found = strings.Cut(rest, part); !found {
								t.Errorf("line %d has no %s:\n%s", i+1, part, lines[i])
							}
						}
					}
				}
			})
		})
	}
}

// A key that fails again and again is logged at its first failure, at each doubling of its attempts and when
// it is given up. When it has succeeded it begins anew. The level Debug has every call.
func TestLogOfAKeyThatFails(t *testing.T) {
	for level, want := range map[slog.Level]string{
		slog.LevelInfo: "W1 W2 W4 W8 W16 E20 W1 W2",
		slog.LevelDebug: "W1 W2 D3 W4 D5 D6 D7 W8 D9 D10 D11 D12 D13 D14 D15 W16 D17 D18 D19 E20 " +
			"W1 W2 D3 D1",
	} {
		t.Run(level.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs := defaultLog(t, level)
				q := newQueue()
				calls := 0
				r := run(t, worker.New(q, func(context.Context, string) error {
					if calls++; calls >= 23 {
						return nil
					}
					return errors.New("broken")
				}, options{MaxRetries: 19}))
				q.Add("a")
				r.after(1000 * time.Hour)
				q.Add("a")
				r.after(2000 * time.Hour)
				q.Add("a")
				r.after(3000 * time.Hour)
				r.endCleanly()
				var got []string
				for line := range strings.Lines(logs.String()) {
					var level, attempt string
					for field := range strings.FieldsSeq(line) {
						if v, ok := strings.CutPrefix(field, "level="); ok {
							level = v[:1]
						} else if v, ok := strings.CutPrefix(field, "attempt="); ok {
							attempt = v
						}
					}
					got = append(got, level+attempt)
				}
				if fmt.Sprint(got) != "["+want+"]" {
					t.Errorf("logged %v, want %v", got, want)
				}
			})
		})
	}
}

// A key that fails without an end, and is added meanwhile, is logged rarely.
func TestLogOfAKeyThatIsAddedWhileItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := defaultLog(t, slog.LevelInfo)
		q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedControllerRateLimiter[string](nil))
		r := run(t, worker.New(q, func(context.Context, string) error { return errBroken }, options{}))
		for range 2400 {
			q.Add("a")
			time.Sleep(50 * time.Millisecond)
		}
		if n := strings.Count(logs.String(), "\n"); n < 3 || n > 10 {
			t.Errorf("%d lines in two minutes", n)
		}
		r.cancel()
		synctest.Wait()
	})
}
