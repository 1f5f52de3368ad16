package kubetest

import (
	"cmp"
	"maps"
	"reflect"
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

// name names the change for the story.
func (ch change) name() string {
	if ch.now == nil {
		return "the end of " + textOf(ch.kind, ch.old)
	}
	return textOf(ch.kind, ch.now)
}

// String is name with the fields that the change has changed.
func (ch change) String() string {
	if ch.old == nil || ch.now == nil {
		return ch.name()
	}
	fields := changedFields("", withoutVersions(ch.old), withoutVersions(ch.now))
	return strings.TrimSuffix(ch.name()+" ("+strings.Join(fields, ", ")+")", " ()")
}

// changedFields returns the paths of the fields in which the values at a path differ.
func changedFields(path string, old, now any) (paths []string) {
	before, ok1 := old.(map[string]any)
	after, ok2 := now.(map[string]any)
	if !ok1 || !ok2 {
		if reflect.DeepEqual(old, now) {
			return nil
		}
		return []string{path}
	}
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		paths = append(paths, changedFields(path+"."+key, before[key], after[key])...)
	}
	return paths
}

// listOf names objects for the story.
func listOf(objects []client.Object) string {
	var names []string
	for _, o := range objects {
		names = append(names, textOf(kindIn(o), o))
	}
	return cmp.Or(strings.Join(names, ", "), "nothing")
}

// attach lists the cluster for a process that starts.
func (c *Cluster) attach(m *Manager) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.cache = make(objects)
	for _, kind := range c.kinds() {
		m.cache[kind], m.shown[kind] = maps.Clone(c.truth[kind]), c.version
	}
	c.managers = append(c.managers, m)
	m.Process.Tell("its cache lists %s", listOf(c.all()))
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
		m.Process.Show(ch.kind.Kind, ch.name(), show, list)
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
	m.Process.Tell("its cache shows %s", ch) // with the fields only if it is told
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
	for _, o := range sorted(now) {
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
	m.Process.Tell("its cache lists %s anew: %s", kind.Kind, listOf(sorted(now)))
	m.changed(changes)
}
