package sharding

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Config configures [Join]. All members of a group must have the same Group and Slots. The other fields may
// differ between them, for example during a rollout.
type Config struct {
	// Group names the records, and so who shares keys with whom: use the name of the controller. It is
	// required: up to 40 lower-case letters, digits and "-", the first and the last no "-".
	Group string
	// Name begins the member's id. Empty means the host's name, which is the name of the pod.
	Name string
	// Queues has the names of all queues that the program makes with this member, if it makes several. The
	// member takes no slots before it has them all. Empty means one queue of any name.
	Queues []string

	// Slots is the number of slots, at most 4,096. Zero means 256. A few for each replica divide keys evenly. To
	// change it, stop all replicas, and give the group another name or delete its Leases.
	Slots int
	// Lease is how long the others wait for a member that has died. A member that cannot reach the server stops
	// a sixth earlier. That allows each clock to be 9 % too fast or too slow. Three times in a lease, a member
	// reads from the server and writes to it. Zero means 15 seconds. The longest is 24 hours.
	Lease time.Duration
	// HandoverTimeout is how long a slot that is to move waits for its handlers before their contexts end. If
	// a handler does not return within another half of it, the member keeps the slot, and tries again after
	// four HandoverTimeouts. While the server does not answer, each of these times may be longer, up to a
	// lease. Zero means 10 seconds. The longest is 24 hours.
	HandoverTimeout time.Duration

	// Clock is where all times come from. Nil means the real clock. Its Since must use a monotonic clock.
	Clock clock.WithTicker
	// Logger logs what happens to the member and its slots. Nil means [slog.Default].
	Logger *slog.Logger

	newID func(name string) string // makes the id of a member or a table; tests replace it
}

// QueueConfig configures [NewQueue].
type QueueConfig[T comparable] struct {
	// Name is the queue's name in the group. Empty means the name of inner, which may be empty. Members
	// compare how queues of the same name hash their keys, so keep it from one version of the program to the
	// next.
	Name string
	// Keys lists all keys of the source, for example of an informer's cache, also those of other replicas.
	// worker.Options.List can be the same function. It is called when the member has got slots, or keeps
	// some that were to move, and again and again until it returns no error; keys that it returns beside an
	// error are used. The source must show a change before the change is added to the queue, as an
	// informer's cache does. It is required.
	Keys func(ctx context.Context) (iter.Seq[T], error)
	// Hash replaces the hash of keys, for example to keep all keys of a namespace with one replica; see
	// [HashString]. All replicas must have the same one, in all versions of the program that run side by
	// side. The slot is chosen by its upper bits. It is needed for keys that are not strings, numbers,
	// booleans, or structs and arrays of such.
	Hash func(key T) uint64
	// HashVersion names Hash, and is required with it. Change it whenever Hash, or the type of the keys,
	// changes: a replica with another version than the group's gets no slots, and [Member.Err] says so.
	HashVersion string
	// ListPriority is the priority with which the keys of Keys are added, if the queue has priorities.
	ListPriority int
}

var groupPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

func (c Config) withDefaults() (Config, error) {
	wrong := func(field string, value any, want string) (Config, error) {
		return c, fmt.Errorf("sharding: Config.%s is %v, want %s", field, value, want)
	}
	if !groupPattern.MatchString(c.Group) {
		return wrong("Group", strconv.Quote(c.Group), "up to 40 lower-case letters, digits and inner hyphens")
	}
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	c.Queues = slices.Clone(c.Queues)
	c.Slots = cmp.Or(c.Slots, 256)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.HandoverTimeout = cmp.Or(c.HandoverTimeout, 10*time.Second)
	if c.Slots < 1 || c.Slots > maxSlots {
		return wrong("Slots", c.Slots, fmt.Sprint("1 to ", maxSlots))
	}
	if c.Lease < time.Millisecond || c.Lease > maxLease { // Lease: 15 is 15 ns.
		return wrong("Lease", c.Lease, fmt.Sprintf("up to %v with a unit, such as 15*time.Second", maxLease))
	}
	if c.HandoverTimeout < time.Millisecond || c.HandoverTimeout > maxLease {
		return wrong("HandoverTimeout", c.HandoverTimeout,
			fmt.Sprintf("up to %v with a unit, such as 10*time.Second", maxLease))
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.newID == nil {
		c.newID = newID
	}
	return c, nil
}

// newID returns an id that no member or table ever had. A member that comes back from the dead has a new one.
func newID(name string) string { return fmt.Sprintf("%s-%s", name, strings.ToLower(rand.Text()[:10])) }

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// idName is what ids begin with: the name, as far as it can be in the name of a Lease.
func idName(name string) string {
	name = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return cmp.Or(strings.TrimRight(name[:min(len(name), 63)], "-"), "member")
}
