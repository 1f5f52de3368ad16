package kubetest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// logged is a change of an object as a watch shows it.
type logged struct {
	watch.Event
	kind    schema.GroupVersionKind
	version int
}

// text names the change for the story.
func (e logged) text(c *Cluster) string {
	text := c.text(e.kind, e.Object.(client.Object))
	if e.Type == watch.Deleted {
		text = "the end of " + text
	}
	return text
}

// attach lists the cluster for a process that starts.
func (c *Cluster) attach(m *Manager) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.cache = make(map[schema.GroupVersionKind]map[types.NamespacedName]client.Object)
	var list []string
	for _, kind := range c.kinds() {
		m.cache[kind], m.shown[kind] = maps.Clone(c.truth[kind]), c.version
		for _, o := range sorted(c.truth[kind]) {
			list = append(list, c.text(kind, o))
		}
	}
	c.managers = append(c.managers, m)
	m.Process.Tell("its cache lists: %s", strings.Join(list, ", "))
}

// show lets all caches and watches show the last change later. The caller locks.
func (c *Cluster) show(kind schema.GroupVersionKind, old, now client.Object) {
	e := logged{watch.Event{Type: watch.Modified, Object: now}, kind, c.version}
	switch {
	case old == nil:
		e.Type = watch.Added
	case now == nil:
		last := old.DeepCopyObject().(client.Object)
		last.SetResourceVersion(strconv.Itoa(c.version))
		e.Type, e.Object = watch.Deleted, last
	}
	c.managers = slices.DeleteFunc(c.managers, func(m *Manager) bool { return m.Process.Context().Err() != nil })
	for _, m := range c.managers {
		m.Process.ShowOrList(kind.Kind, e.text(c), func() { m.set(e) }, func() { m.listAnew(kind) })
	}
	c.notifyWatches(e)
}

// set makes the cache show a change, unless it has listed anew since.
func (m *Manager) set(e logged) {
	c, o := m.cluster, e.Object.(client.Object)
	c.mu.Lock()
	if e.version <= m.shown[e.kind] {
		c.mu.Unlock()
		return
	}
	m.shown[e.kind] = e.version
	if m.cache[e.kind] == nil {
		m.cache[e.kind] = make(map[types.NamespacedName]client.Object)
	}
	key := client.ObjectKeyFromObject(o)
	ch := change{e.kind, m.cache[e.kind][key], o}
	if m.cache[e.kind][key] = o; e.Type == watch.Deleted {
		delete(m.cache[e.kind], key)
		ch.old, ch.now = o, nil
	}
	c.mu.Unlock()
	m.Process.Tell("its cache shows %s", e.text(c))
	m.changed([]change{ch})
}

// listAnew shows the truth of a kind, as after a watch that was lost.
func (m *Manager) listAnew(kind schema.GroupVersionKind) {
	c := m.cluster
	c.mu.Lock()
	before, now := m.cache[kind], maps.Clone(c.truth[kind])
	m.cache[kind], m.shown[kind] = now, c.version
	c.mu.Unlock()
	var changes []change
	var list []string
	for _, o := range sorted(now) {
		list = append(list, c.text(kind, o))
		old := before[client.ObjectKeyFromObject(o)]
		if old == nil || old.GetResourceVersion() != o.GetResourceVersion() {
			changes = append(changes, change{kind, old, o})
		}
	}
	for _, o := range sorted(before) {
		if now[client.ObjectKeyFromObject(o)] == nil {
			changes = append(changes, change{kind, o, nil})
		}
	}
	m.Process.Tell("its cache lists %s anew: %s", kind.Kind, strings.Join(list, ", "))
	m.changed(changes)
}
