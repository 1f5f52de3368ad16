package sharding

import (
	"errors"
	"fmt"
)

// refreshLoop keeps the member valid: three times in a lease, and at each signal, it reads the table and
// then renews the member's record. It alone writes that record, until workLoop marks it when the member
// leaves, and so it finds out whether the member's life has ended. What it reads it notes under mu: in
// mu.self, and in mu.view, where watchLoop and workLoop note what they see of the table.
func (m *Member) refreshLoop() {
	var failures failureCount
	for {
		began := m.now()
		err := m.refresh()
		m.logFailure(&failures, "Out of touch with the group", err)
		m.mu.Lock()
		m.mu.health.refreshErr = err
		next, wake := began+m.config.Lease/3, m.toRefresh
		if err != nil {
			m.mu.health.failedAt = m.now()
			next, wake = m.now()+m.retryDelay(), nil // A server in trouble does not get a call for each signal.
		}
		m.mu.Unlock()
		if m.sleep(m.ctx, max(0, next-m.now()), wake) != nil {
			return
		}
	}
}

// refresh reads the table, and then renews the record. So the record of a member that cannot read the table,
// or cannot use it, expires, and the others get its slots.
func (m *Member) refresh() error {
	if err := m.confirm(); err != nil {
		return fmt.Errorf("cannot use the table: %w", err)
	}
	if err := m.renew(); err != nil {
		return fmt.Errorf("cannot renew the lease: %w", err)
	}
	return nil
}

// confirm reads the table: a member that cannot does not know whether there is another one.
func (m *Member) confirm() error {
	m.mu.Lock()
	known := m.mu.view.table
	m.mu.Unlock()
	began := m.nowByBoth()
	r, err := m.get(m.tableName())
	switch {
	case err == nil:
		return m.sawTable(r, began, known)
	case !errors.Is(err, ErrNotFound):
		return err
	}
	m.update(func() {
		if m.mu.view.table == known {
			m.noteMissingTableLocked("", nil)
		} else { // It may be there by now.
			signal(m.toRefresh)
		}
	})
	return nil
}
