package sharding

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestLeasesKeepRecords(t *testing.T) {
	want := Record{Name: "g-member-a", Group: "g", Version: "uid/17", UID: "uid", Data: "{}", Holder: "a",
		Lease: 15 * time.Second, Renewed: time.Unix(1, 0)}
	if got := toRecord(toLease(want)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	bare := Record{Name: "g-table", Group: "g", Version: "/", Data: "{}"}
	if got := toRecord(toLease(bare)); got != bare {
		t.Errorf("got %+v, want %+v", got, bare)
	}
	if s := *toLease(Record{Lease: time.Millisecond}).Spec.LeaseDurationSeconds; s != 1 {
		t.Errorf("a lease of a millisecond has %d seconds", s)
	}
}

func TestErrorsOfTheServer(t *testing.T) {
	r := schema.GroupResource{Resource: "leases"}
	for _, c := range []struct{ err, want error }{
		{apierrors.NewNotFound(r, "a"), ErrNotFound},
		{apierrors.NewAlreadyExists(r, "a"), ErrExists},
		{apierrors.NewConflict(r, "a", errors.New("changed")), ErrConflict},
	} {
		if got := storeError(c.err); !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("%v is %v", c.err, got)
		}
	}
	for _, err := range []error{apierrors.NewTooManyRequestsError("later"), apierrors.NewTimeoutError("late", 1),
		errors.New("reset"), nil} {
		if got := storeError(err); got != err {
			t.Errorf("%v is %v", err, got)
		}
	}
}

// TestMemory checks what Store promises.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), Memory()
		want := func(err, want error) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		_, err := store.Get(ctx, "a")
		want(err, ErrNotFound)
		_, err = store.Update(ctx, Record{Name: "a"})
		want(err, ErrNotFound)
		want(store.Delete(ctx, "a", "1"), ErrNotFound)
		first, err := store.Create(ctx, Record{Name: "a", Group: "g", Data: "1"})
		want(err, nil)
		_, err = store.Create(ctx, Record{Name: "a", Group: "g"})
		want(err, ErrExists)
		_, version, err := store.List(ctx, "g")
		want(err, nil)
		var events []Event
		go func() { _ = store.Watch(ctx, "g", version, func(e Event) { events = append(events, e) }) }()
		second, err := store.Update(ctx, Record{Name: "a", Group: "g", Data: "2", Version: first.Version})
		want(err, nil)
		_, err = store.Update(ctx, first)
		want(err, ErrConflict)
		want(store.Delete(ctx, "a", first.Version), ErrConflict)
		_, err = store.Create(ctx, Record{Name: "other", Group: "h"})
		want(err, nil)
		synctest.Wait()
		want(store.Delete(ctx, "a", second.Version), nil)
		third, err := store.Create(ctx, Record{Name: "a", Group: "g"})
		want(err, nil)
		if third.Version == first.Version || third.Version == second.Version || third.UID == first.UID ||
			first.UID == "" || second.UID != first.UID {
			t.Error("a version or UID is used twice")
		}
		synctest.Wait()
		if len(events) != 3 || events[0].Record != second || !events[1].Deleted || events[2].Record != third {
			t.Errorf("events are %v", events)
		}
	})
}

// A watch that lags too far behind ends: changes are kept for a while only.
func TestMemoryForgets(t *testing.T) {
	store := Memory()
	r, err := store.Create(t.Context(), Record{Name: "a", Group: "g"})
	for range 10 * maxHistory {
		if err == nil {
			r, err = store.Update(t.Context(), r)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := cap(store.(*memory).history); n > 4*maxHistory {
		t.Errorf("it keeps %d changes", n)
	}
	for _, version := range []string{"1", "1000000"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := store.Watch(ctx, "g", version, func(Event) {}); err == nil ||
			errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("version %s: %v", version, err)
		}
	}
}
