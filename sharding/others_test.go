package sharding

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestClassify(t *testing.T) {
	known := knownMember{version: "7", usable: true, data: memberData{ID: "a", Sequence: 3}}
	marked, goneOne, unusable, unseen := known, known, known, knownMember{}
	marked.data.Dead = true
	goneOne.isGone = true
	unusable.usable = false
	for _, c := range []struct {
		what          string
		k             knownMember
		version       string
		sequence      int64
		kind          string // of the record: dead, unusable or neither
		byWatch, read verdict
	}{
		{"the known record", known, "7", 3, "", nothingNew, nothingNew},
		{"a renewal", known, "8", 4, "", changed, changed},
		{"an edit by hand", known, "8", 3, "", changed, changed},
		{"an older record", known, "6", 2, "", nothingNew, changed},
		{"the version again, with other data", known, "7", 4, "", changed, changed},
		{"a mark", known, "8", 3, "dead", changed, changed},
		{"the mark of an older record", known, "8", 2, "dead", changed, changed},
		{"a record that became unusable", known, "8", 0, "unusable", changed, changed},
		{"the known unusable record", unusable, "7", 0, "unusable", nothingNew, nothingNew},
		{"a record that became usable", unusable, "8", 2, "", changed, changed},
		{"the known mark", marked, "7", 3, "dead", nothingNew, nothingNew},
		{"a marked record without its mark", marked, "6", 2, "", doubtful, changed},
		{"a marked record that became unusable", marked, "8", 0, "unusable", changed, changed},
		{"the last record of a gone member", goneOne, "7", 3, "", doubtful, changed},
		{"a later record of a gone member", goneOne, "8", 4, "", doubtful, changed},
		{"an unusable record of a gone member", goneOne, "8", 0, "unusable", doubtful, changed},
		{"the first record of a member", unseen, "1", 1, "", changed, changed},
		{"an unusable first record", unseen, "1", 0, "unusable", changed, changed},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := memberData{ID: "a", Sequence: c.sequence, Dead: c.kind == "dead"}
			usable := c.kind != "unusable"
			if v := c.k.classify(c.version, d, usable, false); v != c.byWatch {
				t.Errorf("shown by a watch it is %v, not %v", v, c.byWatch)
			}
			if v := c.k.classify(c.version, d, usable, true); v != c.read {
				t.Errorf("shown by a read it is %v, not %v", v, c.read)
			}
		})
	}
}

// The table names a, whose record somebody has deleted. b, which has never seen a record of a, fails to read
// it once. a's slots must rest for one lease, not for two.
func TestFirstReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := Memory()
		ofA := &switchable{Store: store}
		a := mustJoin(t, ofA, Config{Name: "a", Slots: 2})
		time.Sleep(10 * time.Second)
		wantHeld(t, 2)(a)
		ofA.cutOff(true)
		mustDelete(t, store, "g-member-"+a.ID())
		ofB := &failsOnce{Store: store, name: "g-member-" + a.ID()}
		b := mustJoin(t, ofB, Config{Name: "b", Slots: 2})
		time.Sleep(28 * time.Second)
		if !ofB.failed.Load() {
			t.Fatal("b has not read a's record")
		}
		wantHeld(t, 0, 2)(a, b)
	})
}

// failsOnce is a store in which the first read of that record fails.
type failsOnce struct {
	Store
	name   string
	failed atomic.Bool
}

func (s *failsOnce) Get(ctx context.Context, name string) (Record, error) {
	if name == s.name && !s.failed.Swap(true) {
		return Record{}, errors.New("the server is away")
	}
	return s.Store.Get(ctx, name)
}

// b is overdue. While a reads its record, another member marks it, and a's watch shows that before the read is
// answered. The answer must not make b alive again for a lease: a deletes the record.
func TestReadThatTheWatchOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &overtaken{Store: Memory(), others: make(chan struct{})}
		close(store.others)
		mustJoin(t, store, Config{Name: "a"})
		d := memberData{Format: formatVersion, ID: "b-1", Sequence: 1, Lease: int64(15 * time.Second), Slots: 256}
		b, err := store.Create(t.Context(), Record{Name: "g-member-b-1", Group: "g", Data: encode(d, nil)})
		if err != nil {
			t.Fatal(err)
		}
		store.setWhileRead(func() {
			d.Dead = true
			b.Data = encode(d, nil)
			if _, err := store.Update(t.Context(), b); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
		time.Sleep(25 * time.Second)
		if _, err := store.Store.Get(t.Context(), b.Name); !errors.Is(err, ErrNotFound) {
			t.Errorf("FAILURE: 10 s after it was overdue, reading b's record: %v", err)
		}
	})
}

// While a reads b's record, somebody deletes it, and a's watch shows that before the read is answered. a must
// not count b as alive because of the answer, but read again.
func TestReadThatADeletionOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &overtaken{Store: Memory(), others: make(chan struct{})}
		a := mustJoin(t, store, Config{Name: "a"})
		d := memberData{Format: formatVersion, ID: "b-1", Sequence: 1, Lease: int64(15 * time.Second), Slots: 256}
		b, err := store.Create(t.Context(), Record{Name: "g-member-b-1", Group: "g", Data: encode(d, nil)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		store.setWhileRead(func() {
			mustDelete(t, store.Store, b.Name)
			synctest.Wait() // a's workLoop waits for its own read of the record.
		})
		if _, err := a.readMember("b-1"); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		if a.mu.members["b-1"].isAlive(a.now()) {
			t.Error("FAILURE: the answer counts")
		}
		a.mu.Unlock()
		close(store.others)
		time.Sleep(time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if l := a.mu.members["b-1"].liveness(a.now()); l != gone {
			t.Errorf("FAILURE: the liveness is %d, want %d: gone", l, gone)
		}
	})
}

// b is overdue for a, whose watch is late. While a reads b's last renewal, the watch shows an earlier one, so the
// read does not count. a must not mark the record either, which is not the one that a knows.
func TestRenewalThatIsNotNotedIsNotMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &switchable{Store: Memory()}
		store := &overtaken{Store: late, others: make(chan struct{})}
		close(store.others)
		a := mustJoin(t, store, Config{Name: "a"})
		d := memberData{Format: formatVersion, ID: "b-1", Sequence: 1, Lease: int64(15 * time.Second), Slots: 256}
		b, err := store.Create(t.Context(), Record{Name: "g-member-b-1", Group: "g", Data: encode(d, nil)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(14 * time.Second)
		late.silent.Store(true)
		d.Sequence = 3
		b.Data = encode(d, nil)
		if _, err := late.Update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		store.setWhileRead(func() {
			a.mu.Lock()
			a.mu.members["b-1"].serial = a.lastSerial.Add(1) // as after Sequence 2, which was shown a lease ago
			a.mu.Unlock()
		})
		for store.reads.Load() == 0 {
			time.Sleep(time.Second)
		}
		if data := mustGet(t, late, b.Name).Data; data != b.Data {
			t.Errorf("FAILURE: b has renewed its record, and it is %s", data)
		}
		a.end()
		time.Sleep(time.Minute)
	})
}

// overtaken is a store whose first read of b's record calls whileRead, if there is one, between reading and
// returning it. Later reads wait for others to be closed.
type overtaken struct {
	Store
	whileRead atomic.Pointer[func()]
	reads     atomic.Int32
	others    chan struct{}
}

func (s *overtaken) setWhileRead(f func()) { s.whileRead.Store(&f) }

func (s *overtaken) Get(ctx context.Context, name string) (Record, error) {
	r, err := s.Store.Get(ctx, name)
	switch {
	case name != "g-member-b-1":
	case s.reads.Add(1) == 1:
		(*s.whileRead.Load())()
	default:
		<-s.others
		return s.Store.Get(ctx, name)
	}
	return r, err
}
