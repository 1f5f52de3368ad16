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
var ErrIncompatible = errors.New("incompatible record")

// ErrNoQueue is in what [Member.Err] returns if the member has had no queue for a lease, or not all of
// Config.Queues: it takes no slots, and the others do all the work. A controller that waits to be the leader
// makes none: its NeedLeaderElection must be false.
var ErrNoQueue = errors.New("sharding: the member takes no slots, because it lacks a queue: " +
	"call NewQueue soon after Join, in each replica")

// Member is a process's part in a group. It holds slots, whose keys the queues of [NewQueue] hand out. It is
// made by [Join]; all methods are safe for concurrent use.
type Member struct {
	// One table, five loops, each with a file of its name, which begins with what it decides: refreshLoop keeps
	// the member valid, and expireLoop ends its validity in time; watchLoop sees what others write, and
	// workLoop writes for the group; listLoop, one for each queue, adds the keys of slots that have come.

	// Join sets these, and nobody changes them.
	config Config
	store  Store
	logger memberLog
	// All times of the member are durations since start, by the monotonic clock (but for moment.wall).
	start                       time.Time
	ctx                         context.Context // ends with the member, and with it all loops and calls
	end                         context.CancelFunc
	loops                       sync.WaitGroup
	toRefresh, toWork, toExpire chan struct{} // A signal in one makes that loop look again at once.
	left                        chan struct{} // closed by workLoop when the member holds nothing any more

	// These are written under mu, and read without it. update, which all loops call, writes slots and states
	// (own_slots.go) and until when the member is valid, by the monotonic and by the wall clock. NewQueue
	// writes queues.
	slots                 []ownSlot
	states                []atomic.Uint32 // close together: queues read a slot's state for each key
	validUntil, wallUntil atomic.Int64
	queues                atomic.Pointer[[]memberQueue]

	// mu guards what follows, and effects are carried out when it is unlocked: see update. Methods named
	// Locked, and those of planner, knownMember and view, need mu. No logger, store or queue is called under
	// it, but for isBusy: running.mu may be locked under mu, and nothing the other way round.
	mu struct {
		sync.Mutex
		effects  effects
		wasValid bool // at the last updateSlotsLocked

		// refreshLoop writes its record and, when the member leaves, workLoop.
		self ownRecord
		// refreshLoop and workLoop note what they read and write, and watchLoop what it sees.
		view       view
		members    map[string]*knownMember // by their ids
		handOverAt time.Duration           // when the member may begin to hand over slots: see timeHandoversLocked
		restored   bool                    // ErrRestored has ended the member: one of these loops has found a sign.
		health     health
		counters   Stats // only the numbers that grow

		listVersion string // watchLoop: of the last list. A watch begins there.
		// workLoop. planWaits: the table should be another one, which must not be written yet.
		lacksTable, planWaits condition
		makeTableAt           time.Duration // not before then to try again to make one

		// Leave and workLoop:
		phase    phase // of leaving
		leaveErr error // why Leave ended early, or the record could not be marked or deleted

		// NewQueue: the names of the queues, and by these their hashes. Each change makes a new map.
		queueNames []string
		hashes     map[string]string
	}
}

// Join makes this process a member of a group. It returns when the member is stored, and the group's records
// are known; the member gets its share of the slots soon after that. It tries until ctx is done, and then
// returns the last error. A newer format, a table that is not of this library, and another number of slots
// are errors at once ([ErrIncompatible]), and so is what the server still denies after a lease. A member that
// could not join deletes its record again, for which it takes up to a fifth of a lease. What happens to ctx
// after Join does not matter: a member stays until [Member.Leave].
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
		toRefresh: make(chan struct{}, 1), toWork: make(chan struct{}, 1), toExpire: make(chan struct{}, 1),
		left: make(chan struct{})}
	m.queues.Store(&[]memberQueue{})
	m.ctx, m.end = context.WithCancel(context.WithoutCancel(ctx))
	m.logger.to = config.Logger.With("group", config.Group)
	m.mu.self = m.newSelf()
	m.mu.view = view{confirmed: neverMoment, longestLease: config.Lease}
	m.mu.members, m.mu.health.failedAt = make(map[string]*knownMember), never
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
	m.logger.log(slog.LevelInfo, "Joined", "member", m.ID(), "slots", config.Slots, "lease", config.Lease)
	m.loops.Go(m.refreshLoop)
	m.loops.Go(m.expireLoop)
	m.loops.Go(m.watchLoop)
	m.loops.Go(m.workLoop)
	return m, nil
}

// begin reads the table, stores the record and lists the others.
func (m *Member) begin(ctx context.Context) error {
	var last error
	var failures failureCount
	for _, step := range []func() error{m.refresh, m.list} {
		for err := step(); err != nil; err = step() {
			if last == nil || m.ctx.Err() == nil {
				last = err
			}
			if errors.Is(err, ErrRestored) {
				return ErrRestored
			}
			m.logFailure(&failures, "Cannot join yet", err)
			isFinal := errors.Is(err, ErrIncompatible) ||
				errors.Is(err, ErrRefused) && m.now() >= m.config.Lease // A server that has just started may refuse.
			if isFinal || m.sleep(ctx, m.retryDelay(), nil) != nil {
				return fmt.Errorf("sharding: cannot join: %w", last)
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
	m.mu.restored, m.mu.self.alive, m.mu.effects.shutDown = true, false, true
	m.end()
	return ErrRestored
}
