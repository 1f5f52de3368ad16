package sharding

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

var errInjected = errors.New("injected")

// faults says how often calls and watches go wrong.
type faults struct {
	fail  float64 // a call fails before it has an effect
	lost  float64 // a call succeeds and reports an error, at once or after its effect comes later
	slow  float64 // a call takes long
	watch float64 // a watch stalls, repeats or ends
	limit bool    // the client may make five calls a second
}

// maxCalls is how many calls a member may make in ten seconds. The most that was seen is 111; a member that
// tries something again and again without a pause makes 250.
const maxCalls = 200

// simStore is a process's connection to a store.
type simStore struct {
	Store
	stop *stopper
	name string
	log  func(format string, args ...any)
	// failf reports a violation.
	failf func(format string, args ...any)

	mu                     sync.Mutex
	rand                   *rand.Rand
	faults                 faults
	cutUntil, refusedUntil time.Time
	// refused is what writes of some records report until refusedUntil.
	refused     error
	whatRefused refusable
	lastCall    time.Time
	// calls were made since since, within ten seconds.
	calls  int
	since  time.Time
	dead   bool
	server *simServer
}

func (s *simStore) chance(p float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Float64() < p
}

// random returns a time up to limit, short ones more often.
func (s *simStore) random(limit time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.rand.Float64()
	return time.Duration(f * f * float64(limit))
}

func (s *simStore) now() faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

func (s *simStore) setFaults(f faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

func (s *simStore) cut(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutUntil = time.Now().Add(d)
}

// refusable are the records that the server does not let a process write.
type refusable int

const (
	allRecords refusable = iota
	theTable
	recordsOfOthers
)

// refuse lets writes fail for some time with that error.
func (s *simStore) refuse(d time.Duration, err error, what refusable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusedUntil, s.refused, s.whatRefused = time.Now().Add(d), err, what
}

func (s *simStore) refusal(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	isTable, isOwn := name == "g-table", strings.HasPrefix(name, "g-member-"+s.name+"-")
	if !time.Now().Before(s.refusedUntil) || s.whatRefused == theTable && !isTable ||
		s.whatRefused == recordsOfOthers && (isTable || isOwn) {
		return nil
	}
	return s.refused
}

// turn waits for the limit of requests.
func (s *simStore) turn(ctx context.Context) error {
	s.mu.Lock()
	next := time.Now()
	if s.faults.limit && s.lastCall.Add(200*time.Millisecond).After(next) {
		next = s.lastCall.Add(200 * time.Millisecond)
	}
	s.lastCall = next
	if s.calls++; next.Sub(s.since) >= 10*time.Second {
		s.calls, s.since = 1, next
	}
	calls := s.calls
	s.mu.Unlock()
	if calls == maxCalls+1 {
		s.failf("%s makes more than %d calls in ten seconds", s.name, maxCalls)
	}
	return wait(ctx, time.Until(next))
}

func (s *simStore) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
}

func (s *simStore) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

func (s *simStore) isCut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead || s.server.away.Load() || time.Now().Before(s.cutUntil)
}

// pass waits, and returns an error if the connection is cut.
func (s *simStore) pass(ctx context.Context) error {
	limit := 20 * time.Millisecond
	if s.chance(s.now().slow) {
		limit = 6 * time.Second
	}
	if err := wait(ctx, s.random(limit)); err != nil {
		return err
	}
	if s.isCut() {
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		return errInjected
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// do makes a call with all that can go wrong on the way there and back. A stopped process makes no call, and
// sees no answer.
func do[R any](ctx context.Context, s *simStore, call func(context.Context) (R, error)) (result R,
	err error) {
	s.stop.wait()
	defer s.stop.wait()
	if err := s.turn(ctx); err != nil {
		return result, err
	}
	if err := s.pass(ctx); err != nil {
		return result, err
	}
	f := s.now()
	if s.chance(f.fail) {
		return result, errInjected
	}
	if s.chance(f.lost / 2) {
		// The effect comes when the caller does not wait for it any more.
		later := s.random(20 * time.Second)
		go func() {
			time.Sleep(later)
			if !s.server.away.Load() {
				_, _ = call(context.WithoutCancel(ctx))
			}
		}()
		return result, errInjected
	}
	r, err := call(context.WithoutCancel(ctx))
	if s.chance(f.lost) {
		return result, errInjected
	}
	if err := s.pass(ctx); err != nil {
		return result, err
	}
	return r, err
}

func (s *simStore) Get(ctx context.Context, name string) (Record, error) {
	return do(ctx, s, func(ctx context.Context) (Record, error) { return s.Store.Get(ctx, name) })
}

func (s *simStore) List(ctx context.Context, group string) ([]Record, string, error) {
	type list struct {
		records []Record
		version string
	}
	l, err := do(ctx, s, func(ctx context.Context) (l list, err error) {
		l.records, l.version, err = s.Store.List(ctx, group)
		return l, err
	})
	return l.records, l.version, err
}

func (s *simStore) Create(ctx context.Context, r Record) (Record, error) {
	return s.write(ctx, r.Name, func(ctx context.Context) (Record, error) { return s.Store.Create(ctx, r) })
}

func (s *simStore) Update(ctx context.Context, r Record) (Record, error) {
	return s.write(ctx, r.Name, func(ctx context.Context) (Record, error) { return s.Store.Update(ctx, r) })
}

func (s *simStore) write(ctx context.Context, name string, call func(context.Context) (Record,
	error)) (Record, error) {
	return do(ctx, s, func(ctx context.Context) (Record, error) {
		if err := s.refusal(name); err != nil {
			return Record{}, err
		}
		return s.wrote(call(ctx))
	})
}

func (s *simStore) wrote(r Record, err error) (Record, error) {
	if err == nil {
		s.log("%s writes %s %s", s.name, r.Name, r.Data)
	}
	return r, err
}

func (s *simStore) Delete(ctx context.Context, name, version string) error {
	_, err := s.write(ctx, name, func(ctx context.Context) (Record, error) {
		return Record{Name: name, Data: "(deleted)"}, s.Store.Delete(ctx, name, version)
	})
	return err
}

func (s *simStore) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	s.stop.wait()
	defer s.stop.wait()
	if err := s.pass(ctx); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var last []Event
	return s.Store.Watch(ctx, group, version, func(e Event) {
		delay := 20 * time.Millisecond
		if f := s.now(); s.chance(f.watch) {
			switch s.random(3) {
			case 0:
				delay = 40 * time.Second // and all that come after it
			case 1:
				for _, e := range last {
					changed(e)
				}
			case 2:
				end(errInjected)
			}
		}
		if wait(ctx, s.random(delay)) != nil || s.isCut() && waitWhile(ctx, s.isCut) != nil {
			return
		}
		s.stop.wait()
		if s.isDead() || ctx.Err() != nil {
			return
		}
		changed(e)
		last = append(last[max(0, len(last)-5):], e)
	})
}

func waitWhile(ctx context.Context, condition func() bool) error {
	for condition() {
		if err := wait(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
