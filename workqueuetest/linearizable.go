package workqueuetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyedqueue/workqueue"
)

func linearizableCases() []testCase {
	return []testCase{
		unbubbled("Linearizable", "Concurrent calls have the effects of calls made one after another, each at some moment between its beginning and its end.",
			func(r *run) { r.tryLinearizable(false) }),
		unbubbled("LinearizableWithUnmatchedDone", "The same is true if Done is called for keys that another worker holds, or none.",
			func(r *run) { r.tryLinearizable(true) }),
	}
}

// lineState is the queue between two calls. It is immutable, so states share their slices.
type lineState struct {
	line        []string
	dirty, held []string // sorted
	down        bool
	shared      bool
}

// lineCall is a call that took effect, and lineResult what it returned.
type lineCall struct {
	method, key string
	stray       bool // a Done by a goroutine that does not hold the key
	// early marks a stray Done that may have had no effect in a shared queue: a Get that returned its key was under way.
	// The server had handed out the key, and this process did not know it yet.
	early bool
}

type lineResult struct {
	key      string
	n        int
	shutDown bool
}

func with(set []string, key string) []string {
	i, found := slices.BinarySearch(set, key)
	if found {
		return set
	}
	return slices.Insert(slices.Clone(set), i, key)
}

func without(set []string, key string) []string {
	i, found := slices.BinarySearch(set, key)
	if !found {
		return set
	}
	return slices.Delete(slices.Clone(set), i, i+1)
}

func has(set []string, key string) bool {
	_, found := slices.BinarySearch(set, key)
	return found
}

// step returns the state after a call, or false if the call cannot have that result in s.
func (s lineState) step(c lineCall, result lineResult) (bool, lineState) {
	push := func(key string) []string { return append(slices.Clone(s.line), key) }
	switch c.method {
	case "Add":
		if s.down && s.shared {
			// It is queued if a worker holds a key, but none of these calls could show that.
			return true, s
		}
		if s.down || has(s.dirty, c.key) {
			return true, s
		}
		if !has(s.held, c.key) {
			s.line = push(c.key)
		}
		s.dirty = with(s.dirty, c.key)
	case "Done":
		if !has(s.held, c.key) {
			return true, s
		}
		s.held = without(s.held, c.key)
		if has(s.dirty, c.key) {
			s.line = push(c.key)
		}
	case "Get":
		if result.shutDown {
			return s.down && (len(s.line) == 0 || s.shared), s
		}
		if s.down && s.shared {
			return false, s
		}
		if len(s.line) == 0 || s.line[0] != result.key {
			return false, s
		}
		s.line = s.line[1:]
		s.dirty, s.held = without(s.dirty, result.key), with(s.held, result.key)
	case "Len":
		return result.n == len(s.line) || s.down && s.shared, s
	case "ShutDown":
		s.down = true
	}
	return true, s
}

// lineModel is the model of a queue, shared or not.
func lineModel(shared bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{lineState{shared: shared}} },
		Step: func(state, input, output any) []any {
			before, call := state.(lineState), input.(lineCall)
			possible, after := before.step(call, output.(lineResult))
			switch {
			case !possible:
				return nil
			case call.early:
				return []any{after, before}
			}
			return []any{after}
		},
		Equal: func(a, b any) bool {
			s, t := a.(lineState), b.(lineState)
			return s.down == t.down && slices.Equal(s.line, t.line) && slices.Equal(s.dirty, t.dirty) && slices.Equal(s.held, t.held)
		},
	}
	return m.ToModel()
}

// history records calls. It numbers the beginnings and ends of calls instead of reading a clock, whose resolution
// could make calls seem to overlap.
type history struct {
	events atomic.Int64
	mu     sync.Mutex
	calls  []porcupine.Operation
}

// record makes a call and records its result, unless the call had no effect.
func (h *history) record(client int, c lineCall, f func() (result lineResult, ok bool)) lineResult {
	if rand.IntN(2) == 0 {
		runtime.Gosched() // With one processor the goroutines would hardly ever take turns.
	}
	began := h.events.Add(1)
	result, ok := f()
	ended := h.events.Add(1)
	if ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls = append(h.calls, porcupine.Operation{ClientId: client, Input: c, Call: began, Output: result, Return: ended})
	}
	return result
}

// markEarly marks those of the stray calls of Done that a Get of their key overlaps.
func (h *history) markEarly() {
	for i := range h.calls {
		done := &h.calls[i]
		call := done.Input.(lineCall)
		if !call.stray {
			continue
		}
		call.early = slices.ContainsFunc(h.calls, func(get porcupine.Operation) bool {
			return get.Input.(lineCall).method == "Get" && get.Output.(lineResult).key == call.key &&
				get.Call < done.Return && done.Call < get.Return
		})
		done.Input = call
	}
}

func (h *history) String() string {
	slices.SortFunc(h.calls, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, c := range h.calls {
		in, out := c.Input.(lineCall), c.Output.(lineResult)
		fmt.Fprintf(&b, "%3d to %3d, goroutine %d: %s(%s)", c.Call, c.Return, c.ClientId, in.method, in.key)
		switch {
		case in.method == "Len":
			fmt.Fprintf(&b, " = %d", out.n)
		case in.method == "Get" && out.shutDown:
			b.WriteString(" = shutdown")
		case in.method == "Get":
			fmt.Fprintf(&b, " = %s", out.key)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (r *run) tryLinearizable(unmatchedDone bool) {
	const rounds = 200
	for round := range rounds {
		h := &history{}
		r.makeHistory(round, unmatchedDone, h)
		if r.suite.Shared {
			h.markEarly()
		}
		switch porcupine.CheckOperationsTimeout(lineModel(r.suite.Shared), h.calls, 10*time.Second) {
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

// makeHistory lets a few goroutines make a few calls each on a new queue, concurrently. In some rounds one of them
// shuts the queue down; in the others that happens at the end.
func (r *run) makeHistory(round int, unmatchedDone bool, h *history) {
	const producers, workers, calls = 2, 2, 8
	q := r.queue(Config[string]{})
	anyKey := func(random *rand.Rand) string { return string(rune('a' + random.IntN(3))) }
	nothing := lineResult{}
	shutDown := func(client int) {
		h.record(client, lineCall{method: "ShutDown"}, func() (lineResult, bool) { q.ShutDown(); return nothing, true })
	}
	length := func(client int) {
		h.record(client, lineCall{method: "Len"}, func() (lineResult, bool) { return lineResult{n: q.Len()}, true })
	}
	done := func(client int, key string, stray bool) {
		h.record(client, lineCall{method: "Done", key: key, stray: stray}, func() (lineResult, bool) { q.Done(key); return nothing, true })
	}
	var ready, producing, working sync.WaitGroup
	ready.Add(producers + workers)
	for client := range producers + workers {
		random := r.rand(round*(producers+workers) + client)
		produce := func() {
			for range calls {
				switch n := random.IntN(12); {
				case n == 0:
					length(client)
				case n == 1 && round%4 == 0:
					shutDown(client)
				case n == 2 && unmatchedDone:
					done(client, anyKey(random), true)
				default:
					key := anyKey(random)
					h.record(client, lineCall{method: "Add", key: key}, func() (lineResult, bool) { q.Add(key); return nothing, true })
				}
			}
		}
		work := func() {
			for {
				got := h.record(client, lineCall{method: "Get"}, func() (lineResult, bool) {
					// A shared queue may have fetched a key for a getter that gave up, and then gives it to a later
					// one. If it was added in between, it comes once more than it must.
					return someGet(q, random, !r.suite.Shared)
				})
				switch {
				case got.shutDown:
					return
				case got.key == "":
					continue // gave up
				}
				if random.IntN(4) == 0 {
					length(client)
				}
				done(client, got.key, false)
			}
		}
		all, f := &producing, produce
		if client >= producers {
			all, f = &working, work
		}
		all.Add(1)
		r.start(func() {
			ready.Done()
			ready.Wait()
			f()
		}, all.Done)
	}
	producing.Wait()
	shutDown(producers + workers)
	working.Wait()
}

// someGet is a Get or, if q has it and givesUp is set, sometimes a GetContext that soon gives up and then has no effect.
func someGet(q fifo, random *rand.Rand, givesUp bool) (result lineResult, effect bool) {
	var g got
	if e, ok := q.(extended); ok && givesUp && random.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(50))*time.Microsecond)
		defer cancel()
		g.key, g.err = e.GetContext(ctx)
	} else {
		g = get(q)
	}
	return lineResult{key: g.key, shutDown: g.err == workqueue.ErrShutDown}, g.err == nil || g.err == workqueue.ErrShutDown
}
