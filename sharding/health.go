package sharding

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
)

// health is what is wrong with a member, as far as it knows.
type health struct {
	refreshErr  error         // why the last refresh failed, or nil
	failedAt    time.Duration // when refresh last failed
	unwritable  condition     // The table cannot be written; writeErr is the latest reason.
	writeErr    error
	lacksQueues condition // The member has no queue, or not all of Config.Queues.
}

// Err returns nil if the member is in touch with its group, so that it may hold slots, and otherwise why it
// is not. It also returns an error if for a lease it could not write the table (then its slots cannot move),
// or mark the record of an overdue member. It recovers from all these by itself. It returns [ErrIncompatible]
// for a group that this replica does not fit; that stays until one of them changes. Without a queue for a
// lease, it returns [ErrNoQueue]. When Leave has let go of all slots, it returns ErrLeft, and after the
// records have gone back in time [ErrRestored]: both stay.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.errLocked()
}

func (m *Member) errLocked() error {
	h := &m.mu.health
	switch {
	case m.mu.restored:
		return ErrRestored
	case m.hasLeftLocked():
		return ErrLeft
	case m.mu.view.unusable != nil:
		return fmt.Errorf("sharding: %w", m.mu.view.unusable)
	case m.forLease(h.unwritable):
		return fmt.Errorf("sharding: cannot write the table: %w", h.writeErr)
	case !m.updateValidityLocked():
		lost := leasing.ErrLost
		if m.mu.view.missing || m.mu.view.confirmed == neverMoment { // It is new, or the table is.
			lost = errors.New("the member waits for a table of its group")
		}
		return fmt.Errorf("sharding: %w", cmp.Or(h.refreshErr, lost))
	}
	return cmp.Or(m.markErrLocked(), m.lacksQueueLocked())
}

func (m *Member) lacksQueue() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lacksQueueLocked()
}

// lacksQueueLocked notes whether the member lacks a queue, and returns ErrNoQueue after a lease of that.
func (m *Member) lacksQueueLocked() error {
	lacks := &m.mu.health.lacksQueues
	if m.queuesIfAllLocked() > 0 {
		lacks.end()
		return nil
	}
	lacks.begin(m.now())
	switch {
	case !m.forLease(*lacks):
		return nil
	case len(m.mu.queueNames) > 0:
		return fmt.Errorf("%w: it has %q, and Config.Queues also %q",
			ErrNoQueue, m.mu.queueNames, m.lackingLocked())
	}
	return ErrNoQueue
}

// markErrLocked returns an error if this member has not been able for a lease to mark an overdue record.
func (m *Member) markErrLocked() error {
	now := m.now()
	for id, k := range m.mu.members {
		if k.liveness(now) == overdue && m.forLease(k.unmarkable) {
			return fmt.Errorf("sharding: cannot mark the record of %s, which is overdue: %w", id, k.markErr)
		}
	}
	return nil
}
