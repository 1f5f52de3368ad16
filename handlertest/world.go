package handlertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
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
}

// World holds the truth: versioned objects of one type, to which handlers write through a [Client], and which
// others, such as users and other programs, change meanwhile through the methods of World. Each process has a
// cache of it, as an informer has, which lags behind. A scenario with several types of objects has several
// worlds, whose caches lag independently.
//
// Values are copied by their method DeepCopy() V or, without one, by assignment.
//
// All methods but Client are for the scenario, and for what it declares. They do not block.
type World[K comparable, V any] struct {
	sim  *sim
	name string

	mu      sync.Mutex // guards the fields below and those of the clients; lock order: mu, then sim.mu
	truth   map[K]Object[K, V]
	changes int             // so far
	clients []*Client[K, V] // in the order in which their processes started
}

// worldOf is a World whose cache adds keys of that type.
type worldOf[K comparable] struct {
	name      string
	attach    func(p *Process, queue *processQueue[K])
	addListed func(p *Process, queue *processQueue[K], added map[K]struct{})
	measure   func(objects)
}

// NewWorld returns an empty world for a run of s. The name is for the story; each world has another one. Keys
// maps an object to the keys of the queue to add. Nil means the object's own key. It is called with the new
// object of each change, with the last one of each deletion, with the old one if the value differs, and with
// every object listed at a start.
func NewWorld[K comparable, V any, Q comparable](s *Scenario[Q], name string,
	keys func(Object[K, V]) []Q) *World[K, V] {
	if keys == nil {
		if reflect.TypeFor[K]() != reflect.TypeFor[Q]() {
			panic(fmt.Sprintf("handlertest: NewWorld(%q) needs a function for the keys of the queue, because its "+
				"own are %v and those of the queue %v",
				name, reflect.TypeFor[K](), reflect.TypeFor[Q]()))
		}
		keys = func(o Object[K, V]) []Q { return []Q{any(o.Key).(Q)} }
	}
	for _, other := range s.run.worlds {
		if other.name == name {
			panic(fmt.Sprintf("handlertest: there are two worlds with the name %q: caches and the story need "+
				"different ones", name))
		}
	}
	w := &World[K, V]{sim: s.run.sim, name: name, truth: make(map[K]Object[K, V])}
	// Which keys were added at this moment is in added: it would depend on the scheduler of Go whether a
	// second add merges with the first.
	add := func(queue *processQueue[Q], what string, added map[Q]struct{}, objects []Object[K, V]) {
		for _, o := range objects {
			for _, key := range keys(o) {
				if _, ok := added[key]; !ok {
					added[key] = struct{}{}
					queue.AddCause(key, workqueue.Cause{Reason: w.label(o) + what})
				}
			}
		}
	}
	s.run.worlds = append(s.run.worlds, worldOf[Q]{
		name: name,
		attach: func(p *Process, queue *processQueue[Q]) {
			w.attach(p, func(changed []Object[K, V]) { add(queue, " has changed", make(map[Q]struct{}), changed) })
		},
		addListed: func(p *Process, queue *processQueue[Q], added map[Q]struct{}) {
			add(queue, " was listed", added, w.Client(p).CachedAll())
		},
		measure: w.measure,
	})
	return w
}

// attach lists the world for a process that starts. Changed adds the keys of objects to its queue.
func (w *World[K, V]) attach(p *Process, changed func([]Object[K, V])) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &Client[K, V]{world: w, process: p, changed: changed, cache: maps.Clone(w.truth), shown: w.changes}
	w.clients = append(w.clients, c)
	p.tell(context.Background(), "its cache lists %s", w.list(c.cache))
}

func (w *World[K, V]) label(o Object[K, V]) string {
	if o.Version == 0 {
		return w.name + "/" + textOf(o.Key)
	}
	return fmt.Sprintf("%s/%s@%d", w.name, textOf(o.Key), o.Version)
}

func (w *World[K, V]) list(objects map[K]Object[K, V]) (text string) {
	for _, o := range sorted(objects) {
		text += " " + w.label(o)
	}
	return cmp.Or(text, " no "+w.name)[1:]
}

// sorted returns objects in the order of their keys' texts.
func sorted[K comparable, V any](objects map[K]Object[K, V]) []Object[K, V] {
	return slices.SortedFunc(maps.Values(objects), func(a, b Object[K, V]) int {
		return cmp.Compare(textOf(a.Key), textOf(b.Key))
	})
}

// measure adds the truth to the default measure.
func (w *World[K, V]) measure(all objects) {
	for _, o := range w.All() {
		if _, exists := all[w.label(o)]; exists {
			panic("handlertest: two keys have the same text, " + w.label(o) + ": give them a method String")
		}
		all[w.label(o)] = &o.Value
	}
}

func (w *World[K, V]) clone(v V) V {
	if copier, ok := any(v).(interface{ DeepCopy() V }); ok {
		return copier.DeepCopy()
	}
	return v
}

// Set creates the object with that key, or changes it, in the name of somebody else.
func (w *World[K, V]) Set(key K, value V) {
	o, _ := w.change(Object[K, V]{Key: key, Value: value}, mayExist, false)
	w.sim.tellOther("sets %s = %+v", w.label(o), o.Value)
}

// Remove deletes the object with that key, in the name of somebody else. It does nothing if it does not
// exist.
func (w *World[K, V]) Remove(key K) {
	if o, err := w.change(Object[K, V]{Key: key}, anyVersion, true); err == nil {
		w.sim.tellOther("deletes %s", w.label(o))
	}
}

// Get returns the value of an object in the truth, and whether it exists. It is for measures, and for what
// others do.
func (w *World[K, V]) Get(key K) (V, bool) {
	o, ok := w.get(&w.truth, key)
	return o.Value, ok
}

// All returns all objects of the truth, in the order of their keys' texts. It is for measures, and for what
// others do: the objects have no Version, which differs from run to run.
func (w *World[K, V]) All() []Object[K, V] {
	all := w.all(&w.truth)
	for i := range all {
		all[i].Version = 0
	}
	return all
}

// get returns an object of the truth or of a cache.
func (w *World[K, V]) get(objects *map[K]Object[K, V], key K) (Object[K, V], bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := (*objects)[key]
	if ok {
		o.Value = w.clone(o.Value)
	}
	o.Key = key
	return o, ok
}

// all returns the objects of the truth or of a cache.
func (w *World[K, V]) all(objects *map[K]Object[K, V]) []Object[K, V] {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := sorted(*objects)
	for i := range all {
		all[i].Value = w.clone(all[i].Value)
	}
	return all
}

// What change requires of the current object, if not a certain version.
const (
	mayExist     int64 = -2
	mustNotExist int64 = -1
	anyVersion   int64 = 0
)

// change makes o the truth, or deletes the object with its key. It fails if the current object does not meet
// want. A write of the value that there is makes no new version: change returns the current object and
// ErrUnchanged.
func (w *World[K, V]) change(o Object[K, V], want int64, deletes bool) (Object[K, V], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, exists := w.truth[o.Key]
	var err error
	switch {
	case want == mustNotExist && exists:
		err = ErrExists
	case want >= anyVersion && !exists:
		err = ErrNotFound
	case want > anyVersion && want != old.Version:
		err = ErrConflict
	}
	if err != nil {
		return o, fmt.Errorf("%s/%s: %w", w.name, textOf(o.Key), err)
	}
	if exists && !deletes && reflect.DeepEqual(old.Value, o.Value) {
		return old, ErrUnchanged
	}
	o.Value = w.clone(o.Value)
	if deletes {
		delete(w.truth, o.Key)
		w.sim.nextVersion()
		o = old
	} else {
		o.Version = w.sim.nextVersion()
		w.truth[o.Key] = o
	}
	w.showChangeLocked(o, deletes)
	return o, nil
}

// touch makes a new version of an object, if there is one, in the name of somebody else.
func (w *World[K, V]) touch(key K) {
	w.mu.Lock()
	o, exists := w.truth[key]
	if exists {
		o.Version = w.sim.nextVersion()
		w.truth[key] = o
		w.showChangeLocked(o, false)
	}
	w.mu.Unlock()
	if exists {
		w.sim.tellOther("writes to %s, and changes nothing", w.label(o))
	}
}

// showChangeLocked shows the last change to all caches.
func (w *World[K, V]) showChangeLocked(o Object[K, V], deleted bool) {
	w.changes++
	for _, c := range w.clients {
		if !c.process.isDead() {
			c.showLater(w.changes, o, deleted)
		}
	}
}
