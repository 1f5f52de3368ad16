package sharding

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A watch that lags behind a list shows older records. These are no renewals: a member that was out of touch
// waits for renewals, because they show what the others know of the table.
func TestOlderRecordIsNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mustJoin(t, Memory(), Config{Name: "a"})
		time.Sleep(time.Second)
		show := func(sequence int64) {
			d := memberData{Format: formatVersion, ID: "b-1", Sequence: sequence, Lease: int64(15 * time.Second),
				Slots: 256}
			m.changed(Event{Record: Record{Name: "g-member-b-1", Group: "g", Version: fmt.Sprint(sequence),
				Data: encode(d, nil)}})
		}
		mustHear := func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.mustHearOthersLocked(m.now())
		}
		show(6)
		m.mu.Lock()
		m.mu.self.lastListedSerial = m.lastSerial.Load()
		m.mu.Unlock()
		show(5)
		show(6)
		if !mustHear() {
			t.Error("FAILURE: an older record counts as a renewal")
		}
		show(7)
		if mustHear() {
			t.Error("FAILURE: a renewal does not count")
		}
		m.end()
		time.Sleep(time.Minute)
	})
}
