package debug

import (
	"strconv"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/operate"
	"github.com/keyedqueue/workqueue/worker"
)

// This file has what the handler answers as JSON. Stable are actionAnswer, countReport, the id of a queue,
// and the key and the id of a key. All else may change. Pages show it, with more around it: see page.

// actionAnswer is the answer to a request for an action.
type actionAnswer struct {
	Action string `json:"action"`
	Queue  string `json:"queue"`
	Key    string `json:"key,omitempty"`
	Group  string `json:"group,omitempty"`
	*bulkResult
	// Text says what was done, and Error why not all was.
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// bulkResult is what became of an action on many keys.
type bulkResult struct {
	// Keys is to how many it was done. Gone were there before, and not any more.
	Keys int `json:"keys"`
	Gone int `json:"gone"`
	// Left is how many were not done: the time was over, the queue was shut down, or its server did not answer.
	// LeftMore reports that there may be more than these.
	Left     int  `json:"left"`
	LeftMore bool `json:"left_more,omitempty"`
}

// countReport is how many keys an action on a set would be for.
type countReport struct {
	Count int `json:"count"`
	// More reports that there may be more: there was no time to count all, or only a part was listed.
	More  bool   `json:"more"`
	Error string `json:"error,omitempty"`
}

// What follows may change.

type errorReport struct {
	Error string `json:"error"`
}

// seconds is a duration, which is a number of seconds in JSON.
type seconds time.Duration

// MarshalJSON returns the number of seconds.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

// between returns how long it is from one time to the other, or nil if one is not known.
func between(from, to time.Time) *seconds {
	if from.IsZero() || to.IsZero() {
		return nil
	}
	d := seconds(max(0, to.Sub(from)))
	return &d
}

// queueName is a queue where none of its numbers are.
type queueName struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// queueReport has the numbers of a queue.
type queueReport struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// HasQueue reports that more is known than pools, and Timed that the queue reads the clock.
	HasQueue, Timed bool
	// Stats are the queue's, and Workers the sum of its pools.
	workqueue.Stats
	Workers worker.Stats
	Pools   []worker.Stats
	// InWork is Processing without keys on hold. GivenUp counts the given-up keys: the pools', or of a shared
	// queue those of all processes.
	InWork, GivenUp int
	Minute          rates `json:"last_minute"`
	// PausedFor is how long a pause still lasts, PausedAge how long it has, and PausedBy who asked for it.
	PausedFor    *seconds `json:"paused_for_seconds,omitempty"`
	PausedAge    *seconds `json:"paused_age_seconds,omitempty"`
	PausedBy     string   `json:",omitempty"`
	PausedGroups int      `json:"paused_groups,omitempty"`
	// Oldest is the oldest change that no call has answered, or nil.
	Oldest *unansweredReport `json:"oldest_unanswered,omitempty"`
	// Outage reports that the queue does not reach its server, Missing that not all of its keys are known, and
	// Error says why.
	Outage, Missing bool
	Error           string `json:",omitempty"`
	// Wedged is why a restart of the program would help. Unworked: see reading.isUnworked.
	Wedged   string `json:",omitempty"`
	Unworked bool
}

// rates are numbers per second.
type rates struct {
	Adds    float64 `json:"adds_per_second"`
	Dones   float64 `json:"dones_per_second"`
	Errors  float64 `json:"errors_per_second"`
	Retries float64 `json:"retries_per_second"`
}

// unansweredReport is the oldest change of a queue that no call has answered: a key was added, and no call
// has succeeded since. Key is nil if it is not known.
type unansweredReport struct {
	Queue queueName `json:"queue"`
	Age   seconds   `json:"age_seconds"`
	Key   *string   `json:"key,omitempty"`
	ID    string    `json:"id,omitempty"`
}

// listReport has the queues on a page of the list, and sums of all that the list has on all pages.
type listReport struct {
	Time       time.Time `json:"time"`
	Registered int       `json:"registered"`
	Matching   int       `json:"matching"`
	Queued     int       `json:"queued"`
	InWork     int       `json:"in_work"`
	OnHold     int       `json:"on_hold,omitempty"`
	Waiting    int       `json:"waiting"`
	Failing    int       `json:"failing"`
	GivenUp    int       `json:"given_up"`
	// Oldest is the oldest change that no call has answered, or nil.
	Oldest       *unansweredReport `json:"oldest_unanswered,omitempty"`
	PausedGroups int               `json:"paused_groups,omitempty"`
	Search       string            `json:"search"`
	Sort         string            `json:"sort"`
	Page         int               `json:"page"`
	Pages        int               `json:"pages"`
	SampleEvery  seconds           `json:"sample_seconds"`
	Queues       []queueReport     `json:"queues"`
}

// detailReport has all that is known of a queue, and its first keys in each state.
type detailReport struct {
	Time        time.Time    `json:"time"`
	SampleEvery seconds      `json:"sample_seconds"`
	Queue       queueReport  `json:"queue"`
	Recent      recentReport `json:"recent"`
	History     []point      `json:"history"`
	// Errors is the text that the errors of listed keys must contain. Matching then counts the keys.
	Errors   string          `json:"error_contains,omitempty"`
	Matching *matchingReport `json:"matching,omitempty"`
	Running  []keyReport     `json:"running"`
	OnHold   []keyReport     `json:"on_hold,omitempty"`
	Queued   []keyReport     `json:"queued"`
	Waiting  []keyReport     `json:"waiting"`
	Failing  []keyReport     `json:"failing"`
	GivenUp  []keyReport     `json:"given_up"`
	// ErrorGroups are the errors that most of the failing and given-up keys have or, with Errors, most of those
	// that match.
	ErrorGroups []errorGroup `json:"errors,omitempty"`
	// Found is not nil if a key was searched for.
	Found  *foundReport   `json:"found,omitempty"`
	Groups []groupReport  `json:"groups,omitempty"`
	Facts  []operate.Fact `json:"facts,omitempty"`
}

// recentReport has the times of the last minutes: of keys in the line, in work and on hold, the delays that
// failed keys got, and how long changes took.
type recentReport struct {
	Covers  seconds      `json:"covers_seconds"`
	Latency *timesReport `json:"latency,omitempty"`
	Work    *timesReport `json:"work,omitempty"`
	Hold    *timesReport `json:"hold,omitempty"`
	Delays  *timesReport `json:"retry_delays,omitempty"`
	Change  *timesReport `json:"changes,omitempty"`
}

// timesReport sums up a histogram. Half, Ninety and Most are nil if they are above Last, the greatest bound.
type timesReport struct {
	Count  uint64   `json:"count"`
	Mean   float64  `json:"mean_seconds"`
	Half   *float64 `json:"p50_at_most_seconds,omitempty"`
	Ninety *float64 `json:"p90_at_most_seconds,omitempty"`
	Most   *float64 `json:"p99_at_most_seconds,omitempty"`
	Last   float64  `json:"greatest_bound_seconds"`
}

// matchingReport counts keys with certain errors. More reports that there was no time to count all.
type matchingReport struct {
	Failing int  `json:"failing"`
	GivenUp int  `json:"given_up"`
	More    bool `json:"more,omitempty"`
}

// errorGroup are keys whose last errors differ in nothing but names and numbers: Error has … there. Contains
// is the longest part that they share, empty if that is too short: ?error= with it shows these keys.
type errorGroup struct {
	Error    string `json:"error"`
	Failing  int    `json:"failing"`
	GivenUp  int    `json:"given_up"`
	Contains string `json:"contains,omitempty"`
}

// groupReport is a group that is paused, or that listed keys have.
type groupReport struct {
	// Group is the name, which an action needs whole. It is Cut if it is too long for that.
	Group  string `json:"group"`
	Cut    bool   `json:"cut,omitempty"`
	Paused bool   `json:"paused"`
	// PausedUntil is when the pause ends, and PausedFor how long that is, if it ends by itself.
	PausedUntil time.Time `json:"paused_until,omitzero"`
	PausedFor   *seconds  `json:"paused_for_seconds,omitempty"`
	// Listed is how many of the listed keys it has, and Keys how many of all.
	Listed int `json:"listed"`
	Keys   int `json:"keys"`
	// Held is how many of its keys workers have or have put on hold, and Limit how many that may be.
	Held  int `json:"held,omitempty"`
	Limit int `json:"limit,omitempty"`
}

// stateReport has the keys of one state, maxKeys a page.
type stateReport struct {
	Time  time.Time   `json:"time"`
	Queue queueName   `json:"queue"`
	State string      `json:"state"`
	Keys  []keyReport `json:"keys"`
	// Total is how many there are on all pages, and More reports that there may be more.
	Total int    `json:"total"`
	More  bool   `json:"more,omitempty"`
	Page  int    `json:"page"`
	Pages int    `json:"pages"`
	Error string `json:"error,omitempty"`
}

// storyReport is what is known of one key.
type storyReport struct {
	Time  time.Time `json:"time"`
	Queue queueName `json:"queue"`
	Key   keyReport `json:"key"`
	// Incomplete reports that there was no time to look at all keys.
	Incomplete bool   `json:"incomplete,omitempty"`
	Error      string `json:"error,omitempty"`
}

// everywhereReport has the keys that were found in all queues. Error is why no queue was searched.
type everywhereReport struct {
	Time       time.Time   `json:"time"`
	Registered int         `json:"registered"`
	Found      foundReport `json:"found"`
	Error      string      `json:"error,omitempty"`
}

// foundReport is what a search has found.
type foundReport struct {
	Search string      `json:"search"`
	Exact  bool        `json:"exact"`
	Keys   []keyReport `json:"keys"`
	// More reports that there are more keys than those, and Incomplete that not all keys could be looked at.
	More       bool `json:"more"`
	Incomplete bool `json:"incomplete,omitempty"`
	// Unanswered are the queues whose keys could not be looked at, if all were searched.
	Unanswered []queueName `json:"unanswered,omitempty"`
}

// keyReport is what is known of a key. Texts are cut and printable.
type keyReport struct {
	// Key is its text, and Bytes how long that was before it was cut. ID distinguishes keys with the same text.
	Key   string `json:"key"`
	ID    string `json:"id,omitempty"`
	Bytes int    `json:"bytes"`

	State    string            `json:"state,omitempty"`
	Since    time.Time         `json:"since,omitzero"`
	For      *seconds          `json:"for_seconds,omitempty"`
	Due      time.Time         `json:"due,omitzero"`
	DueIn    *seconds          `json:"due_in_seconds,omitempty"`
	Again    bool              `json:"again"`
	Requeues int               `json:"requeues"`
	Priority int               `json:"priority"`
	Group    string            `json:"group,omitempty"`
	Blocked  bool              `json:"blocked,omitempty"`
	Causes   *workqueue.Causes `json:"causes,omitempty"`

	// What follows is known of keys that a pool handles. AtOnce is how many calls in a row wanted the key at
	// once: see AtOnce of worker.Call.
	Attempt     int         `json:"attempt,omitempty"`
	MaxAttempts int         `json:"max_attempts,omitempty"`
	AtOnce      int         `json:"at_once,omitempty"`
	OnHold      *holdReport `json:"hold,omitempty"`
	Stuck       bool        `json:"stuck,omitempty"`
	Canceled    bool        `json:"canceled,omitempty"`
	Stack       string      `json:"stack,omitempty"`

	// What follows is known of keys that fail or were given up.
	Error      string    `json:"error,omitempty"`
	FailsSince time.Time `json:"fails_since,omitzero"`
	FailsFor   *seconds  `json:"fails_for_seconds,omitempty"`
	FailedAt   time.Time `json:"failed_at,omitzero"`
	Ago        *seconds  `json:"failed_ago_seconds,omitempty"`

	// Queue is set in a list of keys of several queues.
	Queue *queueName `json:"queue,omitempty"`
}

// holdReport says what a key on hold waits for, since when, and until when at the latest.
type holdReport struct {
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	For     *seconds  `json:"for_seconds"`
	Until   time.Time `json:"until"`
	UntilIn *seconds  `json:"until_in_seconds"`
}
