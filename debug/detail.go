package debug

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
)

// detailReport is what a queue's own page shows.
type detailReport struct {
	Time        time.Time     `json:"time"`
	SampleEvery seconds       `json:"sample_seconds"`
	Queue       queueReport   `json:"queue"`
	Latency     *timesReport  `json:"latency"`
	Work        *timesReport  `json:"work"`
	Recent      *recentReport `json:"recent"`
	History     historyReport `json:"history"`
	// Errors is the text that the errors of the failing and given up keys contain that are listed, and Matching how many
	// there are of each, if it is not empty.
	Errors   string          `json:"error_contains,omitempty"`
	Matching *matchingReport `json:"matching,omitempty"`
	keyLists
	// Found is not nil if a key was searched for.
	Found  *foundReport     `json:"found,omitempty"`
	Groups []groupReport    `json:"groups,omitempty"`
	Facts  []workqueue.Fact `json:"facts,omitempty"`

	// Sharing is how many queues show the same pools.
	Sharing int `json:"-"`

	// FailingUnlisted reports that the limiter cannot list the keys that fail.
	FailingUnlisted bool      `json:"-"`
	Actions         actionSet `json:"-"`
	limit           int
}

// matchingReport counts keys with certain errors.
type matchingReport struct {
	Failing int `json:"failing"`
	GivenUp int `json:"given_up"`
	// More reports that there was no time to count all.
	More bool `json:"more,omitempty"`
}

// groupReport is a group that is paused, or that listed keys have.
type groupReport struct {
	Group  string `json:"group"`
	Paused bool   `json:"paused"`
	// Listed is how many of the listed keys are in the group.
	Listed int `json:"listed"`
}

// historyReport has one value for each of the last samples, oldest first, and the last ones since then.
type historyReport struct {
	Queued     []float64  `json:"queued"`
	Processing []float64  `json:"processing"`
	Waiting    []float64  `json:"waiting"`
	Adds       []float64  `json:"adds_per_second"`
	Dones      []float64  `json:"dones_per_second"`
	Errors     []float64  `json:"errors_per_second"`
	Retries    []float64  `json:"retries_per_second"`
	Latency    []*float64 `json:"latency_mean_seconds"`
	Work       []*float64 `json:"work_mean_seconds"`
}

func newHistoryReport(points []point) historyReport {
	known := func(of func(point) float64) []*float64 {
		return column(points, func(p point) *float64 {
			if v := of(p); v > 0 {
				return &v
			}
			return nil
		})
	}
	return historyReport{
		Queued: column(points, queued.of), Processing: column(points, held.of), Waiting: column(points, waiting.of),
		Adds: column(points, adds.of), Dones: column(points, dones.of),
		Errors: column(points, failures.of), Retries: column(points, retries.of),
		Latency: known(latency.of), Work: known(work.of),
	}
}

// recentReport is about the last minutes.
type recentReport struct {
	Covers  seconds      `json:"covers_seconds"`
	Latency *timesReport `json:"latency"`
	Work    *timesReport `json:"work"`
}

const (
	// someKeys is how many keys of each state are shown unless more are asked for, maxKeys the most.
	someKeys = 25
	maxKeys  = 250
)

// detail reports the queue that query asks for, or returns nil if there is none.
func (h *Handler) detail(ctx context.Context, query url.Values) *detailReport {
	e := h.find(query.Get("queue"))
	if e == nil {
		return nil
	}
	limit, err := strconv.Atoi(query.Get("keys"))
	if err != nil {
		limit = someKeys
	}
	limit = min(max(limit, 1), maxKeys)
	ask := limit
	if query.Has("key") {
		ask = searchLimit
	}
	now := h.clock.Now()
	reading := *h.readOne(ctx, e, ask)
	known := reading.poolKeys()
	lists := newKeyLists(reading.keys, known).cut(limit)
	r := &detailReport{
		Time:        now.UTC(),
		SampleEvery: seconds(h.every),
		Latency:     newTimesReport(reading.stats.Latency),
		Work:        newTimesReport(reading.stats.WorkDuration),
		Errors:      newLabel(query.Get("error"), maxKey).Text,
		keyLists:    lists,
		limit:       limit,
		Actions:     h.actionsOf(&reading),
	}
	if reading.keys != nil {
		r.FailingUnlisted = reading.keys.FailingUnlisted
		for _, f := range reading.keys.facts {
			r.Facts = append(r.Facts, workqueue.Fact{Name: newLabel(f.Name, maxName).short(), Value: newLabel(f.Value, maxKey).short()})
		}
	}
	if r.Errors != "" && !reading.late {
		reading.panicked = cmp.Or(reading.panicked, r.listErrors(ctx, h, &reading, query.Get("error")))
	}
	failure := guarded("queue", func() {
		if !reading.late && e.queue.SnapshotKey != nil {
			for i, k := range r.GivenUp { // It may be in the queue again.
				if now, ok := e.queue.SnapshotKey(k.raw); ok {
					r.GivenUp[i].State = string(now.State)
				}
			}
		}
	})
	if query.Has("key") {
		r.Found = h.search(ctx, h.searching, &reading, query.Get("key"), "")
		failure = cmp.Or(failure, r.Found.failure)
	}
	reading.panicked = cmp.Or(reading.panicked, failure)
	if e.queue.PauseGroup != nil {
		r.Groups = newGroups(reading.pausedGroups, lists)
	}
	for _, other := range h.entries() {
		if other.queueName == e.queueName {
			r.Sharing++
		}
	}
	r.Queue = h.newQueueReport(&reading, now)
	r.History = newHistoryReport(r.Queue.timeline.points)
	if r.Queue.Timed {
		latency, work, covers := e.history.recent(reading.measure())
		r.Recent = &recentReport{seconds(covers), newTimesReport(latency), newTimesReport(work)}
	}
	r.finish(r.Time)
	return r
}

// listErrors lists the keys whose errors contain a text, instead of all that fail or were given up.
func (r *detailReport) listErrors(ctx context.Context, h *Handler, q *reading, text string) (failure error) {
	ctx, done := searchTurn(ctx, h.searching, countTime)
	defer done()
	r.Failing, r.GivenUp, r.Matching = []keyReport{}, []keyReport{}, new(matchingReport)
	return guarded("queue", func() {
		if r.Matching.More = ctx.Err() != nil; r.Matching.More {
			return
		}
		for f := range q.troubled(everyTrouble, text, false, &r.Matching.More) {
			if ctx.Err() != nil {
				r.Matching.More = true
				return
			}
			keys, n := &r.Failing, &r.Matching.Failing
			if f.state == stateGivenUp {
				keys, n = &r.GivenUp, &r.Matching.GivenUp
			}
			if *n++; len(*keys) < r.limit {
				k := keyReport{raw: f.Key}
				k.addFailure(f)
				*keys = append(*keys, k)
			}
		}
	})
}

// newGroups returns the paused groups, and those of the listed keys.
func newGroups(paused []string, lists keyLists) (groups []groupReport) {
	index := make(map[string]int)
	at := func(name string) *groupReport {
		if _, ok := index[name]; !ok {
			index[name] = len(groups)
			groups = append(groups, groupReport{Group: name})
		}
		return &groups[index[name]]
	}
	for _, name := range paused {
		at(newLabel(name, maxName).short()).Paused = true
	}
	counted := make(map[any]bool) // A key may be in two lists.
	for _, keys := range lists.all() {
		for _, k := range *keys {
			if k.Group != "" && !counted[k.raw] {
				counted[k.raw] = true
				at(k.Group).Listed++
			}
		}
	}
	return groups[:min(len(groups), maxKeys)]
}

func (r *detailReport) finish(now time.Time) {
	r.keyLists.finish(now)
	if r.Found != nil {
		for i := range r.Found.Keys {
			r.Found.Keys[i].finish(now)
		}
	}
}

// HrefAll returns the address of the same page with as many keys as can be had, or "" if that is this one.
func (r *detailReport) HrefAll() string {
	for _, keys := range r.all() {
		if len(*keys) == r.limit && r.limit < maxKeys {
			v := url.Values{"queue": {r.Queue.ID}, "keys": {strconv.Itoa(maxKeys)}}
			if r.Errors != "" {
				v.Set("error", r.Errors)
			}
			return "?" + v.Encode()
		}
	}
	return ""
}

// HrefJSON returns the address of the same as JSON.
func (r *detailReport) HrefJSON() string {
	v := url.Values{"queue": {r.Queue.ID}, "format": {"json"}}
	if r.Errors != "" {
		v.Set("error", r.Errors)
	}
	if r.Found != nil {
		v.Set("key", r.Found.Search)
	} else if r.limit != someKeys {
		v.Set("keys", strconv.Itoa(r.limit))
	}
	return "?" + v.Encode()
}

// Refresh is after how many seconds the page asks for itself, or 0 if that would be a search among all keys, or
// if there was no time for all errors, or no list of all.
func (r *detailReport) Refresh() int {
	if r.Found != nil && !r.Found.cheap || r.Matching != nil && r.Matching.More {
		return 0
	}
	return refreshSeconds
}

// HasErrors reports whether there may be errors of failing keys.
func (r *detailReport) HasErrors() bool {
	return r.HasGivenUp() || slices.ContainsFunc(r.Failing, func(k keyReport) bool { return k.Error != "" })
}

// HasGivenUp reports whether there may be keys that were given up.
func (r *detailReport) HasGivenUp() bool { return len(r.Queue.Pools) > 0 || len(r.GivenUp) > 0 }

// section is a list of keys on a queue's page.
type section struct {
	Kind, Title, Hint, Empty string
	Keys                     []keyReport
	// Total is the number of keys in that state, or -1 if it is not known.
	Total int
	// Prioritized reports that some of them have a priority other than 0.
	Prioritized bool
	// Attempts reports that it is known how often each of them was handled.
	Attempts bool
	// QueueID is the id of the queue, and Actions what can be done with each key.
	QueueID string
	Actions actionSet
	// Set is what actions call all keys of this kind, whose errors contain Errors, or empty. They can be retried or forgotten.
	Set, Errors            string
	Retriable, Forgettable bool
}

// Section returns the keys of that kind. Hint says what they are, and empty what it means that there are none.
func (r *detailReport) Section(kind, title, hint, empty string) section {
	s := section{Kind: kind, Title: title, Hint: hint, Empty: empty, Total: -1, QueueID: r.Queue.ID}
	workers, pools, can := r.Queue.Workers, len(r.Queue.Pools) > 0, r.Actions
	switch kind {
	case "running":
		s.Keys, s.Total = r.Running, max(r.Queue.Processing, workers.Busy)
		s.Actions, s.Attempts = actionSet{Cancel: can.Cancel}, pools
	case "queued":
		s.Keys, s.Total = r.Queued, r.Queue.Queued
		s.Actions = actionSet{Remove: can.Remove}
	case "waiting":
		s.Keys, s.Total = r.Waiting, r.Queue.Waiting
		s.Actions = actionSet{Retry: can.Retry, Remove: can.Remove}
	case "given-up":
		s.Keys, s.Total = r.GivenUp, max(r.Queue.GivenUp, len(r.GivenUp))
		s.Actions, s.Set = actionSet{Retry: can.Retry, Forget: can.Forget}, stateGivenUp
	case "failing":
		s.Keys = r.Failing
		if pools {
			s.Total = max(workers.Failing, len(r.Failing))
		}
		s.Actions, s.Set = actionSet{Retry: can.Retry, Remove: can.Remove}, stateFailing
	case "found":
		s.Keys = r.Found.Keys
	}
	if m := r.Matching; m != nil && s.Set != "" {
		s.Total, s.Errors, s.Empty = m.Failing, r.Errors, "No key has such an error."
		if m.More {
			s.Empty = "No key that was looked at has such an error."
		}
		if kind == "given-up" {
			s.Total = m.GivenUp
		}
	}
	if s.Retriable, s.Forgettable = can.Retry, can.Forget; len(s.Keys) == 0 || !can.Retry && !can.Forget {
		s.Set = ""
	}
	s.Prioritized = slices.ContainsFunc(s.Keys, func(k keyReport) bool { return k.Priority != 0 })
	return s
}

// AnyAction reports whether something can be done with the keys.
func (s section) AnyAction() bool { return s.Actions != actionSet{} }

// row is a key in a section.
type row struct {
	keyReport
	section
}

// Rows returns the keys with what the rows of a table need beside them.
func (s section) Rows() []row {
	all := make([]row, len(s.Keys))
	for i, k := range s.Keys {
		all[i] = row{k, s}
	}
	return all
}

// Story returns the only key that was found by its whole text, as its own page shows it, or nil.
func (r *detailReport) Story() *row {
	if f := r.Found; f.Exact && len(f.Keys) == 1 {
		return &row{f.Keys[0], section{Kind: "found", QueueID: r.Queue.ID, Actions: r.Actions.forKey(f.Keys[0])}}
	}
	return nil
}

// HrefKey returns the address of the key's page.
func (r row) HrefKey() string {
	queue := r.QueueID
	if r.Queue != nil {
		queue = r.Queue.ID
	}
	return "?" + url.Values{"queue": {queue}, "key": {r.Key}, "id": {keyID(r.raw)}}.Encode()
}

// button is an action with the row's key.
type button struct{ Action, Text, Queue, Key, ID string }

// Button returns a button of the row.
func (r row) Button(action, text string) button {
	return button{action, text, r.QueueID, r.Key, keyID(r.raw)}
}

// CausesText says in a few words why the key was added.
func (k keyReport) CausesText() string {
	if k.Causes == nil {
		return ""
	}
	return newLabel(k.Causes.String(), maxCauses).short()
}
