package handlertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"sync"

	"github.com/keyedqueue/workqueue"
)

// Errors that the calls of a [Client] return, wrapped.
var (
	// ErrNotFound is returned for an object that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned by Create for an object that exists.
	ErrExists = errors.New("exists already")
	// ErrConflict is returned by calls for a version of an object when the truth has another one.
	ErrConflict = errors.New("conflict: the object has changed")
)

// Object is an object of a [World] at one of its versions.
type Object[K comparable, V any] struct {
	Key   K
	Value V
	// Version grows with each change. It is never 0.
	Version int64
	// UID is another one when an object is created again under the same key.
	UID int64
}

// World holds the truth: versioned objects of one type, to which handlers write through a [Client], and which others, such as users
// and other programs, change meanwhile through the methods of World. Each process has a cache of it, as an informer has, which
// lags behind. A scenario with several types of objects has several worlds, whose caches lag independently.
//
// Values are copied by assignment. If V holds pointers, maps or slices that a handler changes in place, set Clone.
//
// All methods may be called by the function of Converges and by the functions of Scenario.At. They do not block.
type World[K comparable, V any] struct {
	// Clone, unless nil, copies a value: each time it is written, and each time it is read.
	Clone func(V) V

	sim  *sim
	name string

	mu      sync.Mutex // guards what follows and the clients'; the sim's may be taken under it
	truth   map[K]Object[K, V]
	changes int // so far
	clients map[*Process]*Client[K, V]
}

// NewWorld returns an empty world for a run of s. The name is for the story. Keys returns the keys of the queue that the caches add
// when they show a change of an object, or its deletion. Nil means the object's own key. It is called with the old and the new object,
// and with each one that a process lists when it starts.
func NewWorld[K comparable, V any, Q comparable](s *Scenario[Q], name string, keys func(Object[K, V]) []Q) *World[K, V] {
	if keys == nil {
		if reflect.TypeFor[K]() != reflect.TypeFor[Q]() {
			panic(fmt.Sprintf("handlertest: NewWorld(%q) needs a function for the keys of the queue, because its own are %v and those of the queue %v",
				name, reflect.TypeFor[K](), reflect.TypeFor[Q]()))
		}
		keys = func(o Object[K, V]) []Q { return []Q{any(o.Key).(Q)} }
	}
	w := &World[K, V]{sim: s.run.sim, name: name, truth: make(map[K]Object[K, V]), clients: make(map[*Process]*Client[K, V])}
	s.run.worlds = append(s.run.worlds, keyedWorld[K, V, Q]{w, keys})
	return w
}

// keyedWorld is a world with the function that returns the keys of the queue.
type keyedWorld[K comparable, V any, Q comparable] struct {
	*World[K, V]
	keys func(Object[K, V]) []Q
}

// attach lists the world for a process that starts.
func (w keyedWorld[K, V, Q]) attach(p *Process, queue memberQueue[Q]) {
	c := &Client[K, V]{world: w.World, process: p}
	c.add = func(what string, added map[any]struct{}, objects ...Object[K, V]) {
		for _, o := range objects {
			for _, key := range w.keys(o) {
				if _, ok := added[key]; !ok {
					added[key] = struct{}{}
					queue.AddCause(key, workqueue.Cause{Reason: w.label(o) + what})
				}
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.cache, c.shown = maps.Clone(w.truth), w.changes
	w.clients[p] = c
	p.tell(context.Background(), "its cache lists %s", w.list(c.cache))
}

// addListed adds the keys of all objects of the cache.
func (w keyedWorld[K, V, Q]) addListed(p *Process, added map[any]struct{}) {
	c := w.Client(p)
	c.add(" was listed", added, c.CachedAll()...)
}

// overwrites is what the story calls an update of a version, and one of whatever there is.
var overwrites = map[bool]string{false: "updates", true: "overwrites"}

func (w *World[K, V]) label(o Object[K, V]) string {
	if o.Version == 0 {
		return fmt.Sprintf("%s/%v", w.name, o.Key)
	}
	return fmt.Sprintf("%s/%v@%d", w.name, o.Key, o.Version)
}

func (w *World[K, V]) list(objects map[K]Object[K, V]) (text string) {
	for _, o := range sorted(objects) {
		text += " " + w.label(o)
	}
	return cmp.Or(text, " no "+w.name)[1:]
}

// sorted returns objects in the order of their keys' texts.
func sorted[K comparable, V any](objects map[K]Object[K, V]) []Object[K, V] {
	texts := make(map[K]string, len(objects))
	for key := range objects {
		texts[key] = fmt.Sprint(key)
	}
	return slices.SortedFunc(maps.Values(objects), func(a, b Object[K, V]) int { return cmp.Compare(texts[a.Key], texts[b.Key]) })
}

// describe returns the truth, for the default measure.
func (w *World[K, V]) describe() (lines []string) {
	for _, o := range sorted(w.truth) {
		lines = append(lines, fmt.Sprintf("%s/%v = %+v", w.name, o.Key, o.Value))
	}
	return lines
}

func (w *World[K, V]) clone(v V) V {
	if w.Clone != nil {
		return w.Clone(v)
	}
	return v
}

// Set creates the object with that key, or changes it, in the name of somebody else.
func (w *World[K, V]) Set(key K, value V) {
	w.sim.lock("the world " + w.name)
	w.sim.mu.Unlock()
	o, _ := w.write(Object[K, V]{Key: key, Value: value}, nil)
	w.sim.tell("somebody: sets %s = %+v", w.label(o), o.Value)
}

// Remove deletes the object with that key, in the name of somebody else. It does nothing if there is none.
func (w *World[K, V]) Remove(key K) {
	w.sim.lock("the world " + w.name)
	w.sim.mu.Unlock()
	if o, err := w.remove(Object[K, V]{Key: key}); err == nil {
		w.sim.tell("somebody: deletes %s", w.label(o))
	}
}

// Get returns the value of an object in the truth, and whether it exists. It is for measures, and for what others do.
func (w *World[K, V]) Get(key K) (V, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.truth[key]
	return w.clone(o.Value), ok
}

// All returns all objects of the truth, in the order of their keys' texts. It is for measures, and for what others do.
func (w *World[K, V]) All() []Object[K, V] {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := sorted(w.truth)
	for i := range all {
		all[i].Value = w.clone(all[i].Value)
	}
	return all
}

// write makes o the truth. If refuse, which is called with the object that there is, returns an error, it changes nothing.
// A write that would change nothing makes no new version.
func (w *World[K, V]) write(o Object[K, V], refuse func(old Object[K, V], exists bool) error) (Object[K, V], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, exists := w.truth[o.Key]
	if refuse != nil {
		if err := refuse(old, exists); err != nil {
			return o, fmt.Errorf("%s/%v: %w", w.name, o.Key, err)
		}
	}
	if exists && reflect.DeepEqual(old.Value, o.Value) {
		return old, nil
	}
	o.Value, o.Version, o.UID = w.clone(o.Value), w.sim.nextVersion(), old.UID
	if !exists {
		o.UID = o.Version
	}
	w.truth[o.Key] = o
	w.changedLocked(o, false)
	return o, nil
}

// remove deletes the object with o's key and, unless o's version is 0, that version.
func (w *World[K, V]) remove(o Object[K, V]) (Object[K, V], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, exists := w.truth[o.Key]
	if err := refuse(old, exists, o.Version); err != nil {
		return o, fmt.Errorf("%s/%v: %w", w.name, o.Key, err)
	}
	delete(w.truth, o.Key)
	w.sim.nextVersion()
	w.changedLocked(old, true)
	return old, nil
}

// refuse returns why a call for a version of an object fails. Version 0 stands for every version.
func refuse[K comparable, V any](old Object[K, V], exists bool, version int64) error {
	switch {
	case !exists:
		return ErrNotFound
	case version != 0 && version != old.Version:
		return ErrConflict
	}
	return nil
}

// changedLocked lets the caches show that o is new, or was deleted.
func (w *World[K, V]) changedLocked(o Object[K, V], deleted bool) {
	w.changes++
	w.sim.change()
	n := w.changes
	for p, c := range w.clients {
		if p.isDead() {
			delete(w.clients, p)
			continue
		}
		stream := w.name
		if p.name != onlyProcess {
			stream += " in " + p.name
		}
		w.sim.mu.Lock()
		by, lost := w.sim.decide(lag, stream), w.sim.decide(relist, stream)
		show := func() { c.show(n, o, deleted) }
		if lost > 0 {
			by, show = lost, c.listAnew
		}
		p.showLocked(stream, by, show)
		w.sim.mu.Unlock()
	}
}

func (s *sim) nextVersion() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	return s.version
}

// Client is what a handler has of a [World]: calls to the truth, and the cache of its process. A handler with an interface of its own
// wraps it. Calls to the truth take virtual time, in which others do what they do, and fail when their context has ended. All methods may
// be called from any goroutine of the process. See [Process] for what becomes of them when it crashes.
type Client[K comparable, V any] struct {
	world   *World[K, V]
	process *Process
	// add adds the keys of objects to the queue of the process, unless they are in added, which has those that were added at this moment: it
	// would depend on the scheduler of Go whether a second add merges with the first.
	add   func(what string, added map[any]struct{}, objects ...Object[K, V])
	cache map[K]Object[K, V] // guarded by the world's mu, like shown
	shown int                // how many changes the cache has seen
}

// Client returns the client of a process. It panics if there is none: take the Process that Scenario.Start has got.
func (w *World[K, V]) Client(p *Process) *Client[K, V] {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.clients[p]
	if c == nil && p.isDead() {
		w.mu.Unlock()
		defer w.mu.Lock()
		runtime.Goexit()
	}
	if c == nil {
		panic(fmt.Sprintf("handlertest: the world %s was not made in the run of that process", w.name))
	}
	return c
}

// show shows the n-th change.
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
	if exists && !reflect.DeepEqual(old.Value, o.Value) {
		c.add(" has changed", make(map[any]struct{}), o, old)
	} else {
		c.add(" has changed", make(map[any]struct{}), o)
	}
}

// listAnew shows the truth, as after a watch that was lost: versions in between are skipped, and an object that was deleted and created
// again has only changed.
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
	c.add(" has changed", make(map[any]struct{}), changed...)
}

// Cached returns the object that the cache shows, and whether it shows one. It takes no time.
func (c *Client[K, V]) Cached(key K) (Object[K, V], bool) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	o, ok := c.cache[key]
	o.Value = c.world.clone(o.Value)
	return o, ok
}

// CachedAll returns all objects that the cache shows, in the order of their keys' texts. It takes no time.
func (c *Client[K, V]) CachedAll() []Object[K, V] {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	all := sorted(c.cache)
	for i := range all {
		all[i].Value = c.world.clone(all[i].Value)
	}
	return all
}

// Get returns an object of the truth, or ErrNotFound.
func (c *Client[K, V]) Get(ctx context.Context, key K) (o Object[K, V], err error) {
	err = c.process.Read(ctx, func() error {
		value, ok := c.world.Get(key)
		if !ok {
			return fmt.Errorf("%s/%v: %w", c.world.name, key, ErrNotFound)
		}
		c.world.mu.Lock()
		defer c.world.mu.Unlock()
		o = c.world.truth[key]
		o.Value = value
		return nil
	})
	return o, err
}

// List returns all objects of the truth, in the order of their keys' texts.
func (c *Client[K, V]) List(ctx context.Context) (all []Object[K, V], err error) {
	err = c.process.Read(ctx, func() error {
		all = c.world.All()
		return nil
	})
	return all, err
}

// Create creates an object, or returns ErrExists.
func (c *Client[K, V]) Create(ctx context.Context, key K, value V) (o Object[K, V], err error) {
	err = c.process.Write(ctx, fmt.Sprintf("creates %s/%v = %+v", c.world.name, key, value), func() error {
		o, err = c.world.write(Object[K, V]{Key: key, Value: value}, func(_ Object[K, V], exists bool) error {
			if exists {
				return ErrExists
			}
			return nil
		})
		return err
	})
	return o, err
}

// Update changes the value of an object, or returns ErrNotFound, or ErrConflict if its version is not o's. With Version 0 it overwrites
// whatever there is. It returns the object with its new version.
func (c *Client[K, V]) Update(ctx context.Context, o Object[K, V]) (Object[K, V], error) {
	err := c.process.Write(ctx, fmt.Sprintf("%s %s = %+v", overwrites[o.Version == 0], c.world.label(o), o.Value), func() (err error) {
		o, err = c.world.write(o, func(old Object[K, V], exists bool) error { return refuse(old, exists, o.Version) })
		return err
	})
	return o, err
}

// Delete deletes the object with that key, whichever version and UID it has, or returns ErrNotFound.
func (c *Client[K, V]) Delete(ctx context.Context, key K) error {
	return c.process.Write(ctx, fmt.Sprintf("deletes %s/%v", c.world.name, key), func() error {
		_, err := c.world.remove(Object[K, V]{Key: key})
		return err
	})
}

// DeleteVersion deletes an object, or returns ErrNotFound, or ErrConflict if its version is not o's.
func (c *Client[K, V]) DeleteVersion(ctx context.Context, o Object[K, V]) error {
	return c.process.Write(ctx, fmt.Sprintf("deletes %s", c.world.label(o)), func() error {
		_, err := c.world.remove(o)
		return err
	})
}
