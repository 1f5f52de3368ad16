package kubetest

import (
	"cmp"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

// show lets all caches show the last change later. The caller locks.
func (c *Cluster) show(kind schema.GroupVersionKind, old, now client.Object) {
	n, what := c.version, ""
	if now == nil {
		what = "the end of " + c.text(kind, old)
	} else {
		what = c.text(kind, now)
	}
	living := c.managers[:0:0]
	for _, m := range c.managers {
		if m.Process.Context().Err() != nil {
			continue
		}
		living = append(living, m)
		key := client.ObjectKeyFromObject(cmp.Or(now, old))
		m.Process.ShowOrList(kind.Kind, what, func() { m.set(n, kind, key, now, what) },
			func() { m.listAnew(kind) })
	}
	c.managers = living
	c.notifyWatches(kind, old, now)
}

// set makes the cache show the n-th change, unless it has listed anew since. Now is nil if the object is
// gone.
func (m *Manager) set(n int, kind schema.GroupVersionKind, key types.NamespacedName, now client.Object,
	what string) {
	c := m.cluster
	c.mu.Lock()
	if n <= m.shown[kind] {
		c.mu.Unlock()
		return
	}
	m.shown[kind] = n
	if m.cache[kind] == nil {
		m.cache[kind] = make(map[types.NamespacedName]client.Object)
	}
	before := m.cache[kind][key]
	if now == nil {
		delete(m.cache[kind], key)
	} else {
		m.cache[kind][key] = now
	}
	c.mu.Unlock()
	m.Process.Tell("its cache shows %s", what)
	if before != nil || now != nil {
		m.changed([]change{{kind, before, now}})
	}
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
