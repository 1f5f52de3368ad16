package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type stringQueue = workqueue.TypedRateLimitingInterface[string]

// extended is a queue that is Extended. Fakes embed it and replace one method or two.
type extended interface {
	stringQueue
	workqueue.Extended[string]
}

// plain hides that a queue is Extended.
type plain struct{ stringQueue }

// stats returns those of the queue within, if q is plain.
func stats(q stringQueue) workqueue.Stats {
	if p, ok := q.(plain); ok {
		q = p.stringQueue
	}
	return q.(workqueue.Extended[string]).Stats()
}

// newQueue returns a queue whose keys come again after 1 s, 2 s, 4 s.
func newQueue() extended {
	return limitedQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour))
}

func limitedQueue(limiter workqueue.TypedRateLimiter[string]) extended {
	return workqueue.NewTypedRateLimitingQueue(limiter).(extended)
}

// inBubble runs a test in virtual time, over a queue that is Extended and over one that is not.
func inBubble(t *testing.T, test func(t *testing.T, q stringQueue)) {
	t.Helper()
	t.Run("queue=extended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newQueue()) })
	})
	t.Run("queue=plain", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, plain{newQueue()}) })
	})
}

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

// running is a Run that goes on.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	begun  time.Time
	result chan error // that of Run, and a leftError
}

// leftError has what a pool left undone, for the tests alone: what Run returns is nil then.
type leftError struct{ left worker.Left[string] }

func (e *leftError) Error() string { return "left: " + e.left.String() }

// withLeft joins a leftError to what Run of r has returned, if anything was left.
func withLeft(r worker.Runner, err error) error {
	p, ok := r.(*worker.Pool[string])
	if !ok || p.Left().Empty() {
		return err
	}
	if err == nil {
		return &leftError{p.Left()}
	}
	return errors.Join(err, &leftError{p.Left()})
}

// left returns the keys that err, from withLeft, says were left undone.
func left(t *testing.T, err error) worker.Left[string] {
	t.Helper()
	var e *leftError
	if !errors.As(err, &e) {
		t.Fatalf("nothing was left, and Run returned %v", err)
	}
	return e.left
}

func run(t *testing.T, r worker.Runner) *running {
	ctx, cancel := context.WithCancel(t.Context())
	g := &running{t: t, cancel: cancel, begun: time.Now(), result: make(chan error, 1)}
	go func() { g.result <- withLeft(r, r.Run(ctx)) }()
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
	if err := g.end(); err != nil {
		g.t.Errorf("Run: %v", err)
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

// doneCounter counts the calls of Done and of Get that handed out a key.
type doneCounter struct {
	workqueue.TypedRateLimitingInterface[string]
	mu         sync.Mutex
	gets, done map[string]int
}

func countDone(q stringQueue) *doneCounter {
	return &doneCounter{TypedRateLimitingInterface: q, gets: make(map[string]int), done: make(map[string]int)}
}

func (c *doneCounter) Get() (string, bool) {
	key, shutdown := c.TypedRateLimitingInterface.Get()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !shutdown {
		c.gets[key]++
	}
	return key, shutdown
}

func (c *doneCounter) Done(key string) {
	c.mu.Lock()
	c.done[key]++
	c.mu.Unlock()
	c.TypedRateLimitingInterface.Done(key)
}

// counts returns how often key was handed out and Done.
func (c *doneCounter) counts(key string) (gets, done int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gets[key], c.done[key]
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
