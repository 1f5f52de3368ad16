package debug

import (
	"slices"
	"time"
)

// groupReport is a group that is paused, or that listed keys have.
type groupReport struct {
	Group  string `json:"group"`
	Paused bool   `json:"paused"`
	// PausedUntil is when the pause ends, and PausedFor how long that is, if it ends by itself.
	PausedUntil time.Time `json:"paused_until,omitzero"`
	PausedFor   *seconds  `json:"paused_for_seconds,omitempty"`
	// Listed is how many of the listed keys it has, and Keys how many of all, or Listed if the queue does not
	// know.
	Listed int `json:"listed"`
	Keys   int `json:"keys"`
	// Held is how many of its keys workers have or have put on hold, and Limit how many that may be.
	Held  int `json:"held,omitempty"`
	Limit int `json:"limit,omitempty"`
}

// AtLimit reports whether the group's other keys wait for one that is held.
func (g groupReport) AtLimit() bool { return g.Limit > 0 && g.Held >= g.Limit }

// groups returns the paused groups, and those of the listed keys, with what the queue knows of them.
func (r *reading) groups(lists keyLists, now time.Time) []groupReport {
	names, listed := slices.Clone(r.pausedGroups), make(map[string]int)
	seen := make(map[any]bool) // A key may be in two lists.
	for _, keys := range lists.all() {
		for _, k := range *keys {
			if k.Group == "" || seen[k.raw] {
				continue
			}
			seen[k.raw] = true
			if listed[k.Group]++; listed[k.Group] == 1 && !slices.Contains(r.pausedGroups, k.Group) {
				names = append(names, k.Group)
			}
		}
	}
	return mapped(names[:min(len(names), maxKeys)], func(name string) groupReport {
		g := groupReport{Group: name, Listed: listed[name], Keys: listed[name]}
		g.Paused = slices.Contains(r.pausedGroups, name)
		if r.entry.queue.SnapshotGroup != nil {
			group := r.entry.queue.SnapshotGroup(name)
			g.Keys, g.Held, g.Limit = group.Keys, group.Held, group.Limit
			g.PausedUntil, g.PausedFor = group.PausedUntil.UTC(), between(now, group.PausedUntil)
		}
		return g
	})
}
