package sharding

import (
	"testing"

	"github.com/keyedqueue/workqueue/leasing"
)

// A member that leaves and loses touch with the server has not left: its handlers' contexts end with the
// cause of a lost lease, and it must hear the others before it plans again.
func TestLeaverThatLosesTouch(t *testing.T) {
	m := holdingAll(1)
	m.mu.phase, m.mu.wasValid, m.mu.self.lastListedSerial = leaving, true, 7
	m.mu.self.renewed = neverMoment
	m.mu.Lock()
	m.updateSlotsLocked()
	ended := m.mu.changes.toEnd
	m.mu.Unlock()
	if len(ended) != 1 || ended[0].cause != leasing.ErrLost {
		t.Errorf("FAILURE: %+v", ended)
	}
	if m.mu.self.lastListedSerial != notListed {
		t.Error("FAILURE: the member relies on what it had heard before")
	}
}
