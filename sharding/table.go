package sharding

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// table says who holds which slot. A table that was decoded or stored does not change any more.
type table struct {
	id string // A table that was deleted and made again has another one.
	// epoch grows with each write. It starts at the milliseconds since 1970, so that it is probably greater than
	// in an earlier group. A table that replaces another one goes on from the epochs in the members' records.
	epoch int64
	// settling: the table is new, and somebody may hold slots by another one. replaces: there was another one.
	settling, replaces bool
	// lease is the longest that a member ever had: one that was cut off may still count on it. It never gets
	// shorter. hashes has the fingerprint of how each queue hashes its keys, by the queue's name.
	lease   time.Duration
	hashes  map[string]string
	leaving []string // members that hand over what they hold, and must not get more
	slots   []tableSlot
	// deaths has the deaths of members that held slots and had not left, by nameOf their ids.
	deaths map[string]deaths
	// uid is that of the record. copied: the table is a copy, by hand, of what was in another one.
	uid     string
	copied  bool
	unknown map[string]json.RawMessage // fields of a later version of the library
}

// deaths is how many members of a name have died, and when the last one was found, in seconds since 1970. It
// only decides how long a newcomer waits, so clocks need not agree.
type deaths struct {
	N    int   `json:"n"`
	Last int64 `json:"last"`
}

// count returns how many deaths are not forgotten yet.
func (x deaths) count(now time.Time) int {
	if now.Sub(time.Unix(x.Last, 0)) >= deathsCountFor {
		return 0
	}
	return x.N
}

// countDeaths notes that members of these names have died.
func (t *table) countDeaths(names map[string]bool, now time.Time) {
	if len(names) == 0 {
		return
	}
	all := maps.Collect(maps.All(t.deaths))
	maps.DeleteFunc(all, func(_ string, x deaths) bool { return x.count(now) == 0 })
	for name := range names {
		all[name] = deaths{all[name].N + 1, now.Unix()}
	}
	t.deaths = all
}

// tableSlot has the holder of a slot since that epoch, and the next one if it is to move, else "".
type tableSlot struct {
	holder, next string
	epoch        int64
}

func newTable(id string, slots int, epoch int64) *table {
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

// same reports whether t says the same as another table of its id. Deaths alone do not count.
func (t *table) same(clone *table) bool {
	return t.settling == clone.settling && t.lease == clone.lease && slices.Equal(t.leaving, clone.leaving) &&
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

// relation is what a table is to the one that was known before.
type relation int

const (
	successor relation = iota // It has another id, and comes after the known one, if any.
	newer                     // The known one has led to it.
	same                      // It says the same.
	older                     // It was there before the known one.
	contrary                  // Neither can have led to the other.
)

// relationTo compares t with the known table, or nil. A table from a backup is older or contrary. If others
// have written it since, it may seem newer. A new table has no smaller epoch than tableEpochEver (see view).
func (t *table) relationTo(known *table, tableEpochEver int64) relation {
	switch {
	case t.copied:
		return contrary
	case known == nil:
		return successor
	case t.id != known.id && t.epoch >= tableEpochEver:
		return successor
	case t.id != known.id, t.epoch < known.epoch:
		return older
	case t.epoch == known.epoch && t.same(known):
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
