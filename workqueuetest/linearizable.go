package workqueuetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyedqueue/workqueue"
)

var linearizableCases = []testCase{
	unbubbled("Linearizable",
		"Concurrent calls have the effects of calls made one after another, each at some moment between its "+
			"beginning and its end.",
		func(r *run) { r.tryLinearizable(false) }),
	unbubbled("LinearizableWithUnmatchedDone",
		"The same is true if Done is called for keys that another worker holds, or none.",
		func(r *run) { r.tryLinearizable(true) }),
}

// fifoCall is a call that took effect.
type fifoCall struct{ method, key string }

// Results of Get, beside keys. A Get that gave up had no effect.
const (
	shutDown = "shutdown"
	gaveUp   = "gave up"
)

// step returns the state after a call, or false if the call cannot have that result in m.
func (m slowFIFO) step(c fifoCall, result string) (bool, slowFIFO) {
	switch c.method {
	case "Add":
		m.add(c.key)
	case "Done":
		m.done(c.key)
	case "Get":
		if m.empty() {
			return result == shutDown && m.down, m
		}
		key := m.get()
		return key == result, m
	case "Len":
		return result == strconv.Itoa(len(m.queued)) || m.down && m.shared, m
	case "ShutDown":
		m.down = true
	}
	return true, m
}

// history records calls. It numbers the beginnings and ends of calls instead of reading a clock, whose
// resolution could make calls seem to overlap.
type history struct {
	events atomic.Int64
	mu     sync.Mutex
	calls  []porcupine.Operation
}

// record makes a call and records its result, unless it gave up.
func (h *history) record(client int, method, key string, f func() string) string {
	if rand.IntN(2) == 0 {
		runtime.Gosched() // With one processor the goroutines would hardly ever take turns.
	}
	began := h.events.Add(1)
	result := f()
	ended := h.events.Add(1)
	if result != gaveUp {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls = append(h.calls, porcupine.Operation{
			ClientId: client, Input: fifoCall{method, key}, Call: began, Output: result, Return: ended,
		})
	}
	return result
}

func (h *history) String() string {
	slices.SortFunc(h.calls, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, c := range h.calls {
		in := c.Input.(fifoCall)
		fmt.Fprintf(&b, "%3d to %3d, goroutine %d: %s(%s) %s\n", c.Call, c.Return, c.ClientId, in.method, in.key,
			c.Output)
	}
	return b.String()
}

func (r *run) tryLinearizable(unmatchedDone bool) {
	const rounds = 200
	model := porcupine.Model{
		Init: func() any { return slowFIFO{shared: r.suite.Shared, placeOfAdd: r.suite.PlaceOfAdd} },
		Step: func(state, input, output any) (bool, any) {
			return state.(slowFIFO).step(input.(fifoCall), output.(string))
		},
	}
	for round := range rounds {
		h := &history{}
		r.makeHistory(round, unmatchedDone, h)
		switch porcupine.CheckOperationsTimeout(model, h.calls, 10*time.Second) {
		case porcupine.Illegal:
			r.Fatalf("round %d: there is no order of these calls in which each returns what it did:\n%s", round, h)
		case porcupine.Unknown:
			r.Fatalf("round %d: whether this is possible takes too long to find out:\n%s", round, h)
		}
		if r.Failed() {
			return
		}
		r.endQueues()
	}
}

// makeHistory lets a few goroutines make a few calls each on a new queue, concurrently. In some rounds one of
// them shuts the queue down; in the others that happens at the end.
func (r *run) makeHistory(round int, unmatchedDone bool, h *history) {
	const producers, workers, calls = 2, 2, 8
	q := r.queue(Config[string]{})
	// call records a method without results.
	call := func(client int, method, key string, f func()) {
		h.record(client, method, key, func() string { f(); return "" })
	}
	length := func(client int) {
		h.record(client, "Len", "", func() string { return strconv.Itoa(q.Len()) })
	}
	produce := func(client int, random *rand.Rand) {
		for range calls {
			key := modelKey(random.IntN(3))
			switch n := random.IntN(12); {
			case n == 0:
				length(client)
			case n == 1 && round%4 == 0:
				call(client, "ShutDown", "", q.ShutDown)
			case n == 2 && unmatchedDone:
				call(client, "Done", key, func() { q.Done(key) })
			default:
				call(client, "Add", key, func() { q.Add(key) })
			}
		}
	}
	work := func(client int, random *rand.Rand) {
		for {
			// A shared queue may have fetched a key for a getter that gave up, and then gives it to a later one. If it
			// was added in between, it comes once more than it must.
			got := h.record(client, "Get", "", func() string { return someGet(q, random, !r.suite.Shared) })
			switch got {
			case shutDown:
				return
			case gaveUp:
				continue
			}
			if random.IntN(4) == 0 {
				length(client)
			}
			call(client, "Done", got, func() { q.Done(got) })
		}
	}
	producing, working := group{r: r}, group{r: r}
	begin := make(chan struct{})
	for client := range producers + workers {
		random := r.rand(round*(producers+workers) + client)
		c, f := &producing, produce
		if client >= producers {
			c, f = &working, work
		}
		c.start(func() { <-begin; f(client, random) })
	}
	close(begin)
	producing.Wait()
	call(producers+workers, "ShutDown", "", q.ShutDown)
	working.Wait()
}

// someGet is a Get or, if q has it and givesUp is set, sometimes a GetContext that soon gives up.
func someGet(q fifo, random *rand.Rand, givesUp bool) string {
	g := got{}
	if e, ok := q.(extended); ok && givesUp && random.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(50))*time.Microsecond)
		defer cancel()
		g.key, g.err = e.GetContext(ctx)
	} else {
		g = get(q)
	}
	switch g.err {
	case nil:
		return g.key
	case workqueue.ErrShutDown:
		return shutDown
	}
	return gaveUp
}
