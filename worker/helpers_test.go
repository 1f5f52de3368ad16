package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

type stringQueue = workqueue.TypedRateLimitingInterface[string]

// extended is a queue that is Extended. Fakes embed it and replace one method or two.
type extended = workqueue.ExtendedRateLimiting[string]

// plain is a queue with no methods but those of client-go's.
type plain struct{ stringQueue }

// stats returns those of q.
func stats(q stringQueue) workqueue.Stats { return q.(extended).Stats() }

// newQueue returns a queue whose keys are retried after 1 s, 2 s, 4 s.
func newQueue() extended {
	return limitedQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour))
}

func limitedQueue(limiter workqueue.TypedRateLimiter[string]) extended {
	return workqueue.NewTypedRateLimitingQueue(limiter).(extended)
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, q stringQueue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newQueue()) })
}

// held returns how many keys of q were handed out and not Done.
func held(q stringQueue) int { return stats(q).Processing }

// wantMatchedDones checks that every key that was handed out was Done, and no other.
func wantMatchedDones(t *testing.T, q stringQueue) {
	t.Helper()
	if st := stats(q); st.UnmatchedDones != 0 || st.Processing != 0 || st.Queued != 0 {
		t.Errorf("%+v", st)
	}
}

type handler = func(ctx context.Context, key string) error

type (
	options = worker.Options[string]
	outcome = worker.Result[string]
	stuck   = worker.RunningKey[string]
)

// answers returns a handler that always returns err.
// givesUp is an OnFinish that calls f for each key that is given up.
func givesUp(f func(outcome)) func(context.Context, outcome) {
	return func(_ context.Context, r outcome) {
		if r.Next == worker.NextGiveUp {
			f(r)
		}
	}
}

func answers(err error) handler { return func(context.Context, string) error { return err } }

// broken is a handler that always fails, fine never does.
var broken, fine = answers(errBroken), answers(nil)

// takes returns a handler that takes so long.
func takes(d time.Duration) handler {
	return func(context.Context, string) error {
		time.Sleep(d)
		return nil
	}
}

// acts is a handler that does what its key says. A key that is a duration takes as long.
func acts(ctx context.Context, key string) error {
	switch word, _, _ := strings.Cut(key, " "); word {
	case "fails":
		return errors.New(key + " is broken")
	case "drops":
		return worker.Terminal(errors.New(key + " is broken"))
	case "fatal":
		return worker.Fatal(errBroken)
	case "later":
		return worker.RequeueAfter(time.Hour)
	case "panics":
		thePanickingFunction()
	case "exits":
		runtime.Goexit()
	case "waits":
		<-ctx.Done()
	default:
		d, _ := time.ParseDuration(key)
		time.Sleep(d)
	}
	return nil
}

func thePanickingFunction() { panic("what a value") }

// attempts returns a handler that notes the attempts of its calls and gives one of the answers to each.
func attempts(noted *[]int, answers ...error) handler {
	return func(ctx context.Context, _ string) error {
		*noted = append(*noted, worker.CallOf(ctx).Attempt())
		return answers[len(*noted)-1]
	}
}

// addAll adds keys that are separated by spaces.
func addAll(q stringQueue, keys string) {
	for _, key := range strings.Fields(keys) {
		q.Add(key)
	}
}

// addNumbers adds n keys: "0" and so on.
func addNumbers(q stringQueue, n int) {
	for i := range n {
		q.Add(fmt.Sprint(i))
	}
}

// equal checks a slice.
func equal[E comparable](t *testing.T, what string, got []E, want ...E) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// runner is a pool of any keys.
type runner interface {
	Run(ctx context.Context) error
}

// running is a Run that has not returned.
type running struct {
	t      *testing.T
	runner runner
	cancel context.CancelFunc
	begun  time.Time
	result chan error
}

func run(t *testing.T, r runner) *running { return runIn(t.Context(), t, r) }

func runIn(ctx context.Context, t *testing.T, r runner) *running {
	ctx, cancel := context.WithCancel(ctx)
	g := &running{t, r, cancel, time.Now(), make(chan error, 1)}
	go func() { g.result <- r.Run(ctx) }()
	synctest.Wait()
	return g
}

// after sleeps until d has passed since Run was called, and lets everything happen that is due then.
func (g *running) after(d time.Duration) {
	g.t.Helper()
	if at := time.Since(g.begun); at > d {
		g.t.Fatalf("it is %v already, not %v", at, d)
	}
	time.Sleep(time.Until(g.begun.Add(d)))
	synctest.Wait()
}

// goesOn checks that Run has not returned.
func (g *running) goesOn() {
	g.t.Helper()
	synctest.Wait()
	select {
	case err := <-g.result:
		g.t.Fatalf("Run returned %v", err)
	default:
	}
}

// returned checks that Run has returned, and returns what.
func (g *running) returned() error {
	g.t.Helper()
	synctest.Wait()
	select {
	case err := <-g.result:
		return err
	default:
		g.t.Fatal("Run has not returned")
		return nil
	}
}

// end ends the context and waits for Run, for as long as it takes.
func (g *running) end() error {
	g.cancel()
	return <-g.result
}

// endCleanly checks that nothing is left undone.
func (g *running) endCleanly() {
	g.t.Helper()
	g.wantLeft(g.end(), "nothing")
}

// returnedLeaving checks that Run has returned nil, and what the pool has left undone.
func (g *running) returnedLeaving(left string) {
	g.t.Helper()
	g.wantLeft(g.returned(), left)
}

// endLeaving is end, and checks the same.
func (g *running) endLeaving(left string) {
	g.t.Helper()
	g.wantLeft(g.end(), left)
}

func (g *running) wantLeft(err error, want string) {
	g.t.Helper()
	left := "nothing"
	if method := reflect.ValueOf(g.runner).MethodByName("Left"); method.IsValid() {
		left = fmt.Sprint(method.Call(nil)[0]) // of a pool of any keys
	}
	if err != nil || left != want {
		g.t.Errorf("Run returned %v, left: %s, want: %s", err, left, want)
	}
}

// journal is what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// take returns the lines since the last take.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// logBuffer is where a logger writes, without times.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newLogger() (*slog.Logger, *logBuffer) {
	b := new(logBuffer)
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "stack" {
				return slog.Attr{}
			}
			return a
		},
	})), b
}

// holds puts the key of the call that ctx is from on hold, and returns what makes it come when the hold ends.
func holds(ctx context.Context, reason string, limit time.Duration, arrange func(release func())) error {
	arrange(worker.CallOf(ctx).Hold(reason, limit))
	return worker.RequeueAfter(0)
}
