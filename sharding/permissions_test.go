package sharding

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A client without a right does not join, leaves no record, and Join says which right it lacks.
func TestJoinNamesMissingRights(t *testing.T) {
	for _, missing := range [][]string{{"get"}, {"list"}, {"watch"}, {"create"}, {"update"}, {"delete"},
		{"watch", "delete"}} {
		synctest.Test(t, func(t *testing.T) {
			f := newSimServer()
			f.forbids = func(verb string) bool { return slices.Contains(missing, verb) }
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
		f, began := newSimServer(), time.Now()
		f.forbids = func(verb string) bool {
			return (verb == "watch" || verb == "update") && time.Since(began) < 5*time.Second
		}
		m := mustJoin(t, Leases(f, "ns"), Config{})
		time.Sleep(2 * time.Second)
		wantHeld(t, 256)(m)
		names := slices.Sorted(maps.Keys(f.leases))
		if want := []string{"g-member-" + m.ID(), "g-table"}; !slices.Equal(names, want) {
			t.Errorf("there are %v, want %v", names, want)
		}
	})
}
