package handlertest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Client is a handler's access to a [World]: calls that read and write the truth, and the cache of its
// process. A handler with an interface of its own wraps it. Calls take virtual time, in which others do what
// they do. A call notices the end of its context only when its time has passed: then it fails. Errors are
// wrapped: compare them by errors.Is. All methods may be called from any goroutine of the process. See
// [Process] for what becomes of them when it crashes.
type Client[K comparable, V any] struct {
	world   *World[K, V]
	process *Process
	changed func([]Object[K, V]) // adds the keys of objects to the queue of the process
	cache   map[K]Object[K, V]   // guarded by the world's mu, like shown
	shown   int                  // how many changes the cache has seen
}

// Client returns the client of a process. It panics without one: take the Process that Scenario.Start
// has got.
func (w *World[K, V]) Client(p *Process) *Client[K, V] {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.clients, func(c *Client[K, V]) bool { return c.process == p })
	if i < 0 {
		panic(fmt.Sprintf("handlertest: the world %s was not made in the run of that process, or after its "+
			"start: make it in the function of Converges, before Start", w.name))
	}
	return w.clients[i]
}

// showLater lets the cache show the n-th change: that o is new, or was deleted.
func (c *Client[K, V]) showLater(n int, o Object[K, V], deleted bool) {
	what := c.world.label(o)
	if deleted {
		what = "the end of " + what
	}
	c.process.Show(c.world.name, what, func() { c.show(n, o, deleted) }, c.listAnew)
}

func (c *Client[K, V]) show(n int, o Object[K, V], deleted bool) {
	w := c.world
	w.mu.Lock()
	if n <= c.shown {
		w.mu.Unlock()
		return // The cache has listed anew.
	}
	old, exists := c.cache[o.Key]
	c.shown = n
	what := "shows"
	if c.cache[o.Key] = o; deleted {
		delete(c.cache, o.Key)
		what = "no longer shows"
	}
	w.mu.Unlock()
	c.process.tell(context.Background(), "its cache %s %s", what, w.label(o))
	objects := []Object[K, V]{o}
	if exists && !reflect.DeepEqual(old.Value, o.Value) {
		objects = append(objects, old)
	}
	c.changed(objects)
}

// listAnew shows the truth, as after a watch that was lost: versions in between are skipped, and an object
// that was deleted and created again has only changed.
func (c *Client[K, V]) listAnew() {
	w := c.world
	w.mu.Lock()
	old, now := c.cache, maps.Clone(w.truth)
	c.cache, c.shown = now, w.changes
	w.mu.Unlock()
	c.process.tell(context.Background(), "its cache lists anew: %s", w.list(now))
	var changed []Object[K, V]
	for _, o := range slices.Concat(sorted(now), sorted(old)) {
		if now[o.Key].Version != old[o.Key].Version {
			changed = append(changed, o)
		}
	}
	c.changed(changed)
}

// Cached returns the object that the cache shows, and whether it shows one. It takes no time.
func (c *Client[K, V]) Cached(key K) (Object[K, V], bool) { return c.world.get(&c.cache, key) }

// CachedAll returns all objects that the cache shows, in the order of their keys' texts. It takes no time.
func (c *Client[K, V]) CachedAll() []Object[K, V] { return c.world.all(&c.cache) }

// Get returns an object of the truth, or ErrNotFound.
func (c *Client[K, V]) Get(ctx context.Context, key K) (o Object[K, V], err error) {
	err = c.process.Read(ctx, func() (err error) {
		exists := false
		if o, exists = c.world.get(&c.world.truth, key); !exists {
			err = fmt.Errorf("%s/%s: %w", c.world.name, textOf(key), ErrNotFound)
		}
		return err
	})
	return o, err
}

// List returns all objects of the truth, in the order of their keys' texts.
func (c *Client[K, V]) List(ctx context.Context) (all []Object[K, V], err error) {
	err = c.process.Read(ctx, func() error {
		all = c.world.all(&c.world.truth)
		return nil
	})
	return all, err
}

// Create creates an object, or returns ErrExists.
func (c *Client[K, V]) Create(ctx context.Context, key K, value V) (Object[K, V], error) {
	return c.write(ctx, fmt.Sprintf("creates %s/%s = %+v", c.world.name, textOf(key), value),
		Object[K, V]{Key: key, Value: value}, mustNotExist, false)
}

// Update changes the value of an object, or returns ErrNotFound, or ErrConflict if its version is not o's.
// With Version 0 it overwrites what there is. It returns the object with its new version.
func (c *Client[K, V]) Update(ctx context.Context, o Object[K, V]) (Object[K, V], error) {
	does := "updates"
	if o.Version == anyVersion {
		does = "overwrites"
	}
	return c.write(ctx, fmt.Sprintf("%s %s = %+v", does, c.world.label(o), o.Value), o, o.Version, false)
}

// Delete deletes the object with that key, whichever version it has, or returns ErrNotFound.
func (c *Client[K, V]) Delete(ctx context.Context, key K) error {
	return c.DeleteVersion(ctx, Object[K, V]{Key: key})
}

// DeleteVersion deletes an object, or returns ErrNotFound, or ErrConflict if its version is not o's.
func (c *Client[K, V]) DeleteVersion(ctx context.Context, o Object[K, V]) error {
	_, err := c.write(ctx, "deletes "+c.world.label(o), o, o.Version, true)
	return err
}

func (c *Client[K, V]) write(ctx context.Context, what string, o Object[K, V], want int64,
	deletes bool) (Object[K, V], error) {
	err := c.process.Write(ctx, what, func() (err error) {
		if want > anyVersion && c.process.Conflict(ctx, what) {
			c.world.touch(o.Key)
		}
		o, err = c.world.change(o, want, deletes)
		if err == nil || err == ErrUnchanged {
			o.Value = c.world.clone(o.Value) // The truth keeps its own.
		}
		return err
	})
	return o, err
}
