package sharding

// counts are the numbers of a member since it joined.
type counts struct {
	lostLeases, keptSlots, handedOver uint64
}

func (m *Member) logChangesLocked(valid bool, c changes) {}
