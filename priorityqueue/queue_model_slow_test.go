package priorityqueue_test

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/keyedqueue/workqueue"
	pq "github.com/keyedqueue/workqueue/priorityqueue"
)

// slowQueue is what a queue does, in the obvious way. Times are durations since the test's epoch.
type slowQueue struct {
	config  pq.Config[int]
	limiter workqueue.TypedRateLimiter[int]
	// failures are of keys that were held.
	failures map[int]slowFailure
	now      time.Duration

	keys map[int]*slowKey
	// turns are, for each priority, the groups from which a key can be taken, the next one first.
	turns map[int][]slowTurn
	// lastStart is never forgotten.
	lastStart map[int]time.Duration
	lastReady time.Duration
	seq       int
	paused    bool
	// pausedGroups has when each pause ends. It is nil in a queue without groups.
	pausedGroups map[string]slowPause
	// ended are the channels of AddedAgain of earlier hand-outs.
	ended []*slowWait
	// clockRead is set during a call that has read the clock.
	clockRead bool
	down      bool
	taken     uint64
	stats     workqueue.Stats
}

type slowFailure struct {
	n     int
	until time.Duration // the end of the delay
}

type slowPause struct {
	until time.Duration
	seq   int
}

type slowKey struct {
	key      int
	state    workqueue.KeyState
	priority int // as handed out, if processing
	level    int // of the line in which it stands
	group    string
	seq      int           // among the ready, or the waiting
	since    time.Duration // ready
	due      time.Duration
	asked    time.Duration // due, without regard to the interval
	added    time.Duration
	dated    bool
	byEvent  bool // added is when the first event was
	// of a key that is processing
	again         bool
	againPriority int
	timed         bool // not before due
	placed        bool // has its place in line

	backoff bool
	failed  bool // a failure was counted since the hand-out
	onHold  bool

	nextCauses, currentCauses []string
	// quiet reports that all adds since the hand-out were quiet.
	quiet bool
	waits []*slowWait
}

// slowWait is a channel of AddedAgain, and whether it is to be closed.
type slowWait struct {
	c      <-chan struct{}
	closed bool
}

// addedLoudly reports whether k is to be queued at its Done because of an add that was not quiet.
func (k *slowKey) addedLoudly() bool { return k.again && !k.timed && !k.quiet }

const (
	atOnce  time.Duration = -1 << 62
	endless time.Duration = math.MaxInt64
)

func (m *slowQueue) timed() bool {
	return m.config.Aging > 0 || m.config.MinInterval > 0 || m.config.MetricsProvider != nil
}

func (m *slowQueue) group(key int) string {
	if m.config.Group == nil {
		return ""
	}
	return m.config.Group(key)
}

func (m *slowQueue) weight(group string) int {
	if m.config.Weight == nil {
		return 1
	}
	return max(1, m.config.Weight(group))
}

func (m *slowQueue) floor(key int) time.Duration {
	if last, ok := m.lastStart[key]; ok && m.config.MinInterval > 0 {
		return last + m.config.MinInterval
	}
	return atOnce
}

// sorted returns the keys of a state, those that came first before the others. Keys that are held, and are
// not to be queued before their time, wait as well.
func (m *slowQueue) sorted(state workqueue.KeyState) []*slowKey {
	var all []*slowKey
	for _, k := range m.keys {
		if k.state == state || state == workqueue.KeyWaiting && k.timed {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *slowKey) int {
		if state == workqueue.KeyWaiting {
			return cmp.Or(cmp.Compare(a.due, b.due), a.seq-b.seq)
		}
		return a.seq - b.seq
	})
	return all
}

func (m *slowQueue) count(state workqueue.KeyState) int { return len(m.sorted(state)) }

func (m *slowQueue) becomeReady(k *slowKey, now time.Duration) {
	if !k.placed {
		m.place(k, k.priority, now)
	}
	k.state = workqueue.KeyQueued
	k.again, k.timed, k.backoff, k.placed = false, false, false, false
	m.update()
}

// place gives k the last place in a line.
func (m *slowQueue) place(k *slowKey, level int, now time.Duration) {
	m.seq++
	m.lastReady = max(m.lastReady, now)
	k.level, k.seq, k.since = level, m.seq, m.lastReady
}

// comeAgain makes k, which a worker holds, be queued at its Done.
func (m *slowQueue) comeAgain(k *slowKey, now time.Duration) {
	m.stats.Adds++
	k.timed, k.backoff = false, false
	if !k.onHold {
		m.place(k, k.againPriority, now)
		k.placed = true
	}
}

// wait makes k wait until at.
func (m *slowQueue) wait(k *slowKey, at time.Duration) {
	if at <= m.now {
		m.stats.Adds++
		m.becomeReady(k, m.now)
		return
	}
	m.seq++
	k.state, k.seq, k.due = workqueue.KeyWaiting, m.seq, at
}

// pass makes ready what is due at now.
func (m *slowQueue) pass(now time.Duration) {
	m.now = now
	for _, k := range m.sorted(workqueue.KeyWaiting) {
		if k.due > now {
			continue
		}
		m.endPauses(k.due)
		if k.timed {
			m.comeAgain(k, k.due)
		} else {
			m.stats.Adds++
			m.becomeReady(k, k.due)
		}
	}
	m.endPauses(now)
}

// caller is who adds a key.
type caller int

const (
	byEvent              caller = iota
	byWorker                    // if a worker holds the key
	byWorkerWithPriority        // the same, and the key does not keep its priority
)

func (m *slowQueue) add(key int, o pq.AddOpts, by caller, retry bool) {
	if m.down {
		return
	}
	m.merge(key, o, by, retry)
	if k := m.keys[key]; o.Cause != nil && o.Cause.Reason != "" {
		k.nextCauses = append(slices.DeleteFunc(k.nextCauses, func(r string) bool { return r == o.Cause.Reason }),
			o.Cause.Reason)
	}
}

func (m *slowQueue) merge(key int, o pq.AddOpts, by caller, retry bool) {
	if retry {
		m.stats.Retries++
	}
	if o.Delay == pq.DefaultDelay {
		o.Delay = cmp.Or(m.config.Delay, pq.Earliest)
	}
	k := m.keys[key]
	isEvent := by == byEvent || k == nil || k.state != workqueue.KeyProcessing
	if o.RateLimited {
		isEvent = o.MaxDelay != 0
	} else if o.MaxDelay == 0 {
		o.MaxDelay = m.config.MaxDelay
	}
	at := atOnce
	if o.After > 0 {
		at = m.now + o.After
	}
	needed := o.After > 0 || o.RateLimited || o.MaxDelay > 0 && (o.Delay == pq.Latest || o.Delay == pq.Replace)
	if o.RateLimited && (k == nil || k.state != workqueue.KeyQueued) {
		if delay := m.delay(key, o); delay > 0 {
			at = m.now + delay
		} else {
			at = atOnce
		}
	}
	known := needed || m.timed() || m.timesPending() || m.clockRead
	merge := func(before time.Duration) time.Duration {
		switch {
		case o.Delay == pq.Latest:
			return max(before, at)
		case o.Delay == pq.Replace:
			return at
		}
		return min(before, at)
	}
	// note notes when the first event was, or the first add of another kind before that.
	note := func() {
		if known && (!k.dated || isEvent && !k.byEvent) {
			k.added, k.dated, k.byEvent = m.now, true, isEvent
		}
	}
	// bound is called with the time that the key had, or atOnce if it had none.
	bound := func(at, before time.Duration) time.Duration {
		if o.MaxDelay > 0 && (o.Delay == pq.Latest || o.Delay == pq.Replace) && k.byEvent {
			latest := k.added + o.MaxDelay
			if k.backoff && o.Delay == pq.Latest {
				latest = max(latest, before)
			}
			at = min(at, latest)
		}
		k.asked = at
		return max(at, m.floor(key))
	}
	mark := func() {
		k.backoff = o.RateLimited || k.backoff && o.Delay != pq.Replace
	}
	switch {
	case k == nil:
		k = &slowKey{key: key, priority: o.Priority, group: m.group(key), backoff: o.RateLimited}
		m.keys[key] = k
		note()
		m.wait(k, bound(at, atOnce))
	case k.state == workqueue.KeyQueued:
		if o.Priority < k.priority && !o.SetPriority || o.Priority == k.priority {
			return
		}
		before := k.priority
		k.priority = o.Priority
		if !m.losesPlace(k, before, o.Priority) {
			return
		}
		// It leaves its line before it joins the next one.
		delete(m.keys, key)
		m.update()
		m.keys[key] = k
		m.becomeReady(k, m.now)
	case k.state == workqueue.KeyWaiting:
		if k.priority = max(k.priority, o.Priority); o.SetPriority {
			k.priority = o.Priority
		}
		note()
		before := k.due
		due := bound(merge(k.asked), k.asked)
		mark()
		if due != before {
			m.wait(k, due)
		}
	default:
		p := o.Priority
		if by == byWorker {
			p = k.priority
		}
		beforePriority := k.againPriority
		if k.againPriority = max(k.againPriority, p); !k.again || o.SetPriority {
			k.againPriority = p
		}
		if k.placed && m.losesPlace(k, beforePriority, k.againPriority) {
			m.place(k, k.againPriority, m.now)
		}
		isQuiet := o.Cause != nil && o.Cause.Quiet
		k.quiet = isQuiet && (k.quiet || !k.again)
		wasTimed, before := k.timed, k.due
		switch {
		case !k.again:
			k.again, k.dated, k.byEvent, k.backoff, k.asked = true, false, false, false, atOnce
		case !k.timed:
			return
		default:
			at = merge(k.asked)
		}
		note()
		k.due = bound(at, k.asked)
		mark()
		k.timed = k.due > m.now
		switch {
		case k.timed && !(wasTimed && k.due == before):
			m.seq++
			k.seq = m.seq
		case !k.timed:
			k.backoff = false
			m.comeAgain(k, m.now)
		}
		if k.timed {
			k.placed = false
		}
	}
}

// delay returns how long a rate-limited add of key, which is not queued, makes the key wait. For a held key
// it is a failure.
func (m *slowQueue) delay(key int, o pq.AddOpts) time.Duration {
	limit := func(d time.Duration) time.Duration {
		if o.After > 0 {
			d = min(d, o.After)
		}
		return max(d, o.AtLeast, 0)
	}
	k := m.keys[key]
	switch {
	case k == nil || k.state == workqueue.KeyWaiting && !k.backoff:
		return limit(m.limiter.When(key))
	case k.state == workqueue.KeyWaiting:
		return limit(max(k.asked, m.now) - m.now)
	}
	f := m.failures[key]
	d := time.Duration(0)
	if f.n > 0 {
		d = max(0, f.until-m.now)
	}
	if k.failed && f.n > 0 || d > 0 {
		d = max(d, o.AtLeast)
	} else {
		f.n++
		k.failed = true
		d = m.limiter.When(key)
	}
	d = limit(d)
	policy := cmp.Or(o.Delay, m.config.Delay)
	if o.MaxDelay > 0 && (policy == pq.Latest || policy == pq.Replace) {
		first := m.now
		if k.again && k.byEvent {
			first = k.added
		}
		latest := first + o.MaxDelay
		if k.backoff && policy == pq.Latest {
			latest = max(latest, k.asked)
		}
		d = min(d, max(0, latest-m.now))
	}
	f.until = m.now + d
	m.failures[key] = f
	return d
}

// timesPending reports whether the queue would read the clock for any call.
func (m *slowQueue) timesPending() bool {
	for _, p := range m.pausedGroups {
		if p.until != endless {
			return true
		}
	}
	return m.count(workqueue.KeyWaiting) > 0
}

func (m *slowQueue) forget(key int) {
	m.limiter.Forget(key)
	delete(m.failures, key)
}

func (m *slowQueue) remove(key int) bool {
	m.forget(key)
	k := m.keys[key]
	if k == nil {
		return false
	}
	if k.state == workqueue.KeyProcessing {
		k.again, k.timed, k.backoff, k.failed, k.placed, k.nextCauses = false, false, false, false, false, nil
		return true
	}
	delete(m.keys, key)
	m.update()
	return true
}

func (m *slowQueue) shutDown() {
	if m.down {
		return
	}
	for _, k := range m.sorted(workqueue.KeyWaiting) { // All intervals are over.
		k.due = min(k.due, max(k.asked, m.now))
	}
	m.pass(m.now)
	m.stats.Dropped += uint64(m.count(workqueue.KeyWaiting))
	m.down, m.paused = true, false
	for len(m.pausedGroups) > 0 {
		m.endPauses(endless)
	}
	for _, k := range m.sorted(workqueue.KeyWaiting) {
		if k.timed {
			k.again, k.timed, k.backoff, k.nextCauses = false, false, false, nil
		} else {
			delete(m.keys, k.key)
		}
	}
}
