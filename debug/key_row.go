package debug

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// keyRow is a key on a page.
type keyRow struct {
	keyJSON
	// Failure has its failures, or is nil without any.
	Failure *worker.FailedKey[any]
	Causes  *workqueue.Causes
	// Since is when it came into its state, or zero if that is not known.
	Since time.Time

	// At is when all this was read.
	At      time.Time
	QueueID string
	// Actions are what can be done with it. IsGroupWhole reports that the page shows the whole name of its
	// group, which an action needs.
	Actions      actionSet
	IsGroupWhole bool
}

// row returns what pages show of k, with those of offered that suit it. It calls the key's own methods.
func (r *reading) row(k knownKey, offered actionSet) keyRow {
	text := keyText(k.key())
	row := keyRow{At: r.At, QueueID: r.ID(), Since: k.since()}
	row.Key, row.ID, row.Bytes = cut(text, maxKeyBytes), keyID(k.key()), len(text)
	row.State = cmp.Or(k.state(), stateUnknown)
	group := k.inQueue.Group
	k = k.printable(row.Key)
	row.IsGroupWhole = k.inQueue.Group == group
	row.InQueue, row.InPools, row.Failure = k.inQueue, k.inPools, k.failure()
	if row.Causes = row.InQueue.Causes; row.Causes == nil && !row.InPools.Causes.IsZero() {
		row.Causes = &row.InPools.Causes
	}
	row.Actions = offered.without(func(a *action) bool { return a.suits == nil || !a.suits(row) })
	return row
}

// rows returns keys for a list of that state. It asks the queue about
// keys that it has said nothing of, and leaves out given-up keys that fail again.
func (r *reading) rows(keys []knownKey, state string, offered actionSet) (rows []keyRow) {
	for _, k := range keys {
		r.askQueue(&k)
		if state == stateGivenUp && !k.isGivenUp() {
			continue
		}
		rows = append(rows, r.row(k, offered))
	}
	return rows
}

// printable returns k with texts that are cut and printable. text is what the page shows of the key.
func (k knownKey) printable(text string) knownKey {
	q, p := &k.inQueue, &k.inPools
	q.Key, q.Group, q.Failures.Err = text, short(q.Group, maxName), short(q.Failures.Err, maxError)
	if q.Causes = printableCauses(q.Causes); p.Causes.Last != nil {
		p.Causes = *printableCauses(&p.Causes)
	}
	p.Key = text
	if p.Running != nil {
		c := *p.Running
		c.Key, c.Stack = text, stackText(c.Stack)
		p.Running = &c
	}
	if p.OnHold != nil {
		h := *p.OnHold
		h.Key, h.Reason = text, short(h.Reason, maxKeyBytes)
		p.OnHold = &h
	}
	if p.GivenUp != nil {
		f := *p.GivenUp
		f.Key, f.Err = text, short(f.Err, maxError)
		p.GivenUp = &f
	}
	return k
}

// printableCauses returns a printable copy of c, or nil without causes.
func printableCauses(c *workqueue.Causes) *workqueue.Causes {
	if c == nil || c.IsZero() {
		return nil
	}
	printable := workqueue.Causes{Last: slices.Clone(c.Last), Others: c.Others, First: c.First.UTC()}
	for i := range printable.Last {
		l := &printable.Last[i]
		l.Reason, l.TraceParent, l.Time = short(l.Reason, maxKeyBytes), short(l.TraceParent, maxName), l.Time.UTC()
	}
	return &printable
}

// IsCut reports that the page shows a part of the key.
func (k keyRow) IsCut() bool { return k.Bytes > maxKeyBytes }

// IsInQueue reports whether the queue has the key.
func (k keyRow) IsInQueue() bool {
	return k.State == stateQueued || k.State == stateWaiting || k.State == stateProcessing
}

// Attempt returns the number of the running call, or of the last failed call, or 0.
func (k keyRow) Attempt() int {
	switch {
	case k.InPools.Running != nil:
		return k.InPools.Running.Attempt
	case k.Failure != nil:
		return k.Failure.Attempt
	}
	return 0
}

// Attempts is Attempt as a text, with how many there may be.
func (k keyRow) Attempts() string { return number(k.Attempt()) + k.limit() }

// limit says how many attempts there may be, if that is limited.
func (k keyRow) limit() string {
	return when(k.InPools.MaxAttempts > 0, " of "+number(k.InPools.MaxAttempts))
}

// next says which attempt comes next, if they are counted. To give up a key forgets its failures.
func (k keyRow) next() string {
	failures := k.InQueue.Failures.Count
	return when(failures > 0 || k.InPools.MaxAttempts > 0, "attempt "+number(failures+1)+k.limit())
}

// Sentence says where the key is, and what comes next.
func (k keyRow) Sentence() string {
	next, age := k.next(), when(!k.Since.IsZero(), " for "+span(k.At, k.Since))
	if hold := k.InPools.OnHold; hold != nil {
		return "It is on hold" + when(hold.Reason != "", " until "+hold.Reason+", and") +
			" for " + span(hold.Until, k.At) + " more at most." + when(k.InQueue.Again, " Then it is queued again.")
	}
	switch k.State {
	case stateProcessing:
		call := k.InPools.Running
		return "A worker has had it" + age + when(k.Attempt() > 0, ": attempt "+k.Attempts()) + "." +
			when(k.InQueue.Again, " It was added again meanwhile.") +
			when(call != nil && call.Canceled, " Its handler was canceled, and still runs.")
	case stateQueued:
		return "It has been in the line" + age + when(next != "", ": "+next+" comes next") + "."
	case stateWaiting:
		due := k.InQueue.Due
		return "It waits for its time" +
			when(!due.IsZero(), ": "+cmp.Or(next, "it")+" comes in "+span(due, k.At)) + "."
	case stateFailing:
		return "It is not in the queue, and its failures are remembered."
	case stateGivenUp:
		return "It was given up after attempt " + k.Attempts() + " and is not retried by itself."
	}
	return "Its state is not known: the queue has not answered."
}

// keyText returns what a key is called: a string itself, of other types what fmt says. It calls the
// methods of the key, so no lock may be held.
func keyText(key any) string {
	switch key := key.(type) {
	case string: // not by fmt, which copies it
		return key
	case error, fmt.Stringer, fmt.Formatter:
		return fmt.Sprint(key)
	}
	// fmt follows a pointer to a struct, which somebody may be changing.
	if v := reflect.ValueOf(key); v.Kind() == reflect.Pointer {
		return fmt.Sprintf("(%T)(%p)", key, key)
	}
	return fmt.Sprintf("%+v", key)
}

// keyID distinguishes keys whose texts are alike. It is the same in each run of the program, except for
// pointers.
func keyID(key any) string {
	format := "%T %#v"
	if reflect.ValueOf(key).Kind() == reflect.Pointer {
		format = "%T %p"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, format, key, key))
	return base64.RawURLEncoding.EncodeToString(sum[:4]) // short: the text stands beside it
}
