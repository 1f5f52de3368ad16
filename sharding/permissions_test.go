package sharding

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// forbidding is an API server that forbids some verbs.
type forbidding struct {
	*simServer
	verbs map[string]bool
	until time.Time // if it is not zero
}

func (f *forbidding) Leases(string) coordination.LeaseInterface { return f }

func (f *forbidding) err(verb string) error {
	if f.verbs[verb] && (f.until.IsZero() || time.Now().Before(f.until)) {
		return apierrors.NewForbidden(leaseResource, "", errors.New("cannot "+verb+" leases"))
	}
	return nil
}

func (f *forbidding) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease,
	error) {
	if err := f.err("get"); err != nil {
		return nil, err
	}
	return f.simServer.Get(ctx, name, o)
}

func (f *forbidding) List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if err := f.err("list"); err != nil {
		return nil, err
	}
	return f.simServer.List(ctx, o)
}

func (f *forbidding) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := f.err("watch"); err != nil {
		return nil, err
	}
	return f.simServer.Watch(ctx, o)
}

func (f *forbidding) Create(ctx context.Context, l *coordinationv1.Lease,
	o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := f.err("create"); err != nil {
		return nil, err
	}
	return f.simServer.Create(ctx, l, o)
}

func (f *forbidding) Update(ctx context.Context, l *coordinationv1.Lease,
	o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := f.err("update"); err != nil {
		return nil, err
	}
	return f.simServer.Update(ctx, l, o)
}

func (f *forbidding) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	if err := f.err("delete"); err != nil {
		return err
	}
	return f.simServer.Delete(ctx, name, o)
}

// A client without a right does not join, leaves no record, and Join says which right it lacks.
func TestJoinNamesMissingRights(t *testing.T) {
	for _, missing := range [][]string{{"get"}, {"list"}, {"watch"}, {"create"}, {"update"}, {"delete"},
		{"watch", "delete"}} {
		synctest.Test(t, func(t *testing.T) {
			f := &forbidding{simServer: newSimServer(), verbs: make(map[string]bool)}
			for _, verb := range missing {
				f.verbs[verb] = true
			}
			began := time.Now()
			_, err := Join(t.Context(), Leases(f, "ns"), Config{Group: "g"})
			if took := time.Since(began); took < 15*time.Second || took > 20*time.Second {
				t.Errorf("without %v Join gave up after %v, want a lease", missing, took)
			}
			if !apierrors.IsForbidden(err) {
				t.Fatalf("without %v: %v", missing, err)
			}
			if text := strings.Join(missing, ", "); text != "create" &&
				!strings.Contains(err.Error(), "lacks the verbs "+text+" for") {
				t.Errorf("without %v: %v", missing, err)
			}
			if text := missing[0]; !strings.Contains(err.Error(), "cannot "+text+" leases") {
				t.Errorf("without %v: %v", missing, err)
			}
			if len(f.leases) > 0 {
				t.Errorf("without %v it left %v", missing, slices.Collect(maps.Keys(f.leases)))
			}
		})
	}
}

// An API server that has just started may forbid everything for a moment. Checking leaves nothing behind.
func TestJoinWaitsForRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forbidding{newSimServer(), map[string]bool{"watch": true, "update": true},
			time.Now().Add(5 * time.Second)}
		m := mustJoin(t, Leases(f, "ns"), Config{})
		time.Sleep(2 * time.Second)
		wantHeld(t, 256)(m)
		names := slices.Sorted(maps.Keys(f.leases))
		if want := []string{"g-member-" + m.ID(), "g-table"}; !slices.Equal(names, want) {
			t.Errorf("there are %v, want %v", names, want)
		}
	})
}
