package sharding

import "time"

// workLoop writes the table, marks and deletes records, and lets the member leave.
func (m *Member) workLoop() {
	steps := []step{
		{f: m.makeTable, failure: "Cannot make a table"},
		{f: m.markOverdue, failure: "Cannot mark the record of a member"},
		{f: m.tidyRecords, failure: "Cannot read or delete the record of a member"},
		{f: m.writeTable, failure: "Cannot move slots"},
	}
	for !m.tryLeave() {
		next, failed := m.work(steps)
		wake := m.toWork
		if failed {
			next, wake = m.now()+soon, nil // A server in trouble does not get a call for each signal.
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
		m.updateSlotsLocked()
		next = m.endTimedOutLocked(now)
		if m.mu.handOverAt > now {
			next = min(next, m.mu.handOverAt)
		}
	})
	m.mu.Lock()
	lacksQueue := m.lacksQueueLocked()
	m.mu.Unlock()
	m.logFailure(&m.noQueue, "No slots", lacksQueue)
	for i := range steps {
		s := &steps[i]
		due, err := s.f(now)
		m.logFailure(&s.failures, s.failure, err)
		failed = failed || err != nil
		next = min(next, due)
	}
	return next, failed
}

// turnLocked returns how long this member waits, so that those with smaller ids can do the same first.
func (m *Member) turnLocked(now time.Duration) time.Duration {
	rank := 0
	for id, k := range m.mu.members {
		if id < m.mu.self.id && k.isAlive(now) {
			rank++
		}
	}
	return turn * time.Duration(min(rank, maxTurns))
}
