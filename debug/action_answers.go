package debug

import (
	"fmt"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// sentence says to how many keys something was done.
func (o outcome) sentence(done string) string {
	return done + " " + plural(o.Keys, "key") + when(o.Gone > 0, ", "+number(o.Gone)+" gone") +
		when(o.Left > 0, ", "+number(o.Left)+" left") + when(o.LeftMore, "; there may be more") + "."
}

// pauseText says what a pause or its end has done, or will do after the outage of the queue's server.
func (a *action) pauseText(r *reading, group string, lasts time.Duration) string {
	length := when(lasts > 0, " for "+human(lasts))
	switch {
	case a.ofGroup:
		return fmt.Sprintf(a.doneToQueue, called(short(group, maxName)), length)
	case r.Missing() != "":
		return "The queue's server did not answer in time. It is " + a.Name + "d as soon as it does."
	case a.Name == "pause" && r.entry.queue.Pause == nil:
		return "Paused the queue's workers in this process" + length + "."
	}
	return a.doneToQueue + length + "."
}

// retryText says that the key was added, and what keeps it from coming at once.
func (r *reading) retryText(key any) string {
	q, began := r.entry.queue, time.Now()
	inQueue, _ := q.SnapshotKey(key)
	text := "Added " + called(short(keyText(key), maxKeyBytes)) + "."
	switch {
	case r.eachPool(func(p *worker.Inspector) bool { return p.SnapshotKey(key).OnHold != nil }):
		text += " It is on hold, and comes when the hold ends."
	case inQueue.State == workqueue.KeyProcessing:
		text += " A worker has it, and Done queues it again."
	case inQueue.State == workqueue.KeyWaiting: // As with priorityqueue.Latest, or within a MinInterval.
		text += " Its queue makes it wait, and it comes in " + human(inQueue.Due.Sub(r.At)) + "."
	case r.Stats.Paused || q.Stats().Paused:
		text += " The queue or its workers are paused."
	case inQueue.Blocked:
		text += " Its group is at its limit or paused."
	case inQueue.State == "" && r.checkServer(began) == nil:
		text += " The queue does not have it now: it may be done already, or another replica has its slot."
	}
	return text
}
