package debug

import (
	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// This file has what the handler answers as JSON. Stable are actionAnswer, countReport, the id of a queue,
// and the key and the id of a key. All else may change. Templates read keyJSON as well: see keyRow.

// actionAnswer is the answer to a request for an action.
type actionAnswer struct {
	Action string `json:"action"`
	Queue  string `json:"queue"`
	Key    string `json:"key,omitempty"`
	Group  string `json:"group,omitempty"`
	outcome
	// Text says what was done, and Error why not all was.
	Text  string `json:"text,omitempty"`
	Error string `json:"error,omitempty"`
}

// outcome is what became of an action on keys.
type outcome struct {
	// Keys counts those that were changed, Gone those that had left meanwhile.
	Keys int `json:"keys"`
	Gone int `json:"gone"`
	// Left is how many were not done: the time was over, or the queue's server did not answer. LeftMore reports
	// that there may be more than these.
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

// object is what a page is as JSON.
type object map[string]any

// json returns a queue, as it and its pools say themselves. Its error is why not all of it is known.
func (r *reading) json() object {
	pools := mapped(r.Pools, func(p poolReading) worker.Stats { return p.Stats })
	return object{"id": r.ID(), "name": r.Name(), "stats": r.Stats, "pools": pools, "error": r.Missing()}
}

// keyJSON is a key, as its queue and its pools say themselves. Texts are cut and printable. Bytes is how long
// that of the key was, and ID distinguishes keys with the same text.
type keyJSON struct {
	Key     string                     `json:"key"`
	ID      string                     `json:"id"`
	Bytes   int                        `json:"bytes"`
	State   string                     `json:"state"`
	InQueue workqueue.KeySnapshot[any] `json:"in_queue"`
	InPools worker.KeySnapshot[any]    `json:"in_pools"`
}

// keysJSON returns the keys of a page as JSON.
func keysJSON(rows []keyRow) []keyJSON {
	return mapped(rows, func(k keyRow) keyJSON { return k.keyJSON })
}
