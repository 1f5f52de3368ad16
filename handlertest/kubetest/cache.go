package kubetest

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// change is what the cache of a process shows: old is nil for a new object, and now for a deletion.
type change struct {
	kind     schema.GroupVersionKind
	old, now client.Object
}

// text names the change for the story.
func (ch change) text() string {
	if ch.now == nil {
		return "the end of " + textOf(ch.kind, ch.old)
	}
	return textOf(ch.kind, ch.now)
}

// attach lists the cluster for a process that starts.
func (c *Cluster) attach(m *Manager) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.cache = make(objects)
	var list []string
	for _, kind := range c.kinds() {
		m.cache[kind], m.shown[kind] = maps.Clone(c.truth[kind]), c.version
		for _, o := range sorted(c.truth[kind]) {
			list = append(list, textOf(kind, o))
		}
	}
	c.managers = append(c.managers, m)
	m.Process.Tell("its cache lists: %s", strings.Join(list, ", "))
}

// show lets all caches show the last change later. The caller locks.
func (c *Cluster) show(ch change) {
	version := c.version
	if ch.now == nil { // The last state has the version of the deletion.
		ch.old = ch.old.DeepCopyObject().(client.Object)
		ch.old.SetResourceVersion(strconv.Itoa(version))
	}
	c.managers = slices.DeleteFunc(c.managers, func(m *Manager) bool { return m.Process.Context().Err() != nil })
	for _, m := range c.managers {
		show, list := func() { m.set(ch, version) }, func() { m.listAnew(ch.kind) }
		m.Process.Show(ch.kind.Kind, ch.text(), show, list)
	}
}

// set makes the cache show a change, unless it has listed anew since.
func (m *Manager) set(ch change, version int) {
	c := m.cluster
	c.mu.Lock()
	if version <= m.shown[ch.kind] {
		c.mu.Unlock()
		return
	}
	m.shown[ch.kind] = version
	if m.cache[ch.kind] == nil {
		m.cache[ch.kind] = make(map[types.NamespacedName]client.Object)
	}
	if ch.now == nil {
		delete(m.cache[ch.kind], client.ObjectKeyFromObject(ch.old))
	} else {
		m.cache[ch.kind][client.ObjectKeyFromObject(ch.now)] = ch.now
	}
	c.mu.Unlock()
	m.Process.Tell("its cache shows %s", ch.text())
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
		list = append(list, textOf(kind, o))
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
