package debug

import (
	"context"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue/operate"
)

// queuePage is what a queue's own page shows.
type queuePage struct {
	Time        time.Time    `json:"time"`
	SampleEvery seconds      `json:"sample_seconds"`
	Queue       queueReport  `json:"queue"`
	Recent      recentReport `json:"recent"`
	History     []point      `json:"history"`
	Charts      []chart      `json:"-"`
	// Errors is the text that the listed errors must contain. Matching then counts the keys that have such an
	// error.
	Errors   string          `json:"error_contains,omitempty"`
	Matching *matchingReport `json:"matching,omitempty"`
	keyLists
	// Busiest are the keys that are called most, if one of them takes a noticeable part of all calls.
	Busiest []busyReport `json:"-"`
	// ErrorGroups are the errors that most of the failing and given-up keys have or, with Errors, most of those
	// that match. Uncounted is how many keys fail or were given up whose errors are not known.
	ErrorGroups []errorGroup `json:"errors,omitempty"`
	Uncounted   int          `json:"-"`
	// Found is not nil if a key was searched for.
	Found  *foundReport   `json:"found,omitempty"`
	Groups []groupReport  `json:"groups,omitempty"`
	Facts  []operate.Fact `json:"facts,omitempty"`

	// FailingUnlisted reports that the limiter cannot list the keys that fail.
	FailingUnlisted bool      `json:"-"`
	Actions         actionSet `json:"-"`
	// Refresh is after how many seconds the page reloads: 0 if each reload would go over many keys.
	Refresh  int    `json:"-"`
	HrefJSON string `json:"-"`
}

// keyLists are the first keys of a queue and of its pools in each state.
type keyLists struct {
	Running []keyReport `json:"running"`
	OnHold  []keyReport `json:"on_hold,omitempty"`
	Queued  []keyReport `json:"queued"`
	Waiting []keyReport `json:"waiting"`
	Failing []keyReport `json:"failing"`
	GivenUp []keyReport `json:"given_up"`
}

const (
	// someKeys is how many keys of each state are shown unless more are asked for, maxKeys the most.
	someKeys = 25
	maxKeys  = 250
)

// queuePage reports the queue e as query asks for it.
func (h *Handler) queuePage(ctx context.Context, e *entry, query url.Values) *queuePage {
	limit := someKeys
	if n, err := strconv.Atoi(query.Get("keys")); err == nil {
		limit = min(max(n, 1), maxKeys)
	}
	read := h.read(e, limit)
	r := &queuePage{
		Time: read.at.UTC(), SampleEvery: seconds(h.every), Recent: e.history.recent(read.measure()),
		Errors: cut(query.Get("error"), maxError), Busiest: read.busiestReport(),
		FailingUnlisted: read.snapshot.FailingUnlisted, Actions: h.actionsOf(read), Refresh: refreshSeconds,
		Facts: mapped(read.facts, func(f operate.Fact) operate.Fact {
			return operate.Fact{Name: short(f.Name, maxName), Value: short(f.Value, maxKey)}
		}),
	}
	history := read.timeline(h.every)
	r.History, r.Charts = history.points, read.charts(history)
	read.atHand = true
	first := make(map[string][]knownKey)
	for _, s := range sections {
		if r.Errors == "" || !isSet(s.State) {
			first[s.State] = firstOf(read.keysIn(ctx, s.State), limit)
		}
	}
	groups, counted := make(errorGroups), 0
	if r.Errors == "" {
		for k := range read.keysIn(ctx, allSets) {
			groups.add(k)
			counted++
		}
		r.Uncounted = max(0, read.failing()+read.givenUp()-counted)
	} else {
		read.atHand = false
		r.Matching, _ = h.count(ctx, read, allSets, r.Errors, func(k knownKey) {
			groups.add(k)
			if set := k.set(); len(first[set]) < limit {
				first[set] = append(first[set], k)
			}
		})
	}
	r.ErrorGroups = groups.sorted()
	if e.queue.PauseGroup != nil {
		r.Groups = read.groups(first)
	}
	for _, s := range sections {
		*s.of(&r.keyLists) = read.reports(first[s.State], s.State)
	}
	of := []any{"queue", e.id, "format", "json", "error", r.Errors}
	if query.Has("key") {
		read.looked = 0
		text := query.Get("key")
		found := h.search(ctx, h.searching, read, text, "").report(read)
		r.Found = &found
		of = append(of, "key", text)
	} else if limit != someKeys {
		of = append(of, "keys", limit)
	}
	if r.Found != nil && read.looked > fewKeys || r.Matching != nil && r.Matching.More {
		r.Refresh = 0
	}
	r.HrefJSON, r.Queue = href(of...), read.queueReport()
	return r
}

// Alarming reports that a handler is stuck or takes long: then the running keys come first.
func (r *queuePage) Alarming() bool {
	return r.Queue.Workers.Stuck > 0 || r.Queue.LongestRunning >= time.Minute
}

// HasErrors reports whether there may be errors of failing keys.
func (r *queuePage) HasErrors() bool {
	return r.HasGivenUp() || slices.ContainsFunc(r.Failing, func(k keyReport) bool { return k.Error != "" })
}

// HasGivenUp reports whether there may be keys that were given up.
func (r *queuePage) HasGivenUp() bool { return len(r.Queue.Pools) > 0 || len(r.GivenUp) > 0 }

// section is a list of keys on a queue's page.
type section struct {
	// Kind is its name in the address of the page, and State what the page of all such keys is for, or empty if
	// these are all. Hint says what the keys are, and Empty what it means that there are none.
	Kind, State, Title, Hint, Empty string

	Keys []keyReport
	// Total is the number of keys in that state, or -1 if it is not known.
	Total int
	// Prioritized reports that some of them have a priority other than 0, and Attempts that it is known how
	// often each of them was handled.
	Prioritized, Attempts bool
	// QueueID is the id of the queue, and Actions what can be done with each key.
	QueueID string
	Actions actionSet
	// Set is the value of an action's field of, Errors that of its field error, and ForAll the actions on all of
	// them.
	Set, Errors string
	ForAll      actionSet

	of func(*keyLists) *[]keyReport
}

// sections are the lists of keys of a queue's page. Keys on hold are also being processed.
var sections = []section{
	{
		Kind: "running", State: stateProcessing, of: func(l *keyLists) *[]keyReport { return &l.Running },
		Title: "Running", Hint: "held by workers, longest first", Empty: "No worker holds a key.",
	},
	{
		Kind: "on_hold", State: stateOnHold, of: func(l *keyLists) *[]keyReport { return &l.OnHold },
		Title: "On hold", Hint: "wait to be released, or for their limit; the longest first",
	},
	{
		Kind: "queued", State: stateQueued, of: func(l *keyLists) *[]keyReport { return &l.Queued },
		Title: "Head of the line", Hint: "wait for a worker, next first", Empty: "No key waits for a worker.",
	},
	{
		Kind: "waiting", State: stateWaiting, of: func(l *keyLists) *[]keyReport { return &l.Waiting },
		Title: "Waiting", Hint: "wait for their time, next due first", Empty: "No key waits for its time.",
	},
	{
		Kind: "failing", State: stateFailing, of: func(l *keyLists) *[]keyReport { return &l.Failing },
		Title: "Failing", Hint: "the most failures first", Empty: "No key is failing.",
	},
	{
		Kind: "given-up", State: stateGivenUp, of: func(l *keyLists) *[]keyReport { return &l.GivenUp },
		Title: "Given up", Hint: "are not retried by themselves, the latest first",
		Empty: "No key is given up.",
	},
}

// IsDue reports that the list says when its keys come, and not since when they are there.
func (s section) IsDue() bool { return s.Kind == "waiting" || s.Kind == "failing" }

// HrefAll returns the address of all keys of the list, or "" if they are all there.
func (s section) HrefAll() string {
	if s.State == "" {
		return ""
	}
	return href("queue", s.QueueID, "state", s.State, "error", s.Errors)
}

// Label returns the attribute that labels a number on a narrow screen, where a row with buttons is a card.
func (s section) Label(label string) template.HTMLAttr {
	if len(s.Actions) == 0 {
		return ""
	}
	return template.HTMLAttr(` data-label="` + label + `"`)
}

// sectionOf returns the index in sections of the keys of that state, or -1.
func sectionOf(state string) int {
	return slices.IndexFunc(sections, func(s section) bool { return s.State == state })
}

// Section returns the list of that kind.
func (r *queuePage) Section(kind string) section {
	i := slices.IndexFunc(sections, func(s section) bool { return s.Kind == kind })
	return r.fill(sections[i], *sections[i].of(&r.keyLists))
}

// fill returns s with keys, which are the first ones or all, and with what r knows of them. Of the texts for
// an empty list the last one counts: that of the state, that of the errors that were looked for, and that
// keys are not known.
func (r *queuePage) fill(s section, keys []keyReport) section {
	s.Keys, s.Total, s.QueueID = keys, -1, r.Queue.ID
	workers, hasPools, can := r.Queue.Workers, len(r.Queue.Pools) > 0, r.Actions
	switch s.Kind {
	case "running":
		s.Total, s.Actions, s.Attempts = max(r.Queue.InWork, workers.Busy), can.only("cancel"), hasPools
		if !hasPools && !r.Queue.Timed {
			s.Hint = "held by workers, in no order"
		}
	case "on_hold":
		s.Total, s.Actions = max(r.Queue.OnHold, len(keys)), can.only("release")
	case "queued":
		s.Total, s.Actions = r.Queue.Queued, can.only("remove")
	case "waiting":
		s.Total, s.Actions = r.Queue.Waiting, can.only("retry", "remove")
	case "given-up":
		s.Total, s.Actions, s.Set = max(r.Queue.GivenUp, len(keys)), can.only("retry", "forget"), s.State
		if n := workers.GivenUpUnlisted; n > 0 {
			s.Hint = number(n) + " earlier ones are not remembered any more; these " + s.Hint
			s.Empty += " " + number(n) + " earlier ones are not remembered any more."
		}
	case "failing":
		s.Actions, s.Set = can.only("retry", "remove"), s.State
		switch {
		case hasPools || r.Queue.Failing > 0:
			s.Total = max(r.Queue.Failing, len(keys))
		case r.FailingUnlisted:
			s.Empty = "Cannot be listed: the queue's limiter counts failures and does not list its keys. " +
				"The other lists show the requeues of theirs."
		case !r.HasErrors():
			s.Hint, s.Empty = "most requeues first", "No key has failed, as far as the limiter knows."
		}
	}
	if m := r.Matching; m != nil && s.Set != "" {
		s.Total = map[string]int{stateFailing: m.Failing, stateGivenUp: m.GivenUp}[s.Set]
		s.Errors, s.Empty = r.Errors, "No key has such an error."
		if m.More {
			s.Empty = "No key that was looked at has such an error."
		}
	}
	if r.Queue.Missing {
		s.Empty = "Not known."
	}
	if s.Set != "" && len(keys) > 0 {
		s.ForAll = can.only("retry", "forget")
	}
	if s.Total == len(keys) || s.Total < 0 && len(keys) < someKeys {
		s.State = ""
	}
	for i := range s.Keys {
		s.Keys[i].Actions = s.Actions
		s.Prioritized = s.Prioritized || s.Keys[i].Priority != 0
	}
	return s
}

// Story returns the only key that was found by its whole text, or nil.
func (r *queuePage) Story() *keyReport {
	f := r.Found
	if !f.Exact || len(f.Keys) != 1 {
		return nil
	}
	f.Keys[0].Linked, f.Keys[0].Actions = true, r.Actions.forKey(f.Keys[0])
	return &f.Keys[0]
}
