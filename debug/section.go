package debug

import "slices"

// stateSection describes the section of a page that lists the keys in a state. Hint says what the keys are,
// and Empty what an empty list means.
type stateSection struct {
	State, Title, Hint, Empty string

	total   func(*reading) int // how many keys are in that state
	actions []string           // what can be done with each key of the list
}

// stateSections are those of a queue's page.
var stateSections = []stateSection{
	{
		State: stateProcessing, Title: "Running",
		Hint: "held by workers, longest first", Empty: "No worker holds a key.",
		total:   func(r *reading) int { return max(r.InWork(), r.Workers.Busy) },
		actions: []string{"cancel"},
	},
	{
		State: stateOnHold, Title: "On hold",
		Hint: "wait to be released, or for their limit; the longest first", Empty: "No key is on hold.",
		total:   func(r *reading) int { return r.Stats.OnHold },
		actions: []string{"release"},
	},
	{
		State: stateQueued, Title: "Head of the line",
		Hint: "wait for a worker, next first", Empty: "No key waits for a worker.",
		total:   func(r *reading) int { return r.Stats.Queued },
		actions: []string{"remove"},
	},
	{
		State: stateWaiting, Title: "Waiting",
		Hint: "wait for their time, next due first", Empty: "No key waits for its time.",
		total:   func(r *reading) int { return r.Stats.Waiting },
		actions: []string{"retry", "remove"},
	},
	{
		State: stateFailing, Title: "Failing",
		Hint: "the most failures first", Empty: "No key is failing.",
		total:   func(r *reading) int { return r.Stats.Failing },
		actions: []string{"retry", "remove"},
	},
	{
		State: stateGivenUp, Title: "Given up",
		Hint: "are not retried by themselves, the latest first", Empty: "No key is given up.",
		total:   (*reading).GivenUp,
		actions: []string{"retry", "forget"},
	},
}

// sectionOf returns the section of the keys in that state, or false if there is no such state.
func sectionOf(state string) (s stateSection, isState bool) {
	if i := slices.IndexFunc(stateSections, func(s stateSection) bool { return s.State == state }); i >= 0 {
		return stateSections[i], true
	}
	return s, false
}

// section lists the first keys of a state.
type section struct {
	stateSection
	Keys []keyRow
	// Total is the number of keys in that state, and HrefAll the address of all, or empty on a page of all.
	Total   int
	HrefAll string
	QueueID string
	// Actions are what can be done with keys of the list, if it suits a key, and ForAll what with all of them:
	// with all in that state whose errors contain Errors.
	Actions, ForAll actionSet
	Errors          string
}

// foundKeys are some of total keys in a state whose errors contain text. isOfAll: they are for a page of all.
// If isPartial, there may be others.
type foundKeys struct {
	keys      []knownKey
	total     int
	isOfAll   bool
	text      string
	isPartial bool
}

// section returns the section of the keys that were found.
func (r *reading) section(of stateSection, offered actionSet, found foundKeys) section {
	ofKeys := offered.only(of.actions...)
	rows := r.rows(found.keys, of.State, ofKeys)
	s := section{
		stateSection: of, Keys: rows, Total: max(found.total, len(rows)), QueueID: r.ID(),
		Actions: ofKeys, Errors: found.text,
	}
	if !found.isOfAll && s.Total > len(rows) {
		s.HrefAll = href("queue", s.QueueID, "state", s.State)
	}
	if s.HasFailed() && len(rows) > 0 {
		s.ForAll = offered.only("retry", "forget")
	}
	switch {
	case found.isPartial || r.missing != nil:
		s.Empty = "Not known."
	case s.Errors != "":
		s.Empty = "No key has such an error."
	case s.State == stateFailing && len(r.Pools) == 0:
		s.Empty += " (What AddRateLimited alone has counted is shown as requeues.)"
	}
	return s
}

// HasFailed reports that the keys have errors.
func (s stateSection) HasFailed() bool { return slices.Contains(failedStates, s.State) }
