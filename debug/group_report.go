package debug

import (
	"slices"
	"time"
)

// groupReport is a group that is paused, or that listed keys have.
type groupReport struct {
	// Group is the whole name, which an action needs, unless Cut: then there is no button.
	Group  string `json:"group"`
	Cut    bool   `json:"-"`
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

// AtLimit reports whether the group's other keys wait for a held key.
func (g groupReport) AtLimit() bool { return g.Limit > 0 && g.Held >= g.Limit }

// maxGroup is how many bytes a group's name has at most, if it is to be paused from the page.
const maxGroup = 4 << 10

// groups returns the paused groups, and those of the listed keys, with what the queue knows of them.
func (r *reading) groups(lists map[string][]knownKey) []groupReport {
	names, listed := slices.Clone(r.pausedGroups), make(map[string]int)
	seen := make(map[any]bool) // A key may be in two lists.
	for _, s := range sections {
		for _, k := range lists[s.State] {
			group := k.inQueue.Group
			if group == "" || seen[k.key()] {
				continue
			}
			seen[k.key()] = true
			if listed[group]++; listed[group] == 1 && !slices.Contains(r.pausedGroups, group) {
				names = append(names, group)
			}
		}
	}
	return mapped(names[:min(len(names), maxKeys)], func(name string) groupReport {
		group := r.entry.queue.SnapshotGroup(name)
		g := groupReport{Group: name, Listed: listed[name], Keys: group.Keys, Held: group.Held, Limit: group.Limit,
			Paused:      slices.Contains(r.pausedGroups, name),
			PausedUntil: group.PausedUntil.UTC(), PausedFor: between(r.at, group.PausedUntil)}
		if g.Cut = len(name) > maxGroup; g.Cut {
			g.Group = short(name, maxName)
		}
		return g
	})
}
