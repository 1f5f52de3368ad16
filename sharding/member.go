package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The causes with which handlers' contexts end; see [Queue].
var (
	// ErrLeaseLost: the member could not renew its lease, or read the table, in time, so another one may soon hold the
	// key's slot.
	ErrLeaseLost = errors.New("sharding: the lease is lost")
	// ErrHandover: the key's slot is to move to another member, and HandoverTimeout has passed.
	ErrHandover = errors.New("sharding: the slot of the key moves to another member")
	// ErrNotHeld: the slot moved to another member between Get and Lease.
	ErrNotHeld = errors.New("sharding: the slot of the key is not held")
	// ErrLeft: the member has left.
	ErrLeft = errors.New("sharding: the member has left its group")
)

// ErrIncompatible is in the errors for records that this member must not work with: of a newer format, of another
// number of slots, or not written by this library.
var ErrIncompatible = errors.New("sharding: incompatible record")

// Member is a process's part in a group. It holds slots, whose keys the queues of [NewQueue] hand out. It is made by
// [Join]; all methods are safe for concurrent use.
type Member struct {
	config Config
	store  Store
	logger *slog.Logger
	// start is what all times of the member count from. They are readings of the clock's monotonic part.
	start time.Time

	slots []slot
	// states has the state of each slot, together, because queues read one for each key.
	states []atomic.Uint32
	queues atomic.Pointer[[]slotQueue]
	// validUntil is when the member stops to hold slots unless it hears from the store again. It is written under mu.
	validUntil atomic.Int64

	// ctx is that of all loops and calls, and ends when the member has left.
	ctx   context.Context
	end   context.CancelFunc
	loops sync.WaitGroup
	// Each of these has room for one signal to a loop: that it should look again.
	toRenew, toConfirm, toWork, toExpire chan struct{}
	// left is closed when the member holds nothing any more and its record is deleted.
	left chan struct{}

	mu struct {
		sync.Mutex
		self own
		view view
		// members has what is known of each member, by its id.
		members map[string]*seen
		// listed is the version from which to watch, and heard when the watch reported something last.
		listed string
		heard  time.Duration
		// leaving: Leave was called. finished: the member's record is not to be written any more.
		leaving, finished bool
		// finishes: a queue has keys that are to be handled before their slot moves.
		finishes bool
		// since is when it was first seen that there is no table, and that the table is not as planned, or zero.
		since struct{ missing, plan time.Duration }
		// stats has what only grows.
		stats Stats
		// problem is why the member holds no slots, or the last error of its work, for Err.
		problem error
	}
}

// Join makes this process a member of a group. It returns when the member is stored, and the group's records are known; the
// member gets its share of the slots soon after that. It tries until ctx is done, and then returns the last error. Records
// that are not of this library or not of this version, and another number of slots, are errors at once
// ([ErrIncompatible]). A member that could not join deletes its record again, for which it takes up to a fifth of a lease.
// What happens to ctx after Join does not matter: a member stays until [Member.Leave].
//
// Join after the caches that QueueConfig.Keys lists are filled, so that slots do not move to a replica that cannot
// handle their keys yet.
func Join(ctx context.Context, store Store, config Config) (*Member, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &Member{
		config: config, store: store, start: config.Clock.Now(),
		logger: config.Logger.With("group", config.Group),
		slots:  make([]slot, config.Slots), states: make([]atomic.Uint32, config.Slots),
		toRenew: make(chan struct{}, 1), toConfirm: make(chan struct{}, 1), toWork: make(chan struct{}, 1),
		toExpire: make(chan struct{}, 1), left: make(chan struct{}),
	}
	m.queues.Store(&[]slotQueue{})
	m.ctx, m.end = context.WithCancel(context.WithoutCancel(ctx))
	m.mu.self = m.newSelf()
	m.mu.view, m.mu.members = view{adopted: never, confirmed: never}, make(map[string]*seen)
	stop := context.AfterFunc(ctx, m.end)
	err = m.begin(ctx)
	if !stop() {
		err = cmp.Or(err, fmt.Errorf("sharding: cannot join: %w", ctx.Err()))
	}
	if err != nil {
		m.end()
		m.abandon()
		if m.mu.self.sequence > 0 { // Otherwise it has written nothing.
			err = errors.Join(err, m.deleteSelf(context.WithoutCancel(ctx), m.ID()))
		}
		return nil, err
	}
	m.logger.Info("Joined", "member", m.ID(), "slots", config.Slots, "lease", config.Lease)
	m.loops.Go(func() { m.everyThird(m.renew, "Cannot renew the lease", m.toRenew) })
	m.loops.Go(func() { m.everyThird(m.confirm, "Cannot read the table", m.toConfirm) })
	m.loops.Go(m.watchLoop)
	m.loops.Go(m.expireLoop)
	m.loops.Go(m.workLoop)
	return m, nil
}

// begin reads the table and stores the member's record.
func (m *Member) begin(ctx context.Context) error {
	steps := []func() error{m.confirm, m.renew, m.list}
	for len(steps) > 0 {
		err := steps[0]()
		switch {
		case err == nil:
			steps = steps[1:]
		case errors.Is(err, ErrIncompatible):
			return err
		default:
			m.logger.Warn("Cannot join yet", "err", err)
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

// Err returns nil if the member is in touch with its group, so that it may hold slots, and otherwise why it is not.
// It recovers by itself.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.left:
		return ErrLeft
	default:
	}
	if m.validLocked() {
		return nil
	}
	return cmp.Or(m.mu.problem, ErrLeaseLost)
}

// Leave makes the member hand over its slots to the others and leave the group. From now on its queues hand out
// nothing. Slots without running handlers move at once; others when their handlers have returned, whose contexts
// end after HandoverTimeout. If no other member is there, nobody holds the slots until one joins.
//
// Leave returns nil when all is handed over and the member's record is deleted. If ctx is done first, it returns an error:
// the contexts of the handlers that still run end, and the others take over what is left after a lease. All queues still
// exist, and hold their keys, but hand out no more. A second call waits for the first.
//
// Call it when the workers have ended. Call it with a context that does not end with the signal to stop.
func (m *Member) Leave(ctx context.Context) error {
	m.mu.Lock()
	if !m.mu.leaving {
		m.mu.leaving = true
		m.logger.Info("Leaving", "member", m.mu.self.id)
	}
	m.applyAndUnlock()
	signal(m.toWork)
	var err error
	select {
	case <-m.left:
	case <-m.ctx.Done(): // by another call
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.end()
	m.loops.Wait()
	n := m.abandon()
	if err != nil && n > 0 {
		return fmt.Errorf("sharding: left without handing over %d slots: %w", n, err)
	}
	return nil
}

// tryLeave deletes the member's record if it has nothing to hand over any more. It reports whether the member has left.
func (m *Member) tryLeave() bool {
	m.mu.Lock()
	t, id := m.mu.view.table, m.mu.self.id
	if !m.mu.leaving || t != nil && !m.mu.view.missing && !t.isRidOf(id) {
		m.mu.Unlock()
		return false
	}
	m.mu.finished, m.mu.self.alive = true, false
	m.applyAndUnlock()
	for {
		err := m.deleteSelf(m.ctx, id)
		if err == nil {
			m.logger.Info("Left", "member", id)
			close(m.left)
			return true
		}
		m.report("Cannot delete the member's record", err)
		if m.sleep(m.ctx, m.retryDelay(), nil) != nil {
			return true
		}
	}
}

// isRidOf reports whether a member that leaves has nothing to hand over, and gets nothing any more.
func (t *table) isRidOf(id string) bool {
	return slices.Contains(t.leaving, id) && !slices.ContainsFunc(t.slots, func(s tableSlot) bool { return s.holder == id || s.next == id })
}

func (m *Member) deleteSelf(ctx context.Context, id string) error {
	return m.call(ctx, func(ctx context.Context) error {
		r, err := m.store.Get(ctx, m.recordName(id))
		if err == nil {
			err = m.store.Delete(ctx, r.Name, r.Version)
		}
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// abandon stops holding slots. It returns how many the member still held.
func (m *Member) abandon() (held int) {
	m.mu.Lock()
	if t := m.mu.view.table; t != nil {
		for _, s := range t.slots {
			if s.holder == m.mu.self.id {
				held++
			}
		}
	}
	m.mu.self.alive = false
	m.applyAndUnlock()
	return held
}

const (
	// batching is how long a plan waits for more members to come or go, and turn is how long each member lets the one
	// before it write the plan.
	batching = 200 * time.Millisecond
	turn     = 150 * time.Millisecond
	maxTurns = 4
	// stagger, times the number of members, keeps those apart that all hand over slots after one plan.
	stagger = 5 * time.Millisecond
	// finishPoll is when to look again whether the queued keys of slots that are to move are finished.
	finishPoll = 50 * time.Millisecond
	// soon is when to look again after a failed call.
	soon = 250 * time.Millisecond
)

// everyThird calls f three times in a lease, at each signal, and soon after an error, which it reports.
func (m *Member) everyThird(f func() error, problem string, signals <-chan struct{}) {
	for {
		delay := m.config.Lease / 3
		if err := f(); err != nil {
			delay = m.retryDelay()
			m.report(problem, err)
		}
		if m.sleep(m.ctx, delay, signals) != nil {
			return
		}
	}
}

// workLoop takes over from dead members, plans, and hands over: everything that writes the table, and the records of others.
func (m *Member) workLoop() {
	for {
		next := m.work()
		if m.tryLeave() {
			return
		}
		if m.sleep(m.ctx, max(0, next-m.now()), m.toWork) != nil {
			return
		}
	}
}

// work does what there is to do, and returns when to look again if nothing changes.
func (m *Member) work() (next time.Duration) {
	again := m.finishQueued()
	m.look()
	m.mu.Lock()
	now := m.now()
	next, hurried := m.hurryLocked(now)
	if again {
		next = now + finishPoll
	}
	if m.mu.view.table != nil && m.mu.view.table.id != m.mu.self.follows && !m.anyBusy() {
		signal(m.toRenew) // to follow it
	}
	incompatible := m.mu.view.incompatible != nil
	m.applyAndUnlock()
	m.do(hurried)
	if incompatible {
		return next
	}
	for _, step := range []func(now time.Duration) (time.Duration, error){m.makeTable, m.buryDead, m.findHolders, m.writeTable} {
		due, err := step(now)
		if err != nil {
			m.report("Cannot move slots", err)
			due = m.now() + soon
		}
		next = min(next, due)
	}
	return next
}

// turnLocked returns how long this member waits before it does what any member could do: the first one does it at once.
func (m *Member) turnLocked(now time.Duration) time.Duration {
	rank := 0
	for id, s := range m.mu.members {
		if id < m.mu.self.id && s.isAlive(now) {
			rank++
		}
	}
	return turn * time.Duration(min(rank, maxTurns))
}

// report logs why something does not work, and keeps it for Err.
func (m *Member) report(message string, err error) {
	if m.ctx.Err() != nil {
		return
	}
	m.logger.Warn(message, "member", m.ID(), "err", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.problem = err
}

func (m *Member) recordName(id string) string { return m.config.Group + "-member-" + id }
func (m *Member) tableName() string           { return m.config.Group + "-table" }

// now is the time since the member's start by its own clock.
func (m *Member) now() time.Duration { return m.config.Clock.Since(m.start) }

// retryDelay is how long to wait after a call has failed, and callTimeout is when one counts as failed.
func (m *Member) retryDelay() time.Duration  { return m.config.Lease / 15 }
func (m *Member) callTimeout() time.Duration { return m.config.Lease / 5 }

// call calls f with a context that ends with ctx, or after callTimeout on the member's clock.
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
	return f(ctx)
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

// sleep waits until d has passed, there is a signal, or ctx or the member ends, for which it returns an error.
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
func signal(loop chan struct{}) {
	select {
	case loop <- struct{}{}:
	default: // It has not received the last one yet.
	}
}
