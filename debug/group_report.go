package debug

import "slices"

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
