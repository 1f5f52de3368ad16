package ownwrites

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/worker"
)

// shownObjects is an informer and its cache.
type shownObjects struct {
	cache.ResourceEventHandler
	objects map[types.NamespacedName]*corev1.ConfigMap
	refuses error
}

func (s *shownObjects) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration,
	error) {
	s.ResourceEventHandler = h
	return nil, s.refuses
}

func (s *shownObjects) get(_ context.Context, name types.NamespacedName) (metav1.Object, error) {
	if o := s.objects[name]; o != nil {
		return o, nil
	}
	return nil, nil
}

func object(name, uid, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid),
		ResourceVersion: version}}
}

func deleting(o *corev1.ConfigMap) *corev1.ConfigMap {
	o.DeletionTimestamp = new(metav1.Time)
	return o
}

// What releases a key, and what does not. Each case says what the cache has when the handler reports its
// write, and what happens then.
func TestShown(t *testing.T) {
	wrote := func(o *corev1.ConfigMap) func(context.Context, *Cache) {
		return func(ctx context.Context, c *Cache) { c.Wrote(ctx, o) }
	}
	deleted := func(o *corev1.ConfigMap) func(context.Context, *Cache) {
		return func(ctx context.Context, c *Cache) { c.Deleted(ctx, o) }
	}
	none := func(*shownObjects) {}
	updated := func(o *corev1.ConfigMap) func(*shownObjects) {
		return func(s *shownObjects) { s.OnUpdate(o, o) }
	}
	gone := func(o *corev1.ConfigMap) func(*shownObjects) { return func(s *shownObjects) { s.OnDelete(o) } }
	for name, c := range map[string]struct {
		cached        *corev1.ConfigMap
		before        func(*shownObjects)
		write         func(context.Context, *Cache)
		then          func(*shownObjects)
		held, toLimit bool
	}{
		"shown already": {object("a", "1", "10"), none, wrote(object("a", "1", "10")), none, false, false},
		"what was sent": {object("a", "1", "10"), none, wrote(object("a", "1", "")), none, false, false},
		"before":        {object("a", "1", "9"), none, wrote(object("a", "1", "10")), none, true, true},
		"an event shows it": {nil, none, wrote(object("a", "1", "10")), updated(object("a", "1", "10")),
			true, false},
		"added": {nil, none, wrote(object("a", "1", "10")),
			func(s *shownObjects) { s.OnAdd(object("a", "1", "10"), false) }, true, false},
		"an earlier event": {nil, none, wrote(object("a", "1", "100")), updated(object("a", "1", "99")),
			true, true},
		"another name": {nil, none, wrote(object("a", "1", "10")), updated(object("b", "1", "10")),
			true, true},
		"gone": {object("a", "1", "9"), none, wrote(object("a", "1", "10")),
			gone(object("a", "1", "11")), true, false},
		"gone, unknown": {object("a", "1", "9"), none, wrote(object("a", "1", "10")),
			func(s *shownObjects) {
				s.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: object("a", "1", "9")})
			}, true, false},
		"the one before it is gone": {object("a", "0", "9"), none, wrote(object("a", "1", "20")),
			gone(object("a", "0", "15")), true, true},
		"gone already": {nil, gone(object("a", "1", "11")), wrote(object("a", "1", "10")), none,
			false, false},
		"another gone already": {nil, gone(object("a", "0", "9")), wrote(object("a", "1", "10")), none,
			true, true},
		"no number": {nil, none, wrote(object("a", "1", "x7")), updated(object("a", "1", "x8")),
			true, true},
		"delete": {object("a", "1", "9"), none, deleted(object("a", "1", "9")),
			gone(object("a", "1", "10")), true, false},
		"delete by name": {object("a", "1", "9"), none, deleted(object("a", "", "")),
			gone(object("a", "1", "10")), true, false},
		"delete by name, another object in its place": {object("a", "1", "9"), none, deleted(object("a", "", "")),
			func(s *shownObjects) { s.OnUpdate(object("a", "1", "9"), object("a", "2", "11")) }, true, false},
		"delete with finalizer": {object("a", "1", "9"), none, deleted(object("a", "1", "9")),
			updated(deleting(object("a", "1", "10"))), true, false},
		"delete, only updated": {object("a", "1", "9"), none, deleted(object("a", "1", "9")),
			updated(object("a", "1", "10")), true, true},
		"delete, another one": {object("a", "1", "9"), none, deleted(object("a", "1", "9")),
			updated(object("a", "2", "12")), true, false},
		"delete of none": {nil, none, deleted(object("a", "1", "9")), none, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shownObjects{objects: make(map[types.NamespacedName]*corev1.ConfigMap)}
				watched, err := WatchReader("ConfigMap", s, time.Minute, s.get)
				if err != nil {
					t.Fatal(err)
				}
				if c.cached != nil {
					s.objects[types.NamespacedName{Namespace: "ns", Name: "a"}] = c.cached
				}
				c.before(s)
				q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
				p := worker.New(q, func(ctx context.Context, _ string) error {
					c.write(ctx, watched)
					return nil
				}, worker.Options[string]{})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- p.Run(ctx) }()
				q.Add("key")
				synctest.Wait()
				held := p.Snapshot(1).OnHold
				if len(held) == 1 != c.held || c.held && held[0].Reason != "the cache shows ConfigMap ns/a" {
					t.Errorf("held: %+v", held)
				}
				c.then(s)
				synctest.Wait()
				if st := p.Stats(); st.OnHold == 1 != c.toLimit {
					t.Errorf("after the event: %+v", st)
				}
				time.Sleep(time.Hour)
				if st := p.Stats(); st.HoldsToLimit == 1 != c.toLimit {
					t.Errorf("after the limit: %+v", st)
				}
				// What was never shown is forgotten with the next write.
				watched.add(&wait{expires: time.Now()})
				if n := watched.waiting.Load(); n != 1 || len(watched.mu.waits) != 1 || watched.mu.order.Len() != 1 {
					t.Errorf("%d waits are kept", n)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What has expired is released and forgotten with the next event about any object, so that later
// events cost nothing.
func TestExpiredWaits(t *testing.T) {
	s := new(shownObjects)
	watched, err := WatchReader("ConfigMap", s, time.Minute, s.get)
	if err != nil {
		t.Fatal(err)
	}
	released := 0
	watched.add(&wait{version: "9", expires: time.Now().Add(-time.Second), release: func() { released++ }})
	s.OnUpdate(object("other", "1", "10"), object("other", "1", "10"))
	if n := watched.waiting.Load(); n != 0 || released == 0 || watched.mu.order.Len() != 0 ||
		len(watched.mu.waits) != 0 {
		t.Errorf("%d waits are kept, %d were released", n, released)
	}
}

func TestWatchOfSenselessArguments(t *testing.T) {
	s := new(shownObjects)
	if _, err := WatchReader("", s, 0, s.get); err == nil {
		t.Error("a limit of zero")
	}
	if _, err := Watch("", nil, time.Second); err == nil {
		t.Error("no informer")
	}
	s.refuses = errors.New("stopped")
	if _, err := WatchReader("", s, time.Second, s.get); !errors.Is(err, s.refuses) {
		t.Error(err)
	}
}
