package debug

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// groupReport is a group that is paused, or that listed keys have.
type groupReport struct {
	Group  string `json:"group"`
	ID     string `json:"id"`
	Paused bool   `json:"paused"`
	// PausedUntil is when the pause ends, and PausedFor how long that is, if it ends by itself.
	PausedUntil time.Time `json:"paused_until,omitzero"`
	PausedFor   *seconds  `json:"paused_for_seconds,omitempty"`
	// Listed is how many of the listed keys it has, and Keys how many of all, or Listed if the queue does not
	// know.
	Listed int `json:"listed"`
	Keys   int `json:"keys"`

	// Called is Group or, if another one looks like it, the name in full, in quotes.
	Called string `json:"-"`
	name   string
}

// groups returns the paused groups, and those of the listed keys, with what the queue knows of them.
func (r *reading) groups(lists keyLists, now time.Time) (groups []groupReport) {
	index := make(map[string]int)
	at := func(name string) *groupReport {
		i, ok := index[name]
		if !ok {
			i, index[name] = len(groups), len(groups)
			groups = append(groups, groupReport{Group: short(name, maxName), ID: groupID(name), name: name})
		}
		return &groups[i]
	}
	for _, name := range r.pausedGroups {
		at(name).Paused = true
	}
	seen := make(map[any]bool) // A key may be in two lists.
	for _, keys := range lists.all() {
		for _, k := range *keys {
			if k.Group != "" && !seen[k.raw] {
				seen[k.raw] = true
				at(k.group).Listed++
			}
		}
	}
	groups = groups[:min(len(groups), maxKeys)]
	alike := make(map[string]int)
	for _, g := range groups {
		alike[g.Group]++
	}
	for i := range groups {
		g := &groups[i]
		if g.Called = g.Group; alike[g.Group] > 1 {
			g.Called = short(strconv.Quote(g.name), maxError)
		}
		if g.Keys = g.Listed; r.entry.queue.SnapshotGroup == nil {
			continue
		}
		group := r.entry.queue.SnapshotGroup(g.name)
		if g.Keys = group.Keys; g.Paused {
			g.PausedUntil, g.PausedFor = group.PausedUntil.UTC(), between(now, group.PausedUntil)
		}
	}
	return groups
}

// actOnGroup does it with the group that form names. It returns done, and that no key has that group if that
// is so: its name may be mistyped.
func (r *reading) actOnGroup(do func(group string), form url.Values, done string) (string, error) {
	if !form.Has("group") {
		return "", refuse(http.StatusBadRequest, "The form lacks the field group.")
	}
	group, err := r.groupCalled(form.Get("group"), form.Get("group_id"))
	if err != nil {
		return "", err
	}
	do(group)
	if of := r.entry.queue.SnapshotGroup; of != nil && of(group).Keys == 0 {
		done += " No key has that group now: is it called so?"
	}
	return done, nil
}

// groupCalled returns the group with that id or, without an id, the one that is called text or that the page
// shows so. A group that has no keys and is not paused is called text.
func (r *reading) groupCalled(text, id string) (name string, err error) {
	var found []string
	look := func(group string) {
		fits := groupID(group) == id
		if id == "" {
			fits = group == text || short(group, maxName) == text
		}
		if fits && !slices.Contains(found, group) {
			found = append(found, group)
		}
	}
	for _, group := range r.pausedGroups {
		look(group)
	}
	for k := range r.entry.queue.SnapshotKeys() {
		look(k.Group)
	}
	switch {
	case len(found) > 1:
		return "", refuse(http.StatusConflict, "More than one group is called that: group_id distinguishes them.")
	case len(found) == 1:
		return found[0], nil
	case id != "":
		return "", refuse(http.StatusNotFound, "No key is in that group any more, and it is not paused.")
	}
	return text, nil
}
