package sharding

import "time"

// Restored backups and copies take records back in time. Here is how a member notices that (with relationTo
// and noteStored), and how long it waits then; docs/project/sharding.md says why.

// isAheadOf reports whether the member has known a later state of the table.
func (k *knownMember) isAheadOf(t *table) bool {
	return k.data.Table == t.id && k.data.TableEpoch > t.epoch
}

// isOutdatedLocked reports whether a member's record names a later state of the table than t. Only records
// with a serial up to upTo count: if t was read after these were seen, it has gone back in time.
func (m *Member) isOutdatedLocked(t *table, upTo int64) bool {
	for _, k := range m.mu.members {
		if k.serial <= upTo && k.isAheadOf(t) {
			return true
		}
	}
	return false
}

// noteBrokenLocked notes that the stored table t, with record r, has gone back in time; see makeTable.
func (m *Member) noteBrokenLocked(t *table, r Record) {
	view := &m.mu.view
	if view.broken == nil {
		m.logger.Error("The table has gone back in time: a backup or a copy was restored. "+
			"Replacing it, for which all slots rest for a lease", "table", t.id, "epoch", t.epoch)
	}
	view.obstacle = obstacle{broken: &r}
	view.epochEver, view.longestLease = max(view.epochEver, t.epoch), max(view.longestLease, t.lease)
	m.noteEarlierLocked()
}

// noteEarlierLocked notes, also in the member's record, that there was an earlier table.
func (m *Member) noteEarlierLocked() {
	if !m.mu.view.earlier {
		m.mu.view.earlier = true
		signal(m.toRenew)
	}
}

// noAnswer notes that the server may have been away, and may have been restored before it answers again.
func (m *Member) noAnswer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.unansweredAt = m.now()
}

// hasRenewedSinceLocked reports whether the member has renewed its own record since that moment, and since
// the last call without an answer: then no restore has taken back, meanwhile, what others have written.
func (m *Member) hasRenewedSinceLocked(then time.Duration) bool {
	return m.mu.self.renewed.mono >= max(then, m.mu.unansweredAt)
}

// suspectRestoreLocked is called when the member's own record shows that a backup may have been restored.
func (m *Member) suspectRestoreLocked() {
	m.mu.restoreSuspectedAt = m.now()
	m.extendLeasesLocked(1)
	signal(m.toConfirm)
}

// extendLeasesLocked gives the others at least that part of their leases, from now, to renew their records: a
// restore may have taken back a renewal that this member has not seen. A third is enough for those that
// noticed the outage. After a long gap or a restore they get it all: one that was stopped has not noticed.
func (m *Member) extendLeasesLocked(part float64) {
	for _, k := range m.mu.members {
		if !k.isGone {
			k.leaseFrom = max(k.leaseFrom, m.now()-time.Duration((1-part)*float64(k.data.Lease)))
		}
	}
}

// mayPlanAtLocked returns when this member may move slots that are not its own. Before that, the table may be
// one from a backup, and others may hold slots that it gives to the dead, or to nobody.
func (m *Member) mayPlanAtLocked(now time.Duration) time.Duration {
	switch suspicionEnds := m.mu.restoreSuspectedAt + m.mu.view.longestLease; {
	case suspicionEnds > now:
		return suspicionEnds
	case !m.hasRenewedSinceLocked(never): // It has not since the last outage.
		signal(m.toRenew) // A renewal wakes this loop again.
	case !m.mustHearOthersLocked(now):
		return now
	}
	return now + m.config.Lease // A signal comes before that.
}

// mustHearOthersLocked reports whether this member has still to list the others, or one that is not dead has
// not renewed its record since, by its serial. A renewal shows whether its member knows a later table.
func (m *Member) mustHearOthersLocked(now time.Duration) bool {
	listedSerial := m.mu.self.lastListedSerial
	for id, k := range m.mu.members {
		if id != m.mu.self.id && 0 < k.serial && k.serial <= listedSerial && k.liveness(now) != dead {
			return true
		}
	}
	return listedSerial == notListed
}
