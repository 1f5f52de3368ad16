package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyedqueue/workqueue/leasing"
)

// The causes with which handlers' contexts end, besides [leasing.ErrLost]; see [Queue].
var (
	// ErrHandover: the key's slot is to move to another member, and HandoverTimeout has passed.
	ErrHandover = errors.New("sharding: the slot of the key moves to another member")
	// ErrNotHeld: the slot had moved before Lease was called, or another member got it too early.
	ErrNotHeld = errors.New("sharding: the slot of the key is not held")
	// ErrLeft: the member has left.
	ErrLeft = errors.New("sharding: the member has left its group")
)

// ErrRestored ends a member that finds the store set back: its own record is older than what it has written,
// or the table older than one it has seen. Somebody has restored a backup, or edited Leases. Others may hold
// its slots by now, so it stops at once, and does not recover: its queues shut down, and [Member.Err] and
// [Member.Leave] return this. The program should end, as one that has lost its leadership, and start anew.
var ErrRestored = errors.New("sharding: the group's records have gone back in time: restart this replica")

// ErrIncompatible is in the errors for records that this member must not work with: of a newer format, of
// another number of slots, or not written by this library.
var ErrIncompatible = errors.New("sharding: incompatible record")

// ErrNoQueue is in what [Member.Err] returns if the member has had no queue for a lease, or not all of
// Config.Queues: it takes no slots, and the others do all the work. A controller that waits to be the leader
// makes none: its NeedLeaderElection must be false.
var ErrNoQueue = errors.New("sharding: the member takes no slots, because it lacks a queue: " +
	"call NewQueue soon after Join, in each replica")

// Member is a process's part in a group. It holds slots, whose keys the queues of [NewQueue] hand out. It is
// made by [Join]; all methods are safe for concurrent use.
type Member struct {
	// Five loops work for a member: renew keeps its record and expireLoop ends validity in time (own_record.go),
	// confirm reads the table (table_io.go), watchLoop hears of all records (watch.go), and workLoop does all
	// other writes (here, plan.go). What they change under mu takes effect with update (slots.go). Methods named
	// Locked, and those of planner, knownMember and view, need mu. No logger, store or queue is called under it.

	config Config
	store  Store
	logger *slog.Logger
	// All times of the member are durations since start, by the monotonic clock (but for moment.wall).
	start           time.Time
	firstID         string // the id in the first life; see newSelf
	reportedNoQueue bool   // by workLoop, and a queue is lacking still

	slots []ownSlot
	// states has the state of each slot. They lie close together, because queues read one for each key.
	states []atomic.Uint32
	queues atomic.Pointer[[]memberQueue]
	// The member's validity ends at these times, by the monotonic and by the wall clock. Written under mu.
	validUntil, wallUntil atomic.Int64

	ctx                                  context.Context // ends with the member, and with it all loops and calls
	end                                  context.CancelFunc
	loops                                sync.WaitGroup
	toRenew, toConfirm, toWork, toExpire chan struct{} // A signal in one makes that loop look again at once.
	left                                 chan struct{} // closed when the member holds nothing any more

	mu struct {
		sync.Mutex
		self        ownRecord
		lives       int // how many ids this process has had
		view        view
		members     map[string]*knownMember // by their ids
		listVersion string                  // of the last list: a watch begins there
		heardAt     time.Duration           // when the watch or a list last showed a record
		phase       phase                   // of leaving
		leaveErr    error                   // why Leave ended early, or the record could not be marked or deleted
		restored    bool                    // ErrRestored has ended the member.
		barred      bool                    // It has given up its slots until it can use the table.
		// queueNames are those of its queues, and hashes has their hashes. Each change makes a new map.
		queueNames []string
		hashes     map[string]string
		changes    changes // to carry out when mu is unlocked; see update
		wasValid   bool    // at the last updateSlotsLocked
		// handOverAt is when the member may begin to hand over slots; see timeHandoversLocked. makeTableFrom is
		// when the need for a new table arose, or the next try is due: turnLocked counts from it. Zero: no need.
		handOverAt, makeTableFrom time.Duration
		failedAt                  time.Duration // when a call to renew the record or to read the table last failed
		// since is when each of these began, or zero if it is not so.
		since struct {
			planWaits       time.Duration // The table is not as it should be, and the plan must wait.
			notWritten      time.Duration // The table cannot be written.
			unusable        time.Duration // The table cannot be used, although the record is renewed.
			noQueue         time.Duration // The member lacks a queue.
			othersNotListed time.Duration // The others' records cannot be listed.
			drained         time.Duration // The member leaves, and none of its handlers runs any more.
		}
		writeErr error                                // why the last write of the table failed
		stats    Stats                                // only the numbers that grow
		problem  struct{ confirm, renew, list error } // why these calls failed last, or nil; see Err
	}
}

// Join makes this process a member of a group. It returns when the member is stored, and the group's records
// are known; the member gets its share of the slots soon after that. It tries until ctx is done, and then
// returns the last error. A newer format, a table that is not of this library, and another number of slots
// are errors at once ([ErrIncompatible]). With [Leases] it first tries the verbs that the client needs: if
// the client lacks one for a whole lease, Join returns an error that names it. A member that could not join
// deletes its record again, for which it takes up to a fifth of a lease. What happens to ctx after Join does
// not matter: a member stays until [Member.Leave].
//
// Join after the caches that QueueConfig.Keys lists are filled, so that slots do not move to a replica that
// cannot handle their keys yet.
func Join(ctx context.Context, store Store, config Config) (*Member, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if store == nil {
		return nil, errors.New("sharding: the store is nil: use Leases")
	}
	m := &Member{
		config: config, store: store, start: config.Clock.Now(),
		slots: make([]ownSlot, config.Slots), states: make([]atomic.Uint32, config.Slots),
		toRenew: make(chan struct{}, 1), toConfirm: make(chan struct{}, 1), toWork: make(chan struct{}, 1),
		toExpire: make(chan struct{}, 1), left: make(chan struct{})}
	m.queues.Store(&[]memberQueue{})
	m.ctx, m.end = context.WithCancel(context.WithoutCancel(ctx))
	m.logger = config.Logger.With("group", config.Group)
	m.firstID = config.newID(idName(config.Name))
	m.mu.self = m.newSelf()
	m.mu.view = view{firstReadBegan: never, confirmed: neverMoment, longestLease: config.Lease}
	m.mu.members, m.mu.failedAt = make(map[string]*knownMember), never
	stop := context.AfterFunc(ctx, m.end)
	err = m.begin(ctx)
	if !stop() {
		err = cmp.Or(err, fmt.Errorf("sharding: cannot join: %w", ctx.Err()))
	}
	if err != nil {
		m.end()
		m.abandon()
		if m.mu.self.sequence > 0 { // Otherwise it has written nothing.
			err = errors.Join(err, m.deleteSelf(context.WithoutCancel(ctx)))
		}
		return nil, err
	}
	m.logger.Info("Joined", "member", m.ID(), "slots", config.Slots, "lease", config.Lease)
	m.loops.Go(func() { m.repeat(m.renew, "renew the lease", &m.mu.problem.renew, m.toRenew) })
	m.loops.Go(func() { m.repeat(m.confirm, "read the table", &m.mu.problem.confirm, m.toConfirm) })
	m.loops.Go(m.watchLoop)
	m.loops.Go(m.expireLoop)
	m.loops.Go(m.workLoop)
	return m, nil
}

// begin tries the client's rights, reads the table, stores the record and lists the others.
func (m *Member) begin(ctx context.Context) error {
	logged := ""
	for _, step := range []func() error{m.checkRights, m.confirm, m.renew, m.list} {
		for err := step(); err != nil; err = step() {
			switch {
			case errors.Is(err, ErrIncompatible), errors.Is(err, ErrRestored):
				return err
			case isDenied(err) && m.now() >= m.config.Lease: // A server that has just started may forbid anything.
				return fmt.Errorf("sharding: cannot join: %w", err)
			}
			if text := err.Error(); text != logged {
				m.logger.Warn("Cannot join yet", "err", err)
				logged = text
			}
			if m.sleep(ctx, m.retryDelay(), nil) != nil {
				return fmt.Errorf("sharding: cannot join: %w", err)
			}
		}
	}
	return nil
}

// ID returns the member's id in the records. A member that others believed dead gets another one.
func (m *Member) ID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.self.id
}

// Err returns nil if the member is in touch with its group, so that it may hold slots, and otherwise why it
// is not. It also returns an error if for a lease it could not write the table (then its slots cannot move),
// mark the record of an overdue member, or list the others' records (then it may not know a new member). It
// recovers from all these by itself. Without a queue for a lease, it returns [ErrNoQueue]. A member that has
// ended returns ErrLeft, or [ErrRestored], from which it does not recover.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.mu.restored:
		return ErrRestored
	case m.ctx.Err() != nil:
		return ErrLeft
	}
	if since := m.mu.since.notWritten; since > 0 && m.now()-since >= m.config.Lease {
		return fmt.Errorf("sharding: cannot write the table: %w", m.mu.writeErr)
	}
	if m.updateValidityLocked() {
		if since := m.mu.since.othersNotListed; since > 0 && m.now()-since >= m.config.Lease {
			return fmt.Errorf("sharding: this member may not know all others: %w", m.mu.problem.list)
		}
		return cmp.Or(m.markErrLocked(), m.lacksQueueLocked())
	}
	lost := leasing.ErrLost
	if m.mu.view.confirmed == neverMoment { // It has just joined, or a lost table is being replaced.
		lost = errors.New("sharding: the member waits for a table of its group")
	}
	return cmp.Or(m.mu.view.unusable, m.mu.problem.confirm, m.mu.problem.renew, lost)
}

// Done returns a channel that is closed when the member has ended: after [Member.Leave], or with
// [ErrRestored].
func (m *Member) Done() <-chan struct{} { return m.ctx.Done() }

// endRestoredLocked ends the member and returns ErrRestored.
func (m *Member) endRestoredLocked(why string) error {
	if !m.mu.restored {
		m.logLocked(slog.LevelError,
			"A backup was restored, or somebody has edited Leases. This replica must restart",
			"member", m.mu.self.id, "why", why)
	}
	m.mu.restored, m.mu.self.alive, m.mu.changes.shutDown = true, false, true
	m.end()
	return ErrRestored
}

// repeat calls f three times in a lease, at each signal, and after retryDelay if it failed: *problem is why.
func (m *Member) repeat(f func() error, what string, problem *error, signals <-chan struct{}) {
	var failures trouble
	for {
		err := f()
		m.note(&failures, "Cannot "+what, err)
		delay, wake := m.config.Lease/3, signals
		if err != nil {
			delay, wake = m.retryDelay(), nil // A server in trouble does not get a call for each signal.
			err = fmt.Errorf("sharding: cannot %s: %w", what, err)
		}
		m.noteCall(problem, err)
		if m.sleep(m.ctx, delay, wake) != nil {
			return
		}
	}
}

// noteCall notes how a call to renew the record or to read the table has ended.
func (m *Member) noteCall(problem *error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if *problem = err; err != nil {
		m.mu.failedAt = m.now()
	}
	switch { // since.unusable runs only while the record is renewed: else the others take the slots anyway.
	case m.mu.problem.confirm == nil, m.now()-m.mu.self.renewed.mono > m.config.Lease*2/3:
		m.mu.since.unusable = 0
	case m.mu.problem.renew == nil:
		m.mu.since.unusable = cmp.Or(m.mu.since.unusable, m.now())
	}
}

// workLoop writes the table, marks and deletes records, and lets the member leave.
func (m *Member) workLoop() {
	steps := []step{{f: m.makeTable}, {f: m.markOverdue}, {f: m.tidyRecords}, {f: m.writeTable}, {f: m.giveUp}}
	for !m.tryLeave() {
		next, failed := m.work(steps)
		wake := m.toWork
		if failed {
			next, wake = m.now()+soon, nil // A server in trouble does not get a call for each signal.
		}
		if m.sleep(m.ctx, max(0, next-m.now()), wake) != nil {
			return
		}
	}
}

// step is a part of what workLoop does. f returns when to call it again if nothing changes.
type step struct {
	f        func(now time.Duration) (due time.Duration, err error)
	failures trouble
}

// work does what is due. It returns when to look again if nothing changes, and whether a step failed.
func (m *Member) work(steps []step) (next time.Duration, failed bool) {
	now, lacksQueue := m.now(), error(nil)
	m.update(func() {
		m.updateSlotsLocked()
		next = m.endTimedOutLocked(now)
		lacksQueue = m.lacksQueueLocked()
		if m.mu.handOverAt > now {
			next = min(next, m.mu.handOverAt)
		}
	})
	if lacksQueue != nil && !m.reportedNoQueue {
		m.logger.Warn("No slots", "member", m.ID(), "err", lacksQueue)
	}
	m.reportedNoQueue = lacksQueue != nil
	for i := range steps {
		s := &steps[i]
		due, err := s.f(now)
		m.note(&s.failures, "Cannot move slots", err)
		failed = failed || err != nil
		next = min(next, due)
	}
	return next, failed
}

// turnLocked returns how long this member waits, so that those with smaller ids can do the same first.
func (m *Member) turnLocked(now time.Duration) time.Duration {
	rank := 0
	for id, k := range m.mu.members {
		if id < m.mu.self.id && k.isAlive(now) {
			rank++
		}
	}
	return turn * time.Duration(min(rank, maxTurns))
}

// trouble counts how often something has failed, as long as no two leases pass without a failure.
type trouble struct {
	failures int
	last     time.Duration
}

// note logs the first failure of something, and each doubling of their number, unless the member has ended. A
// call without an error ends no trouble: what fails is often tried only now and then.
func (m *Member) note(t *trouble, message string, err error) {
	if err == nil || m.ctx.Err() != nil {
		return
	}
	now := m.now()
	if now-t.last >= 2*m.config.Lease {
		t.failures = 0
	}
	t.failures, t.last = t.failures+1, now
	if t.failures&(t.failures-1) == 0 {
		m.logger.Warn(message, "member", m.ID(), "failures", t.failures, "err", err)
	}
}

func (m *Member) recordName(id string) string { return m.config.Group + "-member-" + id }
func (m *Member) tableName() string           { return m.config.Group + "-table" }

// now is the time since the member's start by its own clock.
func (m *Member) now() time.Duration { return m.config.Clock.Since(m.start) }

// retryDelay is the pause after a failed call, and callTimeout how long a call may take.
func (m *Member) retryDelay() time.Duration  { return m.config.Lease / 15 }
func (m *Member) callTimeout() time.Duration { return m.config.Lease / 5 }

// call calls f for callTimeout at most, by the member's clock.
func (m *Member) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := m.config.Clock.NewTimer(m.callTimeout())
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
		}
	}()
	err := f(ctx)
	if err != nil && context.Cause(ctx) == context.DeadlineExceeded {
		err = fmt.Errorf("no answer within %v: %w", m.callTimeout(), err)
	}
	return err
}

func (m *Member) get(name string) (r Record, err error) {
	err = m.call(m.ctx, func(ctx context.Context) error {
		r, err = m.store.Get(ctx, name)
		return err
	})
	return r, err
}

// put creates a record that has no version yet, and updates others.
func (m *Member) put(r Record) (stored Record, err error) {
	write := m.store.Update
	if r.Version == "" {
		write = m.store.Create
	}
	err = m.call(m.ctx, func(ctx context.Context) error {
		stored, err = write(ctx, r)
		return err
	})
	return stored, err
}

func (m *Member) listRecords() (records []Record, version string, err error) {
	err = m.call(m.ctx, func(ctx context.Context) error {
		records, version, err = m.store.List(ctx, m.config.Group)
		return err
	})
	return records, version, err
}

// sleep waits for d, a signal, or the end of ctx or the member, for which it returns an error.
func (m *Member) sleep(ctx context.Context, d time.Duration, signals <-chan struct{}) error {
	timer := m.config.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-signals:
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
	return nil
}

// signal makes a loop look again.
func signal(toLoop chan struct{}) {
	select {
	case toLoop <- struct{}{}:
	default: // It has not received the last one yet.
	}
}
