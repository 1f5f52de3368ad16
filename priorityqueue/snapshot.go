package priorityqueue

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/internal/keytable"
	"github.com/keyedqueue/workqueue/internal/observe"
	"github.com/keyedqueue/workqueue/internal/slotheap"
)

// fewKeys is how many keys of each state Snapshot copies under one lock.
const fewKeys = maxPerLock

type keySnapshots[T comparable] = []workqueue.KeySnapshot[T]

// Snapshot returns Stats and copies of up to limit keys of each state.
//
// Queued keys come in the order in which they would be handed out now if no group came to its limit meanwhile; keys
// that are blocked already come last. Up to 512 keys of each state are copied as they are at one moment. Where a
// higher limit asks for more, Snapshot looks at all keys, a few hundred at a time with the lock given back in
// between: a key that moves meanwhile may be listed twice, or not at all, and queued keys behind the first 512 are
// in the order of their priorities and times alone.
//
// Processing begins with the key that has been held for longest. A key that is processed, and waits to come again,
// is also among Waiting. A queue without metrics does not know who has been held for longest: it looks at all keys,
// as above, and lists the first held ones that it finds. The limiter is asked for the requeues of each key, and for
// Failing if it is a [workqueue.RequeueLister], without the lock.
func (q *Queue[T]) Snapshot(limit int) workqueue.Snapshot[T] {
	limit = max(limit, 0)
	s := q.copyFew(min(limit, fewKeys))
	if limit > len(s.Queued) && s.Stats.Queued > len(s.Queued) {
		s.Queued = q.addOtherQueued(s.Queued, limit)
	}
	if limit > len(s.Waiting) && s.Stats.Waiting > len(s.Waiting) {
		s.Waiting = q.scan(math.MaxInt, func(st state) bool { return st&(waiting|timed) != 0 }, true)
		slices.SortStableFunc(s.Waiting, func(a, b workqueue.KeySnapshot[T]) int { return a.Due.Compare(b.Due) })
		s.Waiting = s.Waiting[:min(limit, len(s.Waiting))]
	}
	isRunning := func(st state) bool { return st&running != 0 }
	if q.observer == nil {
		s.Processing = q.scan(limit, isRunning, false)
	} else if limit > len(s.Processing) && s.Stats.Processing > len(s.Processing) {
		s.Processing = q.scan(math.MaxInt, isRunning, false)
		slices.SortStableFunc(s.Processing, bySince)
		s.Processing = s.Processing[:min(limit, len(s.Processing))]
	}
	for _, keys := range []keySnapshots[T]{s.Processing, s.Queued, s.Waiting} {
		for i := range keys {
			keys[i].Requeues = q.NumRequeues(keys[i].Key)
		}
	}
	lister, lists := q.config.RateLimiter.(workqueue.RequeueLister[T])
	if s.FailingUnlisted = !lists; lists {
		s.Failing = lister.MostRequeued(limit)
		for i := range s.Failing {
			q.describeFailing(&s.Failing[i])
		}
	}
	return s
}

func bySince[T comparable](a, b workqueue.KeySnapshot[T]) int { return a.Since.Compare(b.Since) }

func (q *Queue[T]) describeFailing(k *workqueue.KeySnapshot[T]) {
	info := q.inspect(k.Key)
	k.Priority, k.Group, k.Blocked = info.Priority, info.Group, info.Blocked
	if info.State == Waiting {
		k.Since, k.Due = info.Added, info.Due
	}
}

// copyFew returns Stats and the first limit keys of the states whose keys the queue has in order, under one lock.
func (q *Queue[T]) copyFew(limit int) (s workqueue.Snapshot[T]) {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	s.Stats = q.statsLocked(now)
	s.Queued = q.appendNextLocked(make(keySnapshots[T], 0, min(limit, q.queued)))
	s.Waiting = make(keySnapshots[T], 0, min(limit, q.due.Len()))
	for e := range q.due.InOrder() {
		if len(s.Waiting) == cap(s.Waiting) {
			break
		}
		s.Waiting = append(s.Waiting, q.waitingSnapshotLocked(e.Slot))
	}
	if q.observer == nil {
		return s
	}
	s.Processing = make(keySnapshots[T], 0, min(limit, q.running))
	for slot := range q.observer.Running() {
		if len(s.Processing) == cap(s.Processing) {
			break
		}
		s.Processing = append(s.Processing, q.snapshotLocked(slot))
	}
	return s
}

// snapshotLocked returns what Snapshot shows of the key at s, which is ready or running.
func (q *Queue[T]) snapshotLocked(s keytable.Slot) workqueue.KeySnapshot[T] {
	info := q.infoLocked(s)
	k := workqueue.KeySnapshot[T]{
		Key: info.Key, Again: info.Again, Priority: info.Priority, Group: info.Group, Blocked: info.Blocked,
	}
	switch {
	case q.observer == nil:
	case info.State == Processing:
		k.Since = q.timeOf(int64(q.observer.StartedAt(s)))
	default:
		k.Since = q.timeOf(int64(q.observer.AddedAt(s)))
	}
	return k
}

// waitingSnapshotLocked is snapshotLocked for a key that is in due.
func (q *Queue[T]) waitingSnapshotLocked(s keytable.Slot) workqueue.KeySnapshot[T] {
	info := q.infoLocked(s)
	return workqueue.KeySnapshot[T]{
		Key: info.Key, Since: info.Added, Due: info.Due, Priority: info.Priority, Group: info.Group,
	}
}

// scan returns up to limit keys whose state is wanted, and gives the lock back after each slab. With asWaiting it
// describes them as keys in due, which they must be.
func (q *Queue[T]) scan(limit int, wanted func(state) bool, asWaiting bool) keySnapshots[T] {
	scanSlab := func(n int, keys keySnapshots[T]) (keySnapshots[T], bool) {
		q.lockAt(q.readClock(false))
		defer q.unlock()
		for s := range q.keys.LiveSlots(n) {
			switch {
			case len(keys) == limit:
				return keys, false
			case !wanted(q.keys.At(s).Value.state):
			case asWaiting:
				keys = append(keys, q.waitingSnapshotLocked(s))
			default:
				keys = append(keys, q.snapshotLocked(s))
			}
		}
		return keys, n+1 < q.keys.Slabs()
	}
	return keytable.Collect(scanSlab, nil)
}

// addOtherQueued returns first and, behind them, the other queued keys up to limit.
func (q *Queue[T]) addOtherQueued(first keySnapshots[T], limit int) keySnapshots[T] {
	listed := make(map[T]struct{}, len(first))
	for _, k := range first {
		listed[k.Key] = struct{}{}
	}
	others := q.scan(math.MaxInt, func(st state) bool { return st&ready != 0 }, false)
	others = slices.DeleteFunc(others, func(k workqueue.KeySnapshot[T]) bool {
		_, isListed := listed[k.Key]
		return isListed
	})
	slices.SortStableFunc(others, func(a, b workqueue.KeySnapshot[T]) int {
		if a.Blocked != b.Blocked {
			if b.Blocked {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), bySince(a, b))
	})
	all := slices.Concat(first, others)
	return all[:min(limit, len(all))]
}

// appendNextLocked appends the keys that will be handed out next, up to the capacity of keys, and then those that are
// blocked.
func (q *Queue[T]) appendNextLocked(keys keySnapshots[T]) keySnapshots[T] {
	keys = newPreview(q, &q.order, q.config.Group != nil, cap(keys)).appendTo(keys)
	return newPreview(q, &q.blocked, false, cap(keys)-len(keys)).appendTo(keys)
}

// preview reads the keys of the lines of a heap in the order in which they will be handed out, without changing the
// queue. It does what takeLocked does, with copies of what that would change.
type preview[T comparable] struct {
	q *Queue[T]
	// order has the lines that can be the next ones, by the next keys that the preview will read from them.
	order slotheap.Heap
	// lines are copies of those from which a key was read, or whose ring has changed.
	lines map[keytable.Slot]*previewLine
	// turns are the rings, by their priorities, from which a key was read. It is nil without rings.
	turns map[int]keytable.Slot
}

type previewLine struct {
	key        keytable.Slot // the next key
	prev, next keytable.Slot // in the ring
	left       int
}

// newPreview returns a preview of up to limit keys. As each of them is read from one line, the first limit lines are
// enough to begin with.
func newPreview[T comparable](q *Queue[T], lines *slotheap.Heap, rings bool, limit int) *preview[T] {
	p := &preview[T]{q: q, lines: map[keytable.Slot]*previewLine{}}
	if rings {
		p.turns = map[int]keytable.Slot{}
	}
	for e := range lines.InOrder() {
		if p.order.Len() == limit {
			break
		}
		p.order.Push(e)
	}
	return p
}

// appendTo appends the keys, up to the capacity of keys.
func (p *preview[T]) appendTo(keys keySnapshots[T]) keySnapshots[T] {
	for len(keys) < cap(keys) {
		s := p.next()
		if s == keytable.None {
			break
		}
		keys = append(keys, p.q.snapshotLocked(s))
	}
	return keys
}

// next returns the next key, or None.
func (p *preview[T]) next() keytable.Slot {
	if p.order.Len() == 0 {
		return keytable.None
	}
	n := p.order.First().Slot
	if p.turns != nil {
		n = p.turn(n)
	}
	l := p.line(n)
	s := l.key
	l.key = p.q.readyFromLocked(p.q.keys.At(s).Value.next)
	if p.order.Has(n) {
		p.order.Remove(n)
	}
	if l.key != keytable.None {
		p.order.Push(p.q.entryOfKeyLocked(n, l.key))
	} else if p.turns != nil {
		p.leaveRing(n, l)
	}
	return s
}

// line returns the copy of line n.
func (p *preview[T]) line(n keytable.Slot) *previewLine {
	l := p.lines[n]
	if l == nil {
		original := &p.q.lines.At(n).Value
		l = &previewLine{p.q.firstReadyLocked(original), original.prev, original.next, original.left}
		p.lines[n] = l
	}
	return l
}

// turn is turnLocked.
func (p *preview[T]) turn(n keytable.Slot) keytable.Slot {
	priority := p.q.lines.At(n).Key.priority
	n, ok := p.turns[priority]
	if !ok {
		_, r := p.q.rings.Find(keytable.HashOf(priority), priority)
		n = r.Value.turn
	}
	l := p.line(n)
	if l.left == 0 {
		l.left = p.q.groups.At(p.q.lines.At(n).Key.group).Value.weight
	}
	p.turns[priority] = n
	if l.left--; l.left == 0 {
		p.turns[priority] = l.next
	}
	return n
}

// leaveRing is leaveRingLocked. If the line is the last one in its ring, the ring is not looked at any more.
func (p *preview[T]) leaveRing(n keytable.Slot, l *previewLine) {
	p.line(l.prev).next = l.next
	p.line(l.next).prev = l.prev
	if priority := p.q.lines.At(n).Key.priority; p.turns[priority] == n {
		p.turns[priority] = l.next
	}
}

// beginObserving gives q metrics if it has a name and a provider.
func (q *Queue[T]) beginObserving() {
	provider := q.config.MetricsProvider
	if global := observe.Global.Load(); provider == nil && global != nil {
		provider, _ = (*global).(workqueue.StatsProvider)
	}
	if q.config.Name == "" || provider == nil {
		return
	}
	q.alwaysTimed = true
	buckets, err := observe.SharedBuckets(provider.HistogramBounds())
	if err != nil {
		panic("priorityqueue: StatsProvider: " + err.Error())
	}
	q.observer = observe.New(q.config.Clock, buckets, nil)
	provider.WatchQueue(q.config.Name, q.Stats)
	if provider, ok := provider.(workqueue.InspectorProvider); ok {
		provider.InspectQueue(q.config.Name, workqueue.Inspect(q))
	}
}

// beginNeedLocked counts an add that made the key at s ready, or come again at once, with that priority.
func (q *Queue[T]) beginNeedLocked(s keytable.Slot, priority int, now int64) {
	q.adds++
	if q.observer != nil {
		q.observer.Added(s, time.Duration(now))
		q.depths.add(priority, 1)
	}
}

// endNeedLocked counts a key for which beginNeedLocked was called, and which is handed out or dropped.
func (q *Queue[T]) endNeedLocked(priority int) {
	if q.observer != nil {
		q.depths.add(priority, -1)
	}
}

// Stats returns the queue's numbers. It takes constant time, except for keys that have just come due. A key
// that a worker holds and that must not come again before its time counts as Processing and as Waiting.
func (q *Queue[T]) Stats() workqueue.Stats {
	now := q.readClock(false)
	q.lockAt(now)
	defer q.unlock()
	return q.statsLocked(now)
}

func (q *Queue[T]) statsLocked(now int64) workqueue.Stats {
	st := workqueue.Stats{
		Name:           q.config.Name,
		ShuttingDown:   q.shuttingDown.Load(),
		Queued:         q.queued,
		Blocked:        q.blockedKeys,
		Paused:         q.paused,
		Processing:     q.running,
		Again:          q.wishes,
		Waiting:        q.due.Len(),
		Adds:           q.adds,
		Retries:        q.retries,
		Dropped:        q.dropped,
		UnmatchedDones: q.unmatchedDones,
	}
	if q.observer == nil {
		return st
	}
	for s := range q.observer.InLine() {
		st.OldestQueued = q.observer.SinceAdded(s, time.Duration(now))
		break
	}
	st.UnfinishedWork, st.LongestRunning = q.observer.Unfinished(time.Duration(now))
	st.Latency = histogram(&q.observer.Latency)
	st.WorkDuration = histogram(&q.observer.WorkDuration)
	st.ByPriority = q.depths.public()
	return st
}

func histogram(h *observe.Histogram) *workqueue.Histogram {
	bounds, counts, sum := h.Read()
	return &workqueue.Histogram{Bounds: bounds, Counts: counts, Sum: sum}
}

// depths counts the keys that need processing, of the first priorities that it meets, and of all others together.
type depths struct {
	known  []workqueue.PriorityDepth
	others int
}

// maxDepths is how many priorities are counted by themselves, as in controller-runtime.
const maxDepths = 25

func (d *depths) add(priority, n int) {
	for i := range d.known {
		if d.known[i].Priority == priority {
			d.known[i].Queued += n
			return
		}
	}
	if len(d.known) < maxDepths {
		d.known = append(d.known, workqueue.PriorityDepth{Priority: priority, Queued: n})
		return
	}
	d.others += n
}

func (d *depths) public() *workqueue.PriorityDepths {
	known := slices.Clone(d.known)
	slices.SortFunc(known, func(a, b workqueue.PriorityDepth) int { return cmp.Compare(b.Priority, a.Priority) })
	return &workqueue.PriorityDepths{Depths: known, Others: d.others}
}
