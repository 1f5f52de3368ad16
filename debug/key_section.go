package debug

import "slices"

// section is a list of the keys of one state.
type section struct {
	// Kind is its name in the address of the page. Hint says what the keys are, and Empty what an empty list
	// means.
	Kind, State, Title, Hint, Empty string

	Keys []keyRow
	// Total is the number of keys in that state, and HrefAll the address of all, or empty if they are all there.
	Total   int
	HrefAll string
	QueueID string
	// Actions are what can be done with each key, and ForAll what with all of them. Set is then the value of the
	// field of, and Errors that of the field error.
	Actions, ForAll actionSet
	Set, Errors     string

	total   func(*reading) int
	actions []string
}

// sections are the lists of keys of a queue's page.
var sections = []section{
	{
		Kind: "running", State: stateProcessing, Title: "Running",
		Hint: "held by workers, longest first", Empty: "No worker holds a key.",
		total:   func(r *reading) int { return max(r.InWork(), r.Workers.Busy) },
		actions: []string{"cancel"},
	},
	{
		Kind: "on_hold", State: stateOnHold, Title: "On hold",
		Hint:    "wait to be released, or for their limit; the longest first",
		total:   func(r *reading) int { return r.Stats.OnHold },
		actions: []string{"release"},
	},
	{
		Kind: "queued", State: stateQueued, Title: "Head of the line",
		Hint: "wait for a worker, next first", Empty: "No key waits for a worker.",
		total:   func(r *reading) int { return r.Stats.Queued },
		actions: []string{"remove"},
	},
	{
		Kind: "waiting", State: stateWaiting, Title: "Waiting",
		Hint: "wait for their time, next due first", Empty: "No key waits for its time.",
		total:   func(r *reading) int { return r.Stats.Waiting },
		actions: []string{"retry", "remove"},
	},
	{
		Kind: "failing", State: stateFailing, Title: "Failing",
		Hint: "the most failures first", Empty: "No key is failing.",
		total:   (*reading).Failing,
		actions: []string{"retry", "remove"},
	},
	{
		Kind: "given-up", State: stateGivenUp, Title: "Given up",
		Hint: "are not retried by themselves, the latest first", Empty: "No key is given up.",
		total:   (*reading).GivenUp,
		actions: []string{"retry", "forget"},
	},
}

// sectionOf returns the index in sections of the keys of that state, or -1.
func sectionOf(state string) int {
	return slices.IndexFunc(sections, func(s section) bool { return s.State == state })
}

// newSection returns s with the first keys of r.
func newSection(s section, r *reading, rows []keyRow, can actionSet) section {
	s.QueueID, s.Keys, s.Actions = r.ID(), rows, can.only(s.actions...)
	for i := range rows {
		rows[i].Actions = s.Actions
	}
	if s.Total = max(s.total(r), len(rows)); s.Total > len(rows) {
		s.HrefAll = href("queue", s.QueueID, "state", s.State)
	}
	if isSet(s.State) {
		s.Set = s.State
	}
	if s.Set != "" && len(rows) > 0 {
		s.ForAll = can.only("retry", "forget")
	}
	if r.missing != nil {
		s.Empty = "Not known."
	}
	return s
}

// inFull makes s a list of total keys that were looked for, those whose errors contain a text unless it is
// empty. If isPartial, there may be more.
func (s *section) inFull(total int, errors string, isPartial bool) {
	s.Total, s.Errors, s.HrefAll = total, errors, ""
	if total > len(s.Keys) {
		s.HrefAll = href("queue", s.QueueID, "state", s.State, "error", errors)
	}
	switch {
	case isPartial:
		s.Empty = "Not known."
	case errors != "":
		s.Empty = "No key has such an error."
	}
}

// IsDue reports that the list says when its keys come, and not since when they are there.
func (s section) IsDue() bool { return s.Kind == "waiting" || s.Kind == "failing" }
