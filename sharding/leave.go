package sharding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Leave makes the member hand over its slots to the others and leave the group. From now on its queues hand out
// nothing. Slots without running handlers move at once; others when their handlers have returned, whose contexts
// end after HandoverTimeout. If no other member is there, nobody holds the slots until one joins.
//
// Leave returns nil when all is handed over and the member's record is deleted. If ctx is done first, it returns an error:
// the contexts of the handlers that still run end, and the others take over what is left after a lease. All queues still
// exist, and hold their keys, but hand out no more. A second call waits for the first.
//
// Call it when the workers have ended. Call it with a context that does not end with the signal to stop.
func (m *Member) Leave(ctx context.Context) error {
	m.mu.Lock()
	if !m.mu.leaving {
		m.mu.leaving = true
		m.logger.Info("Leaving", "member", m.mu.self.id)
	}
	m.unlock()
	signal(m.toWork)
	var err error
	select {
	case <-m.left:
	case <-m.ctx.Done(): // by another call
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.end()
	m.loops.Wait()
	n := m.abandon()
	select {
	case <-m.written:
	case <-ctx.Done(): // The logger blocks.
	}
	if err != nil && n > 0 {
		return fmt.Errorf("sharding: left without handing over %d slots: %w", n, err)
	}
	return nil
}

// tryLeave lets a member leave when none of its handlers runs. It marks its record, so that the first of the others can give away all that it
// and others that leave at the same time held. When that is done it deletes the record. It reports whether the member has left.
func (m *Member) tryLeave() bool {
	m.mu.Lock()
	view, id := &m.mu.view, m.mu.self.id
	unusable := view.table == nil || view.missing || view.broken != nil || view.incompatible != nil
	if !m.mu.leaving || m.anyBusy() || !unusable && !view.table.isRidOf(id) && !m.othersLocked() {
		m.mu.Unlock()
		return false
	}
	for i := range m.slots {
		if m.state(i) == stopping {
			m.releaseLocked(i, view.table)
		}
	}
	m.mu.finished, m.mu.self.alive = true, false
	r := m.deadRecordLocked()
	m.unlock()
	marked := unusable || r.Version == ""
	for until := m.now() + 2*time.Second; !(marked && m.isRid()) && m.now() < until; {
		if !marked {
			_, err := m.put(r)
			if errors.Is(err, ErrConflict) { // with the last renewal, or an attempt that has reported an error
				var known Record
				known, err = m.get(r.Name)
				r.Version = known.Version
				marked = known.Data == r.Data
			} else {
				marked = err == nil
			}
			marked = marked || errors.Is(err, ErrNotFound)
		}
		if (!marked || !m.isRid()) && m.sleep(m.ctx, soon, m.toWork) != nil {
			return true
		}
	}
	for {
		err := m.deleteSelf(m.ctx, id)
		if err == nil {
			m.logger.Info("Left", "member", id)
			close(m.left)
			return true
		}
		m.report("Cannot delete the member's record", err)
		if m.sleep(m.ctx, m.retryDelay(), nil) != nil {
			return true
		}
	}
}

// isRidOf reports whether a member that leaves has nothing to hand over, and gets nothing any more.
func (t *table) isRidOf(id string) bool {
	return slices.Contains(t.leaving, id) && !slices.ContainsFunc(t.slots, func(s tableSlot) bool { return s.holder == id || s.next == id })
}

// isRid reports whether the table names the member no more.
func (m *Member) isRid() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.mu.view.table
	return t == nil || m.mu.view.missing || m.mu.view.broken != nil || m.mu.view.incompatible != nil || !t.named()[m.mu.self.id] || t.isRidOf(m.mu.self.id)
}

// othersLocked reports whether there are other members that could take slots.
func (m *Member) othersLocked() bool {
	for id, s := range m.mu.members {
		if id != m.mu.self.id && s.isAlive(m.now()) && !slices.Contains(m.mu.view.table.leaving, id) {
			return true
		}
	}
	return false
}

// deadRecordLocked returns the member's record with the mark that it is dead.
func (m *Member) deadRecordLocked() Record {
	self := &m.mu.self
	return Record{Name: m.recordName(self.id), Group: m.config.Group, Version: self.version, Holder: self.id, Data: encode(memberData{
		Format: formatVersion, ID: self.id, Sequence: self.sequence + 1, Lease: int64(m.config.Lease), Slots: m.config.Slots,
		Table: self.follows, Earlier: m.mu.view.earlier, Epoch: m.mu.view.epoch, Dead: true,
	})}
}

func (m *Member) deleteSelf(ctx context.Context, id string) error {
	return m.call(ctx, func(ctx context.Context) error {
		r, err := m.store.Get(ctx, m.recordName(id))
		if err == nil {
			err = m.store.Delete(ctx, r.Name, r.Version)
		}
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// abandon stops holding slots. It returns how many the member still held.
func (m *Member) abandon() (held int) {
	m.mu.Lock()
	if t := m.mu.view.table; t != nil {
		for _, s := range t.slots {
			if s.holder == m.mu.self.id {
				held++
			}
		}
	}
	m.mu.self.alive = false
	m.unlock()
	return held
}

const (
	// batching is how long a plan waits for more members to come or go, and turn is how long each member lets the one
	// before it write the plan.
	batching = 200 * time.Millisecond
	turn     = 150 * time.Millisecond
	maxTurns = 4
	// spacing, for each member that is to hand over slots before, is how long one waits for these.
	spacing = 200 * time.Millisecond
	// stagger keeps members apart that write the table at the same time.
	stagger = 20 * time.Millisecond
	// probation is how long a member must live before it gets slots, if there are others.
	probation = time.Second
	// soon is when to look again after a failed call.
	soon = 250 * time.Millisecond
)
