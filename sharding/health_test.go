package sharding

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// While writes of the table fail, the log has the first failure and each doubling of their number, and so
// again after two leases without one.
func TestRepeatedFailureIsLoggedAtEachDoubling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log, busy := Memory(), new(bytes.Buffer), errors.New("the server is busy")
		ofA := &refuser{Store: store}
		a := mustJoin(t, ofA, Config{Name: "b", Slots: 2, Logger: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(10 * time.Second)
		for range 2 {
			synctest.Wait() // for the members, which may be logging
			log.Reset()
			ofA.table.Store(&busy)
			b := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
			time.Sleep(time.Minute)
			synctest.Wait()
			var counts []string
			for _, line := range regexp.MustCompile(`msg="Cannot move slots".*`).FindAllString(log.String(), -1) {
				counts = append(counts, regexp.MustCompile(`failures=(\d+)`).FindStringSubmatch(line)[1])
			}
			if want := []string{"1", "2", "4", "8", "16", "32", "64", "128", "256"}; len(counts) < 5 ||
				!slices.Equal(counts, want[:min(len(counts), len(want))]) {
				t.Errorf("FAILURE: the failures %v are logged", counts)
			}
			ofA.table.Store(nil)
			time.Sleep(20 * time.Second)
			wantHeld(t, 1, 1)(a, b)
			if err := b.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(40 * time.Second)
		}
	})
}

// markless is a store that does not answer when a member marks a record.
type markless struct {
	Store
	answers atomic.Bool
}

func (s *markless) Update(ctx context.Context, r Record) (Record, error) {
	if d, err := decodeMember(r); err == nil && d.Dead && !s.answers.Load() {
		return Record{}, errUnmarkable
	}
	return s.Store.Update(ctx, r)
}

// Something else has written a's record, so a goes on as a new member, and cannot mark its former self. Err
// says so after a lease, and not before. When the former self is marked and its record deleted, a forgets it.
func TestFormerSelfThatCannotBeMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newSimServer()
		store := &markless{Store: Leases(server, "ns")}
		a := mustJoin(t, store, Config{Name: "a", Slots: 2})
		mustJoin(t, store, Config{Name: "b", Slots: 2})
		time.Sleep(10 * time.Second)
		id := a.ID()
		setData(server, "g-member-"+id, "garbage")
		began := time.Now()
		for ; time.Since(began) < 50*time.Second; time.Sleep(100 * time.Millisecond) {
			err := a.Err()
			if errors.Is(err, errUnmarkable) && time.Since(began) < 14*time.Second {
				t.Fatalf("FAILURE: after %v: %v", time.Since(began), err)
			}
		}
		if err := a.Err(); !errors.Is(err, errUnmarkable) {
			t.Errorf("FAILURE: %v", err)
		}
		store.answers.Store(true)
		time.Sleep(30 * time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if _, known := a.mu.members[id]; known || len(a.mu.members) != 2 {
			t.Errorf("FAILURE: it knows %d members", len(a.mu.members))
		}
	})
}
