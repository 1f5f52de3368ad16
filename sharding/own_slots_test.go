package sharding

import (
	"testing"

	"github.com/keyedqueue/workqueue/leasing"
)

// A member that leaves and loses touch with the server has not left: its handlers' contexts end with the
// cause of a lost lease.
func TestLeaverThatLosesTouch(t *testing.T) {
	m := holdingAll(1)
	m.mu.phase, m.mu.wasValid = leaving, true
	m.mu.self.renewed = neverMoment
	m.mu.Lock()
	m.updateSlotsLocked()
	ended := m.mu.effects.toEnd
	m.mu.Unlock()
	if len(ended) != 1 || ended[0].cause != leasing.ErrLost {
		t.Errorf("FAILURE: %+v", ended)
	}
}
