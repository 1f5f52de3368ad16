package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// phase is how far a member is with leaving. It only grows.
type phase int

const (
	staying  phase = iota
	leaving        // Leave was called. The member takes no slots, and hands out no keys.
	retiring       // None of its handlers runs any more. It has no slots, and does not renew its record.
	retired        // Its record has been marked or, if that failed, deleted: then the others wait for a lease.
)

// hasLeftLocked reports whether the member holds nothing any more, and never will.
func (m *Member) hasLeftLocked() bool { return m.mu.phase >= retiring || m.ctx.Err() != nil }

// Leave makes the member hand over its slots to the others and leave the group. From now on its queues hand
// out nothing. Slots without running handlers move at once; others when their handlers have returned, whose
// contexts end after HandoverTimeout. If no other member is there, nobody holds the slots until one joins.
//
// Leave returns nil when the member holds nothing any more, and its record is deleted, or marked so that the
// others can take at once what it held. (Without slots it returns nil even if the record stays.) If ctx
// is done while it still has slots, it returns an error: the contexts of the handlers that still run end, and
// the others take over what is left after a lease. Leave gives up in the same way a lease after the last
// handler has returned, if the server refuses what the member has to write. The queues keep their keys.
// Further calls wait with the first and return the same: the first context that is done ends all of them.
// After [ErrRestored], Leave returns that.
//
// Leave returns after the calls of the store and the logger that are under way, even if ctx is done. Nothing
// is logged after that. A call of QueueConfig.Keys may still run, with a context that has ended.
//
// Call it when the workers have ended or, so that the keys of other slots need not wait for slow handlers,
// when the program begins to stop. Its context must not end with the signal to stop. Give it a deadline:
// Leave waits for handlers that do not return.
func (m *Member) Leave(ctx context.Context) error {
	m.update(func() {
		if m.mu.phase == staying {
			m.mu.phase = leaving
			m.logLocked(slog.LevelInfo, "Leaving", "member", m.mu.self.id)
		}
	})
	signal(m.toWork)
	select {
	case <-m.left:
	case <-m.ctx.Done(): // by another call, or ErrRestored
	case <-ctx.Done():
		m.mu.Lock()
		if m.ctx.Err() == nil {
			m.mu.leaveErr = ctx.Err()
			m.end()
		}
		m.mu.Unlock()
	}
	m.end()
	n := m.abandon() // before the wait: nothing but this ends tenures now, and a loop may hang in a logger
	m.loops.Wait()
	m.logger.end()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.restored {
		return ErrRestored
	}
	if err := m.mu.leaveErr; err != nil && n > 0 && m.mu.phase < retired {
		return fmt.Errorf("sharding: left without handing over %d slots: %w", n, err)
	}
	return nil
}

// tryLeave lets the member leave if none of its handlers runs, and reports whether it has left. With the mark
// on its record, the first of the others can give away all slots of members that leave at the same time.
func (m *Member) tryLeave() bool {
	var r Record
	var ready bool
	m.update(func() { r, ready = m.beginToRetireLocked() })
	if !ready {
		return false
	}
	err := m.retire(r)
	m.mu.Lock()
	if m.mu.leaveErr = cmp.Or(m.mu.leaveErr, err); err == nil {
		m.mu.phase = retired
	}
	m.mu.Unlock()
	if m.ctx.Err() != nil {
		return true
	}
	if err == nil {
		m.logger.log(slog.LevelInfo, "Left", "member", r.Holder)
	}
	close(m.left)
	return true
}

// beginToRetireLocked returns the record that ends the member's life, unless it must wait for handlers.
func (m *Member) beginToRetireLocked() (r Record, ready bool) {
	if m.mu.phase == staying || m.anyBusy() {
		return Record{}, false
	}
	for i := range m.slots {
		if m.state(i) == stopping {
			m.releaseLocked(i, m.mu.view.table)
		}
	}
	m.mu.phase, m.mu.self.alive = max(m.mu.phase, retiring), false
	m.mu.self.sequence++
	r, _ = m.selfRecordLocked(m.mu.self.follows, true)
	return r, true
}

// retire stores r, which marks the member's record, so that nobody waits for a lease. If the table gives the
// member no slot, it deletes the record. Otherwise whoever takes the slots does that. A record that cannot be
// marked is deleted at once: then the others wait for a lease.
func (m *Member) retire(r Record) error {
	marked, err := m.markSelf(r)
	if marked && !m.holdsNothing() {
		return nil
	}
	notDeleted := m.deleteSelf(m.ctx)
	if notDeleted == nil {
		return nil
	}
	if m.ctx.Err() == nil {
		m.logger.log(slog.LevelWarn, "Cannot delete the member's record", "member", m.ID(), "err", notDeleted)
	}
	return err
}

// markSelf tries for a lease to store r. A record that is not there needs no mark.
func (m *Member) markSelf(r Record) (marked bool, err error) {
	if r.Version == "" {
		return true, nil
	}
	for until := m.now() + m.config.Lease; m.now() < until; {
		_, err = m.put(r)
		pause := shortPause
		if errors.Is(err, ErrConflict) { // with the last renewal, or an attempt that has reported an error
			if known, getErr := m.get(r.Name); getErr == nil {
				r.Version, pause = known.Version, conflictPause
			}
		}
		switch {
		case err == nil, errors.Is(err, ErrNotFound):
			return true, nil
		case errors.Is(err, ErrRefused), m.sleep(m.ctx, pause, nil) != nil:
			return false, err
		}
	}
	return false, err
}

// holdsNothing reports whether the table gives the member no slot any more.
func (m *Member) holdsNothing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	view := &m.mu.view
	return !view.isThere() || !view.table.names(m.mu.self.id)
}

func (m *Member) deleteSelf(ctx context.Context) error {
	return m.call(ctx, func(ctx context.Context) error {
		r, err := m.store.Get(ctx, m.recordName(m.ID()))
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
func (m *Member) abandon() (slots int) {
	m.update(func() {
		if t := m.mu.view.table; t != nil {
			for _, slot := range t.slots {
				if slot.holder == m.mu.self.id {
					slots++
				}
			}
		}
		m.mu.self.alive = false
	})
	return slots
}
