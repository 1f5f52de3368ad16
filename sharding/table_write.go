package sharding

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// writeTable writes the next table, repeatedly while others change it first. A new one waits for mayFill.
func (m *Member) writeTable(now time.Duration) (due time.Duration, err error) {
	for range 20 {
		m.mu.Lock()
		t, isThere := m.mu.view.table, m.mu.view.isThere()
		m.mu.Unlock()
		if !isThere {
			return now + m.config.Lease, nil
		}
		if t.settling {
			if ready, due, err := m.mayFill(t); err != nil || !ready {
				return due, err
			}
		}
		began := m.nowByBoth()
		next, version, due := m.nextTable(t.id, began.mono)
		if next == nil {
			return due, nil
		}
		r, err := m.put(m.tableRecord(next, version))
		m.update(func() { m.noteWriteLocked(next, err) })
		if err == nil {
			return m.now(), m.sawTable(r, began, t) // There may be more to do.
		}
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
			err = m.confirm()
		}
		if err != nil {
			return now, err
		}
		if m.sleep(m.ctx, rand.N(conflictPause), nil) != nil { // Members must not all try again at once.
			return now, nil
		}
	}
	return m.now() + shortPause, nil
}

// tableRecord returns a record for the table. It has no holder: kubectl would show that as a leader.
func (m *Member) tableRecord(t *table, version string) Record {
	return Record{Name: m.tableName(), Group: m.config.Group, Version: version, Data: t.encode(),
		Renewed: m.config.Clock.Now()}
}

// noteWriteLocked notes how a write of table t has ended. If the server has refused handovers for certain,
// the member keeps the slots for now. After any other error the slots rest until a newer table shows who
// holds them.
func (m *Member) noteWriteLocked(t *table, err error) {
	// Another write came first, perhaps this one: a client repeats a request if the answer asks for that.
	wasChanged := errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrExists)
	if h := &m.mu.health; err == nil || errors.Is(err, ErrConflict) {
		h.unwritable.end()
	} else if !wasChanged {
		h.unwritable.begin(m.now())
		h.writeErr = err
	}
	given := 0
	for i := range m.slots {
		s := &m.slots[i]
		switch {
		case !s.handover.isDecidedBy(t, i): // This write is about other slots.
		case err == nil:
			if t.slots[i].holder != m.mu.self.id {
				given++
			}
		case errors.Is(err, ErrRefused) && !s.handover.unsure: // No attempt can have been written.
			s.handover, s.keepUntil = handover{}, m.now()+m.config.Lease
		default:
			s.handover.unsure = true
		}
	}
	if given > 0 {
		m.logLocked(slog.LevelInfo, "Handed over slots", "member", m.mu.self.id, "slots", given)
	}
}
