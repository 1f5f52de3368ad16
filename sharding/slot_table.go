package sharding

import (
	"maps"
	"slices"
)

// table says who holds which slot. A table that was decoded or stored does not change any more.
type table struct {
	id string // A table that was deleted and made again has another one.
	// epoch grows with each write. It starts at the milliseconds since 1970, so that it is probably greater
	// than in an earlier group. A table that replaces another one continues from the epochs in the members'
	// records.
	epoch int64
	// settling: the table is new and not filled: no slot has a holder, because somebody may hold slots by
	// another one. replaces: there was another one, perhaps a damaged one.
	settling, replaces bool
	// hashes says how each queue hashes its keys, by the queue's name.
	hashes  map[string]string
	leaving []string // members that hand over what they hold, and must not get more
	slots   []tableSlot
}

// tableSlot is a slot's holder, the next one if it is to move, and the epoch since which it has this holder.
type tableSlot struct {
	holder, next string
	epoch        int64
}

func emptyTable(id string, slots int, epoch int64) *table {
	return &table{id: id, epoch: epoch, settling: true, slots: slices.Repeat([]tableSlot{{epoch: epoch}}, slots)}
}

// clone returns a copy to change, with the next epoch. Its maps are shared: replace them.
func (t *table) clone() *table {
	c := *t
	c.epoch++
	c.slots = slices.Clone(t.slots)
	c.leaving = slices.Clone(t.leaving)
	return &c
}

// give makes holder the holder of slot s. All slots that one write gives away get the same epoch.
func (t *table) give(s int, holder string) { t.slots[s] = tableSlot{holder: holder, epoch: t.epoch} }

// names reports whether a member holds a slot, or is to hold one next.
func (t *table) names(id string) bool {
	return slices.ContainsFunc(t.slots, func(s tableSlot) bool { return s.holder == id || s.next == id })
}

// hasHashes reports whether t names all these hashes. If it does not, another member may hash the keys of a
// queue in another way.
func (t *table) hasHashes(own map[string]string) bool {
	for name, hash := range own {
		if t.hashes[name] != hash {
			return false
		}
	}
	return true
}

// equals reports whether t says the same as another table of its id.
func (t *table) equals(clone *table) bool {
	return t.settling == clone.settling && slices.Equal(t.leaving, clone.leaving) &&
		maps.Equal(t.hashes, clone.hashes) && slices.Equal(t.slots, clone.slots)
}

// allNamed returns the ids of all members in the table.
func (t *table) allNamed() map[string]bool {
	named := make(map[string]bool)
	for _, slot := range t.slots {
		named[slot.holder], named[slot.next] = true, true
	}
	for _, id := range t.leaving {
		named[id] = true
	}
	delete(named, "")
	return named
}

// relation says how a table relates to the table that was known before.
type relation int

const (
	successor relation = iota // It has another id, and was made after the known one, if any.
	newer                     // The known one has led to it.
	same                      // It says the same.
	older                     // It was there before the known one.
	contrary                  // Neither can have led to the other.
)

// relationTo compares t with the known table, or nil. A table from a backup is older or contrary, or seems
// newer if others have written it since. A new table may have a lower epoch: its maker may not have seen the
// known one.
func (t *table) relationTo(known *table) relation {
	switch {
	case known == nil, t.id != known.id && (t.settling || t.epoch >= known.epoch):
		return successor
	case t.epoch < known.epoch:
		return older
	case t.epoch == known.epoch && t.equals(known):
		return same
	case t.epoch == known.epoch:
		return contrary
	}
	for i, slot := range t.slots {
		if k := known.slots[i]; slot.epoch < k.epoch || slot.epoch == k.epoch && slot.holder != k.holder {
			return contrary
		}
	}
	return newer
}
