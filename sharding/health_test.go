package sharding

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// While writes of the table fail, the log has the first failure and each doubling of their number, and so
// again after two leases without one.
func TestRepeatedFailureIsLoggedAtEachDoubling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		ofA := &faulty{Store: Memory()}
		a := mustJoin(t, ofA, Config{Name: "b", Slots: 2, Logger: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(10 * time.Second)
		for range 2 {
			synctest.Wait() // for the members, which may be logging
			log.Reset()
			ofA.refuse(errors.New("the server is busy"), true)
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
			ofA.do(nil)
			time.Sleep(20 * time.Second)
			wantHeld(t, 1, 1)(a, b)
			if err := b.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(40 * time.Second)
		}
	})
}

// An incompatible table is what a person must know first: by then it cannot be written either.
func TestErrNamesIncompatibleTableFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := holdingAll(1)
		m.mu.health.writeErr = errors.New("the server is busy")
		m.mu.health.unwritable.begin(m.now())
		time.Sleep(2 * m.config.Lease)
		if err := m.Err(); !errors.Is(err, m.mu.health.writeErr) {
			t.Error("FAILURE:", err)
		}
		m.mu.view.unusable = ErrIncompatible
		if err := m.Err(); !errors.Is(err, ErrIncompatible) {
			t.Error("FAILURE:", err)
		}
		if m.mu.phase = retiring; m.Err() != ErrLeft { // Its record is not renewed any more.
			t.Error("FAILURE:", m.Err())
		}
	})
}

// A conflict is the answer of a server that takes writes of the table.
func TestConflictEndsRefusal(t *testing.T) {
	m := holdingAll(1)
	m.noteWriteLocked(m.mu.view.table, ErrRefused)
	if !m.mu.health.unwritable.isSo {
		t.Error("FAILURE: the table counts as written")
	}
	if m.noteWriteLocked(m.mu.view.table, ErrConflict); m.mu.health.unwritable.isSo {
		t.Error("FAILURE: the table counts as refused")
	}
}
