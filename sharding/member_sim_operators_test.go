package sharding

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// operator is a person, or a program, that changes the records of a simulated group by hand, or restores a
// backup of them.
type operator struct {
	w      *world
	rand   *rand.Rand
	tables []string // what the table said at some times
	backup *backup
}

func newOperator(w *world) *operator {
	return &operator{w: w, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 3))}
}

// work does something every now and then until ctx is done.
func (o *operator) work(ctx context.Context) {
	actions := []func(){o.deleteRecord, o.deleteRecord, o.replaceTable, o.copyTable, o.spoilTable, o.removeLabel,
		o.addFinalizer, o.restore, o.restore}
	for wait(ctx, time.Duration(o.rand.Int64N(int64(simLease)))) == nil {
		if r, err := o.w.store.Get(ctx, "g-table"); err == nil {
			o.tables = append(o.tables, r.Data)
		}
		if o.backup == nil || o.rand.IntN(4) == 0 {
			b := o.w.server.backup()
			o.backup = &b
		}
		if o.rand.IntN(3) == 0 {
			actions[o.rand.IntN(len(actions))]()
		}
	}
}

// member returns the name of a member's record.
func (o *operator) member() string {
	names := slices.Sorted(maps.Keys(o.w.server.backup().leases))
	names = slices.DeleteFunc(names, func(name string) bool { return name == "g-table" })
	if len(names) == 0 {
		return "none"
	}
	return names[o.rand.IntN(len(names))]
}

// leavesTrace reports whether who joins still finds the group without these records: it reads the table by
// its name, and finds members by their label. A group of which nothing is left looks like a new one.
func (o *operator) leavesTrace(names ...string) bool {
	for name, l := range o.w.server.backup().leases {
		if !slices.Contains(names, name) && l.DeletionTimestamp == nil && (name == "g-table" || l.Labels != nil) {
			return true
		}
	}
	return false
}

// deleteRecord deletes the table, a member's record, or both.
func (o *operator) deleteRecord() {
	names := []string{"g-table", o.member()}
	if o.rand.IntN(3) > 0 {
		names = names[o.rand.IntN(2):][:1]
	}
	if !o.leavesTrace(names...) {
		return
	}
	for _, name := range names {
		if r, err := o.w.store.Get(context.Background(), name); err == nil {
			o.w.logf("somebody deletes %s", name)
			_ = o.w.store.Delete(context.Background(), r.Name, r.Version)
		}
	}
}

// replaceTable puts an earlier table back.
func (o *operator) replaceTable() {
	if len(o.tables) > 0 && setData(o.w.server, "g-table", o.tables[o.rand.IntN(len(o.tables))]) {
		o.w.logf("somebody puts an earlier table back")
	}
}

// copyTable deletes the table, and makes it anew from a copy.
func (o *operator) copyTable() {
	ctx := context.Background()
	if r, err := o.w.store.Get(ctx, "g-table"); err == nil && len(o.tables) > 0 &&
		o.w.store.Delete(ctx, r.Name, r.Version) == nil {
		o.w.logf("somebody makes the table anew from a copy")
		r.Version, r.Data = "", o.tables[o.rand.IntN(len(o.tables))]
		_, _ = o.w.store.Create(ctx, r)
	}
}

// spoilTable writes something else into the table, and deletes it later, as the error says.
func (o *operator) spoilTable() {
	if setData(o.w.server, "g-table", []string{"garbage", `{"format":2}`}[o.rand.IntN(2)]) {
		o.w.logf("somebody spoils the table")
		time.Sleep(time.Duration(o.rand.Int64N(int64(simLease))))
		if o.leavesTrace("g-table") {
			o.w.deleteSpoiled()
		}
	}
}

// deleteSpoiled deletes a table that members cannot read, or whose hashes are not theirs, and removes what
// keeps one that is deleted.
func (w *world) deleteSpoiled() {
	w.server.edit("g-table", func(l *coordinationv1.Lease) { l.Finalizers = nil })
	if r, err := w.store.Get(context.Background(), "g-table"); err == nil {
		hash, _ := newHasher[string]()
		own := map[string]string{"0": hash.fingerprint(), "1": hash.fingerprint()}
		if t, err := decodeTable(r, simSlots); errors.Is(err, ErrIncompatible) ||
			len(contradictions(t.hashes, own)) > 0 {
			w.logf("somebody deletes the spoiled table: %v", w.store.Delete(context.Background(), r.Name, r.Version))
			w.mu.Lock()
			// It may be that of processes of other Slots, which no record of a living member shows.
			w.mu.deletes = true
			w.mu.Unlock()
		}
	}
}

func (o *operator) removeLabel() {
	name := o.member()
	if o.rand.IntN(3) == 0 {
		name = "g-table"
	}
	if o.leavesTrace(name) {
		o.w.logf("somebody removes the label of %s", name)
		o.w.server.edit(name, func(l *coordinationv1.Lease) { l.Labels = nil })
	}
}

func (o *operator) addFinalizer() {
	name := o.member()
	if o.rand.IntN(3) == 0 {
		name = "g-table"
	}
	o.w.logf("somebody adds a finalizer to %s", name)
	o.w.server.edit(name, func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.com/keep"} })
}

// restore stops the server for some seconds, and starts it with the backup. Versions repeat in half of all
// cases. It does not while a member is out of touch, whose record the backup would bring back: that its
// successor then goes on until it has read the table is documented.
func (o *operator) restore() {
	o.w.mu.Lock()
	processes := slices.Concat(o.w.processes, o.w.mu.leaving)
	o.w.mu.Unlock()
	if slices.ContainsFunc(processes, func(p *process) bool { return p.member.Err() != nil }) {
		return
	}
	away := 2*time.Second + time.Duration(o.rand.Int64N(int64(simLease)))
	o.w.logf("the server is away for %v, and is restored then", away)
	o.w.server.away.Store(true)
	time.Sleep(away)
	o.w.server.restore(*o.backup, o.rand.IntN(2)*1000)
	o.w.server.away.Store(false)
	o.w.logf("the server is back")
}
