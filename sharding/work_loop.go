package sharding

import "time"

// workLoop acts for the group: it makes and writes the table, marks and deletes the records of the dead, and
// lets this member leave. Each step decides under mu by mu.view and mu.members, which the other loops keep up
// to date, and writes to the store without mu, on condition that what it has decided by is still stored. No
// other loop writes the table or another member's record.
func (m *Member) workLoop() {
	var lacksQueue failureCount
	steps := []step{
		{f: m.makeTable, failure: "Cannot make a table"},
		{f: m.markOverdue, failure: "Cannot mark the record of a member"},
		{f: m.tidyRecords, failure: "Cannot read or delete the record of a member"},
		{f: m.writeTable, failure: "Cannot move slots"},
	}
	for !m.tryLeave() {
		m.logFailure(&lacksQueue, "No slots", m.lacksQueue())
		next, failed := m.work(steps)
		wake := m.toWork
		if failed {
			next, wake = m.now()+shortPause, nil // A server in trouble does not get a call for each signal.
		}
		if m.sleep(m.ctx, max(0, next-m.now()), wake) != nil {
			return
		}
	}
}

// step is a part of what workLoop does. f returns when to call it again if nothing changes.
type step struct {
	f        func(now time.Duration) (due time.Duration, err error)
	failure  string // what to log
	failures failureCount
}

// work does what is due. It returns when to look again if nothing changes, and whether a step failed.
func (m *Member) work(steps []step) (next time.Duration, failed bool) {
	now := m.now()
	m.update(func() {
		next = m.endTimedOutLocked(now)
		if m.mu.handOverAt > now {
			next = min(next, m.mu.handOverAt)
		}
	})
	for i := range steps {
		s := &steps[i]
		due, err := s.f(now)
		m.logFailure(&s.failures, s.failure, err)
		failed = failed || err != nil
		next = min(next, due)
	}
	return next, failed
}

// turnWaitLocked returns how long this member waits, so that those with smaller ids can do the same first.
func (m *Member) turnWaitLocked(now time.Duration) time.Duration {
	rank := 0
	for id, k := range m.mu.members {
		if id < m.mu.self.id && k.isAlive(now) {
			rank++
		}
	}
	return turnPause * time.Duration(min(rank, maxTurns))
}
