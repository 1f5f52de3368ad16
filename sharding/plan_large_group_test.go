package sharding

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
)

// distant is a store whose calls and watches take time.
type distant struct {
	Store
	trip  time.Duration
	reads atomic.Int64
}

// there calls the store on the other side.
func (s *distant) there(call func()) {
	time.Sleep(s.trip)
	call()
	time.Sleep(s.trip)
}

func (s *distant) Get(ctx context.Context, name string) (r Record, err error) {
	s.reads.Add(1)
	s.there(func() { r, err = s.Store.Get(ctx, name) })
	return r, err
}

func (s *distant) List(ctx context.Context, group string) (records []Record, version string, err error) {
	s.there(func() { records, version, err = s.Store.List(ctx, group) })
	return records, version, err
}

func (s *distant) Create(ctx context.Context, r Record) (stored Record, err error) {
	s.there(func() { stored, err = s.Store.Create(ctx, r) })
	return stored, err
}

func (s *distant) Update(ctx context.Context, r Record) (stored Record, err error) {
	s.there(func() { stored, err = s.Store.Update(ctx, r) })
	return stored, err
}

func (s *distant) Delete(ctx context.Context, name, version string) (err error) {
	s.there(func() { err = s.Store.Delete(ctx, name, version) })
	return err
}

func (s *distant) Watch(ctx context.Context, group, version string, changed func(Event)) error {
	return s.Store.Watch(ctx, group, version, func(e Event) {
		time.AfterFunc(s.trip, func() { changed(e) })
	})
}

// A quarter of the replicas joins, then a quarter leaves, and then a rolling update replaces them all, a
// quarter joining while another one leaves. The server takes 50 ms. No slot is without a holder for longer
// than a second, and each member makes a few reads, not one for each that leaves.
func TestSlotThatMovesInLargeGroup(t *testing.T) {
	sizes := []int{10, 30}
	switch {
	case testkit.RaceEnabled, testing.Short():
		sizes = sizes[:1] // The others take minutes then.
	case os.Getenv("SHARDING_LARGE") != "":
		sizes = append(sizes, 100) // for which it computes for half a minute
	}
	for _, n := range sizes {
		synctest.Test(t, func(t *testing.T) {
			store := &distant{Store: Memory(), trip: 25 * time.Millisecond}
			members := make([]*Member, n)
			join := func(members []*Member) {
				var joins sync.WaitGroup
				for i := range members {
					joins.Go(func() {
						members[i], _ = Join(t.Context(), store, Config{Group: "g", Name: fmt.Sprint("m", i)})
						addIdleQueue(members[i])
					})
				}
				joins.Wait()
			}
			join(members)
			time.Sleep(time.Minute)
			held := make([]time.Time, 256) // when each slot had a holder last
			longest := time.Duration(0)
			var mu sync.Mutex // guards members
			watch := func(d time.Duration) {
				for i := range held {
					held[i] = time.Now()
				}
				for began := time.Now(); time.Since(began) < d; time.Sleep(10 * time.Millisecond) {
					mu.Lock()
					now := slices.Clone(members)
					mu.Unlock()
					for _, m := range now {
						for i := range m.slots {
							if m.state(i) == 1 {
								held[i] = time.Now()
							}
						}
					}
					for _, last := range held {
						longest = max(longest, time.Since(last))
					}
				}
			}
			newer := make([]*Member, n/4)
			join(newer)
			members = append(members, newer...)
			began := time.Now()
			watch(20 * time.Second)
			for _, m := range newer {
				if held := m.Stats().Held; held < 256/len(members) {
					t.Errorf("a new member of %d holds %d slots after %v", n, held, time.Since(began))
				}
			}
			joined := longest
			longest = 0
			for _, m := range members[:n/4] {
				go func() { _ = m.Leave(t.Context()) }()
			}
			reads := store.reads.Load()
			watch(10 * time.Second)
			left := longest
			if reads = store.reads.Load() - reads; reads > int64(3*len(members)) {
				t.Errorf("FAILURE: %d records were read while %d of %d members left", reads, n/4, len(members))
			}
			longest = 0
			old := slices.Clone(members[n/4:])
			go func() {
				for len(old) > 0 {
					newer := make([]*Member, n/4)
					join(newer)
					mu.Lock()
					members = append(members, newer...)
					mu.Unlock()
					time.Sleep(time.Second) // until they are ready
					leaving := min(n/4, len(old))
					for _, m := range old[:leaving] {
						go func() { _ = m.Leave(t.Context()) }() // while the next ones join
					}
					old = old[leaving:]
				}
			}()
			watch(30 * time.Second)
			t.Logf(
				"%d replicas: a slot is without a holder for %v at most while %d join, for %v while %d leave, and for %v in a rolling update",
				n, joined, n/4, left, n/4, longest)
			if max(joined, left, longest) > time.Second {
				t.Errorf("FAILURE: %d replicas: %v, %v, %v", n, joined, left, longest)
			}
			for _, m := range members {
				m.end()
			}
			time.Sleep(time.Second) // until the calls under way have returned
		})
	}
}
