package worker_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// docs/testing.md shows the tests from here on.

type program struct {
	queue workqueue.TypedRateLimitingInterface[string]
	sent  map[string]int
}

func newProgram() *program {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)
	return &program{workqueue.NewTypedRateLimitingQueue(limiter), map[string]int{}}
}

func (p *program) handle(_ context.Context, key string) error {
	if p.sent[key]++; key == "late" && p.sent[key] < 3 {
		return errors.New("not yet")
	}
	return nil
}

func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		pool := worker.New(p.queue, p.handle, worker.Options[string]{})
		ctx, end := context.WithCancel(t.Context())
		defer end()
		ended := make(chan error, 1)
		go func() { ended <- pool.Run(ctx) }()

		begun := time.Now()
		p.queue.Add("late")
		if err := pool.WaitIdle(t.Context()); err != nil { // Nothing is queued, waits or is handled any more.
			t.Fatal(err)
		}
		if took := time.Since(begun).Round(time.Second); p.sent["late"] != 3 || took != 3*time.Second {
			t.Errorf("sent %d times, after %v", p.sent["late"], took) // It was tried after 1 s and 2 s more.
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestDelay(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	queue := newDelayingQueue(clock)
	queue.AddAfter("later", time.Hour)
	clock.Step(59 * time.Minute)
	if queue.Len() != 0 {
		t.Error("It comes too early.")
	}
	clock.Step(time.Minute)
	if key, _ := queue.Get(); key != "later" { // Get waits for the queue's goroutine, which adds the key.
		t.Error(key)
	}
}

func newDelayingQueue(c clock.WithTicker) workqueue.TypedDelayingInterface[string] {
	return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: c})
}

// The page has the code above, as it is.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_pages_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) < 2 {
		t.Error("the page has no code")
	}
	for _, block := range blocks {
		if code, _, _ := strings.Cut(block, "```"); !strings.Contains(string(source), code) {
			t.Errorf("example_pages_test.go lacks\n%s", code)
		}
	}
}
