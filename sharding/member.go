package sharding

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
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

// Config configures [Join]. All members of a group must have the same Group and Slots. The other fields may
// differ between them, for example during a rollout.
type Config struct {
	// Group names the records, and so who shares keys with whom: use the name of the controller. It is required, and
	// must consist of up to 40 lower-case letters, digits and "-".
	Group string
	// Name is shown to people wherever this member is. Empty means the host's name, which is that of the pod.
	Name string

	// Slots is the number of slots, at most 4,096. Zero means 256. A few slots for each replica are enough to divide keys
	// evenly; more slots make each move smaller. To change it, stop all replicas first and give the group another name.
	Slots int
	// Lease is how long the others wait for a member that has died, and how long one goes on that cannot reach the
	// server, less Margin. Zero means 15 seconds. A member writes to the server and reads from it three times in a lease.
	Lease time.Duration
	// Margin is what makes up for clocks of different speed: keys are with one member at a time as long as the slowest
	// clock advances by more than Lease-Margin while the fastest advances by Lease. Zero means an eighth of Lease.
	Margin time.Duration
	// HandoverTimeout is how long a slot that is to move waits for its handlers before their contexts end. If a handler
	// does not return within another half of it, the member keeps the slot, and tries again after four times that long.
	// Zero means 10 seconds.
	HandoverTimeout time.Duration

	// Clock is where all times come from. Nil means the real clock. It must be monotonic.
	Clock clock.WithTicker
	// Logger logs what happens to the member and its slots. Nil means no log.
	Logger *slog.Logger

	// newID makes the id of a member. Tests replace it.
	newID func(name string) string
}

var groupPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

func (c Config) withDefaults() (Config, error) {
	if !groupPattern.MatchString(c.Group) {
		return c, fmt.Errorf("sharding: Config.Group is %q, want up to 40 lower-case letters, digits and hyphens", c.Group)
	}
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	c.Slots = cmp.Or(c.Slots, 256)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.Margin = cmp.Or(c.Margin, c.Lease/8)
	c.HandoverTimeout = cmp.Or(c.HandoverTimeout, 10*time.Second)
	switch {
	case c.Slots < 1 || c.Slots > maxSlots:
		return c, fmt.Errorf("sharding: Config.Slots is %d, want 1 to %d", c.Slots, maxSlots)
	case c.Margin < 0 || c.Margin > c.Lease/2:
		return c, fmt.Errorf("sharding: Config.Margin is %v, want at most half of the lease of %v", c.Margin, c.Lease)
	case c.HandoverTimeout < 0:
		return c, fmt.Errorf("sharding: Config.HandoverTimeout is %v", c.HandoverTimeout)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.newID == nil {
		c.newID = newID
	}
	return c, nil
}

// newID returns an id that no member ever had: a member that was believed dead and comes back is a new one.
func newID(name string) string {
	return fmt.Sprintf("%s-%s", name, strings.ToLower(rand.Text()[:10]))
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// idName is what ids begin with: the name, as far as it can be in the name of a Lease.
func idName(name string) string {
	name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return cmp.Or(strings.TrimRight(name[:min(len(name), 63)], "-"), "member")
}

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
		// leaving: Leave was called. finished: the member's record is not to be written any more.
		leaving, finished bool
		// finishes: a queue has keys that are to be handled before their slot moves.
		finishes bool
		// since is when it was first seen that there is no table, and that the table is not as planned, or zero.
		since  struct{ missing, plan time.Duration }
		counts counts
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
	m.mu.view = newView()
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
	m.loops.Go(m.renewLoop)
	m.loops.Go(m.confirmLoop)
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
	after := m.applyLocked()
	m.mu.Unlock()
	m.do(after)
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
	after := m.applyLocked()
	m.mu.Unlock()
	m.do(after)
	return held
}

// now is the time since the member's start by its own clock.
func (m *Member) now() time.Duration { return m.config.Clock.Since(m.start) }

// retryDelay is how long to wait after a call has failed, and callTimeout is when one counts as failed.
func (m *Member) retryDelay() time.Duration  { return m.config.Lease / 15 }
func (m *Member) callTimeout() time.Duration { return m.config.Lease / 5 }

// call calls f with a context that ends with the member, or after callTimeout on its clock.
func (m *Member) call(f func(context.Context) error) error { return m.callFrom(m.ctx, f) }

func (m *Member) callFrom(ctx context.Context, f func(context.Context) error) error {
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
