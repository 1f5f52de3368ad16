package debug

import (
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// doneText says what was done to a key.
func (a *action) doneText(key string) string {
	return fmt.Sprintf(a.done, called(short(key, maxKey)))
}

// sentence says to how many keys something was done.
func (b *bulkResult) sentence(done string) string {
	keys := func(n int, one, more string) string {
		if n == 1 {
			return one
		}
		return number(n) + more
	}
	text := done + " " + keys(b.Keys, "one key", " keys")
	if b.Gone > 0 {
		text += "; " + keys(b.Gone, "one was gone", " were gone")
	}
	if b.Left > 0 {
		text += "; " + keys(b.Left, "one is left", " are left")
	}
	if b.LeftMore {
		text += "; there may be more"
	}
	return text + "."
}

// pauseText says what a pause or its end has done, or will do after the outage of the queue's server, and
// that no key has the group if that is so: its name may be mistyped.
func (a *action) pauseText(r *reading, group string, lasts time.Duration) string {
	length := ""
	if lasts > 0 {
		length = " for " + human(lasts)
	}
	switch {
	case a.ofGroup:
		text := fmt.Sprintf(a.done, called(short(group, maxName)), length)
		if r.entry.queue.SnapshotGroup(group).Keys == 0 {
			text += " No key has that group now: is it called so?"
		}
		return text
	case r.Missing() != "":
		return "The queue's server did not answer in time. It is " + a.Name + "d as soon as it does."
	case a.Name == "pause" && r.pausesPools():
		length += ". Its workers in this process start no keys while it is paused; keys are still added"
	}
	return a.done + length + "."
}

// retryText says when a key comes that was retried and that was as before. A queued one comes next, if the
// queue has priorities.
func (r *reading) retryText(before knownKey) string {
	q, key := r.entry.queue, before.key()
	now, _ := q.SnapshotKey(key)
	name := called(short(keyText(key), maxKey))
	text := "Added " + name + ": "
	if before.state() == stateQueued {
		text = name + " was queued already: "
	}
	switch {
	case r.anyPool(func(p *worker.Inspector) bool { return p.SnapshotKey(key).OnHold != nil }):
		text += "it is on hold, and comes when the hold ends."
	case now.State == workqueue.KeyProcessing:
		text += "a worker has it, and Done queues it again."
	case now.State == workqueue.KeyWaiting: // As with priorityqueue.Latest, or within a MinInterval.
		text += "its queue makes it wait, and it comes in " + human(now.Due.Sub(r.At)) + "."
	case now.State == workqueue.KeyQueued && q.AddWithPriority == nil:
		text += "it comes after those before it in the line."
	case now.State == workqueue.KeyQueued:
		r.moveToFront(key)
		text += "it comes next."
	default:
		text += "it comes as soon as a worker is free."
	}
	switch {
	case q.Stats().Paused:
		text += " The queue is paused."
	case now.Blocked:
		text += " Its group is at its limit or paused."
	}
	return text
}
