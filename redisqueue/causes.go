package redisqueue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/keyedqueue/workqueue"
)

// AddCause is Add that says why. The server keeps the causes with the key, and merges those of all replicas,
// as workqueue.Causes does; their times are rounded down to microseconds. They come with the key to the
// worker that gets it, again if its lease is lost, and are forgotten when a worker is Done with it. A key
// with causes takes up to 3 KB more on the server, and twice that if it is added again while it is being
// handled.
func (q *Queue[T]) AddCause(item T, cause workqueue.Cause) {
	if cause.Time.IsZero() {
		cause.Time = time.Now()
	}
	encoded, s := q.locate(item)
	add := newAdd(encoded)
	add.causes, add.quiet = add.causes.Plus(cause), cause.Quiet
	_ = q.whileOpen(context.Background(), func() { s.putLocked(add) })
}

// Causes returns the causes with which item was handed out to a worker of this replica, none for any other
// key. It does not ask the server; SnapshotKey has those of every key.
func (q *Queue[T]) Causes(item T) (causes workqueue.Causes) {
	if h := q.holdOf(item); h != nil {
		causes = decodeCauses(h.causes)
	}
	return causes
}

// volume is the letter for Cause.Quiet.
var volume = map[bool]string{true: "q", false: "l"}

// encodeCauses returns causes as addCauses in notes.lua describes them, nothing if there are none.
// Behind its time and volume, a cause is the length of TraceParent in two digits, TraceParent and Reason.
// Causes that agree in these are the same.
func encodeCauses(causes workqueue.Causes) string {
	if causes.IsZero() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s ", causes.Others, stamp(causes.First))
	for _, c := range causes.Last {
		trace := fmt.Sprintf("%02d%s", len(c.TraceParent), c.TraceParent)
		cause := stamp(c.Time) + volume[c.Quiet] + trace + c.Reason
		fmt.Fprintf(&b, "%d %s", len(cause), cause)
	}
	return b.String()
}

// stamp returns t in 16 digits, as microseconds since 1970.
func stamp(t time.Time) string {
	return fmt.Sprintf("%016d", min(max(t.UnixMicro(), 0), 9_999_999_999_999_999))
}

// decodeCauses is the inverse of encodeCauses.
func decodeCauses(text string) (causes workqueue.Causes) {
	if text == "" {
		return causes
	}
	p := parser{rest: text}
	causes.Others, causes.First = int(p.number()), time.UnixMicro(p.number())
	for p.rest != "" && !p.bad {
		own := parser{rest: p.take(int(p.number()))}
		c := workqueue.Cause{Time: time.UnixMicro(own.digits(16)), Quiet: own.take(1) == "q"}
		c.TraceParent = own.take(int(own.digits(2)))
		c.Reason = own.rest
		causes.Last = append(causes.Last, c)
	}
	return causes
}
