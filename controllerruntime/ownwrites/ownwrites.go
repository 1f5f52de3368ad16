// Package ownwrites makes a key wait until a cache shows what its handler has written.
//
// A handler that reads from an informer's cache, and runs again before that shows what it wrote, does not
// see it: a handler that creates an object if the cache shows none creates a second one. With this package
// the key is put on hold after such a call ([worker.Call.Hold]): the worker is free, adds are merged,
// nothing is counted as a failure, and the key does not start before the cache shows the write. There is no
// polling: one event handler for each kind releases the keys.
//
//	configMaps, err := ownwrites.Watch("ConfigMap", informer, 10*time.Second) // before the informer starts
//	…
//	created, err := client.CoreV1().ConfigMaps(ns).Create(ctx, configMap, metav1.CreateOptions{})
//	if err == nil {
//		configMaps.Wrote(ctx, created)
//	}
//
// ctx is the handler's context, or made from it. With controller-runtime, the client of
// controllerruntime.ReadYourWrites does it for all writes. The end of the hold does
// not add the key. Usually the event of the write does.
//
// The hold is one of this process. It does not replace names that follow from the key, nor preconditions: a
// process may end between a write and the call of Wrote, and the next holder of a key may have a cache that
// is older than this one.
package ownwrites

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/keyedqueue/workqueue/worker"
)

// Informer is what Watch needs of an informer. Those of client-go and of controller-runtime have it.
type Informer interface {
	AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
}

// Cache holds keys until a cache shows objects of one kind as they were written. It is made by [Watch] or
// [WatchReader]. All methods may be called from any goroutine.
type Cache struct {
	kind  string
	limit time.Duration
	get   func(ctx context.Context, name types.NamespacedName) (metav1.Object, error)

	// waiting is the number of waits, read without the lock: an event costs next to nothing while there are
	// none.
	waiting atomic.Int64
	mu      struct {
		sync.Mutex
		waits map[types.NamespacedName][]*wait
		order list.List // of *wait, the oldest at the front
		// gone has the last objects that were deleted. It distinguishes a deleted object from one that the cache
		// does not show yet.
		gone     [64]types.UID
		nextGone int
	}
}

// wait is for a write that the cache does not show yet.
type wait struct {
	name    types.NamespacedName
	uid     types.UID
	version string // empty after a delete
	expires time.Time
	release func()
	place   *list.Element
}

// Watch returns a Cache for the objects of an informer of client-go. The kind is a name for display. A key is
// held for no longer than limit: an object that the cache never shows, because it has a selector or its watch
// is broken, costs that. It returns an error if limit is not positive, or the informer refuses the event
// handler.
func Watch(kind string, informer cache.SharedIndexInformer, limit time.Duration) (*Cache, error) {
	if informer == nil {
		return nil, errors.New("ownwrites: the informer is nil")
	}
	return WatchReader(kind, informer, limit,
		func(_ context.Context, name types.NamespacedName) (metav1.Object, error) {
			object, found, err := informer.GetIndexer().GetByKey(strings.TrimPrefix(name.String(), "/"))
			if err != nil || !found {
				return nil, err
			}
			return meta.Accessor(object)
		})
}

// WatchReader is Watch with a function that returns an object as the informer's cache has it, or nil if it
// has none.
func WatchReader(kind string, informer Informer, limit time.Duration,
	get func(ctx context.Context, name types.NamespacedName) (metav1.Object, error)) (*Cache, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("ownwrites: the limit for %s is not positive: %v", kind, limit)
	}
	c := &Cache{kind: kind, limit: limit, get: get}
	c.mu.waits = make(map[types.NamespacedName][]*wait)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { c.event(object, false) },
		UpdateFunc: func(old, object any) {
			// An informer that lists anew may go from an object to the next of that name.
			if uidOf(old) != uidOf(object) {
				c.event(old, true)
			}
			c.event(object, false)
		},
		DeleteFunc: func(object any) { c.event(object, true) },
	})
	return c, err
}

// Wrote is called with what the API server has answered to a create, update or patch. The key of ctx's call
// does not start again before the cache shows that version of the object, a later one, or that the object is
// gone. Without a call, or for an object without a resourceVersion, it does nothing: pass what the server
// answered, not what was sent.
func (c *Cache) Wrote(ctx context.Context, object metav1.Object) {
	if version := object.GetResourceVersion(); version != "" {
		c.await(ctx, object, version)
	}
}

// Deleted is called after a delete of object. The key of ctx's call does not start again before the cache
// shows the object as being deleted, another one of that name, or none. Its name suffices, but only with
// its UID is another object of that name recognized that the cache shows already.
func (c *Cache) Deleted(ctx context.Context, object metav1.Object) { c.await(ctx, object, "") }

func (c *Cache) await(ctx context.Context, object metav1.Object, version string) {
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	reason := fmt.Sprintf("the cache shows %s %s", c.kind, strings.TrimPrefix(name.String(), "/"))
	call := worker.CallOf(ctx)
	if call.Attempt() == 0 { // no call
		return
	}
	w := &wait{name: name, uid: object.GetUID(), version: version, expires: time.Now().Add(c.limit),
		release: call.Hold(reason, c.limit)}
	for _, expired := range c.add(w) {
		c.end(expired)
	}
	// After add: an event that comes now finds w.
	if now, err := c.get(ctx, name); err == nil && c.isShown(w, now) {
		c.end(w)
	}
}

// add adds w, and returns the waits that have expired, for the caller to release.
func (c *Cache) add(w *wait) (expired []*wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expired = c.takeExpiredLocked()
	w.place = c.mu.order.PushBack(w)
	c.mu.waits[w.name] = append(c.mu.waits[w.name], w)
	c.waiting.Add(1)
	return expired
}

func (c *Cache) takeExpiredLocked() (expired []*wait) {
	now := time.Now()
	for c.mu.order.Len() > 0 {
		first := c.mu.order.Front().Value.(*wait)
		if !first.expires.Before(now) {
			break
		}
		expired = append(expired, first)
		c.removeLocked(first)
	}
	return expired
}

func (c *Cache) removeLocked(w *wait) {
	if w.place == nil {
		return
	}
	c.mu.order.Remove(w.place)
	w.place = nil
	c.waiting.Add(-1)
	left := slices.DeleteFunc(c.mu.waits[w.name], func(other *wait) bool { return other == w })
	if c.mu.waits[w.name] = left; len(left) == 0 {
		delete(c.mu.waits, w.name)
	}
}

// end releases the key of w.
func (c *Cache) end(w *wait) {
	c.mu.Lock()
	c.removeLocked(w)
	c.mu.Unlock()
	w.release() // Not under the lock: it calls the queue.
}

// isShown reports whether the cache, which has object now or nil, shows what w waits for.
func (c *Cache) isShown(w *wait, object metav1.Object) bool {
	if object != nil {
		return w.isShownBy(object)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.version == "" || w.uid != "" && slices.Contains(c.mu.gone[:], w.uid)
}

// isShownBy reports whether object, which is not gone, shows it.
func (w *wait) isShownBy(object metav1.Object) bool {
	if w.version != "" {
		return notBefore(object.GetResourceVersion(), w.version)
	}
	return object.GetDeletionTimestamp() != nil || w.uid != "" && object.GetUID() != w.uid
}

// isShownByEndOf reports whether the end of object shows it. The end of an older object of that name does
// not.
func (w *wait) isShownByEndOf(object metav1.Object) bool {
	return w.version == "" || w.uid == object.GetUID() || notBefore(object.GetResourceVersion(), w.version)
}

// event is called when the cache shows something else.
func (c *Cache) event(event any, deleted bool) {
	if c.waiting.Load() == 0 && !deleted {
		return
	}
	if unknown, ok := event.(cache.DeletedFinalStateUnknown); ok {
		event = unknown.Obj
	}
	object, err := meta.Accessor(event)
	if err != nil {
		return
	}
	c.mu.Lock()
	over := c.takeExpiredLocked()
	if deleted {
		c.mu.gone[c.mu.nextGone] = object.GetUID()
		c.mu.nextGone = (c.mu.nextGone + 1) % len(c.mu.gone)
	}
	for _, w := range c.mu.waits[types.NamespacedName{Namespace: object.GetNamespace(),
		Name: object.GetName()}] {
		if deleted && w.isShownByEndOf(object) || !deleted && w.isShownBy(object) {
			over = append(over, w)
		}
	}
	c.mu.Unlock()
	for _, w := range over {
		c.end(w)
	}
}

func uidOf(event any) types.UID {
	if object, err := meta.Accessor(event); err == nil {
		return object.GetUID()
	}
	return ""
}

// notBefore reports whether version a is b or a later one, by the rule of
// k8s.io/apimachinery/pkg/util/resourceversion: versions are decimal numbers of any length without leading
// zeros. Others are only compared for equality.
func notBefore(a, b string) bool {
	switch {
	case a == b || !isNumber(a) || !isNumber(b):
		return a == b
	case len(a) != len(b):
		return len(a) > len(b)
	}
	return a > b
}

func isNumber(s string) bool {
	return s != "" && s[0] != '0' && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}
