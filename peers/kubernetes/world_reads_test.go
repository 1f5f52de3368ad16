package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lists makes lists: pages, selections, metadata alone, custom objects.
func (s *script) lists() {
	ctx, c := s.ctx, s.c
	for _, name := range []string{"l-2", "l-1", "l-3"} {
		m := configMap(name, nil)
		m.Labels = map[string]string{"list": "1"}
		s.say(name, c.Create(ctx, m, by))
	}
	opts := []client.ListOption{client.InNamespace("d"), client.MatchingLabels{"list": "1"}}
	show := func(name string, err error, l corev1.ConfigMapList) {
		text := map[string]string{"kind": l.Kind, "left": fmt.Sprint(l.Continue != "")}
		for i, o := range l.Items {
			text[fmt.Sprint(i)] = o.Kind + " " + o.Name
		}
		s.say(name, err, configMap("list", text))
	}
	var l corev1.ConfigMapList
	show("list", c.List(ctx, &l, opts...), l)
	l = corev1.ConfigMapList{}
	show("first page", c.List(ctx, &l, append(opts, client.Limit(2))...), l)
	token := l.Continue
	l = corev1.ConfigMapList{}
	show("second page", c.List(ctx, &l, append(opts, client.Limit(2), client.Continue(token))...), l)
	l = corev1.ConfigMapList{}
	show("a field", c.List(ctx, &l, append(opts, client.MatchingFields{"metadata.name": "l-3"})...), l)
	l = corev1.ConfigMapList{}
	show("no such field", c.List(ctx, &l, append(opts, client.MatchingFields{"data.x": "1"})...), l)
	metas := &metav1.PartialObjectMetadataList{}
	metas.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	err := c.List(ctx, metas, opts...)
	text := map[string]string{"kind": metas.Kind}
	for i, o := range metas.Items {
		text[fmt.Sprint(i)] = o.Kind + " " + o.Name
	}
	s.say("list of metadata", err, configMap("list", text))
	ws := widgetList()
	err = c.List(ctx, ws, client.InNamespace("d"), client.Limit(1))
	text = map[string]string{"kind": ws.GetKind()}
	for i, o := range ws.Items {
		text[fmt.Sprint(i)] = o.GetKind() + " " + o.GetName()
	}
	s.say("list of custom objects", err, configMap("list", text))
}

// watches says what handlers of a cache's events see, in which order.
func (s *script) watches(shown cache.Cache) {
	ctx, c := s.ctx, s.c
	var mu sync.Mutex
	var events, listed []string
	initial, ended := true, false
	version := func(o any) (n int) {
		_, _ = fmt.Sscan(o.(client.Object).GetResourceVersion(), &n)
		return n
	}
	seen := func(what string, objects ...any) {
		mu.Lock()
		defer mu.Unlock()
		line := what
		for _, o := range objects {
			o := o.(client.Object)
			if !strings.HasPrefix(o.GetName(), "watch-") {
				return
			}
			o.SetManagedFields(nil)
			line += " " + plain(o)
		}
		if initial {
			listed = append(listed, line)
			return
		}
		events = append(events, line)
		ended = ended || strings.Contains(line, "watch-end")
	}
	newer := func(old, now any) string { return fmt.Sprint("newer: ", version(now) > version(old)) }
	latest := make(map[string]any)
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { latest[o.(client.Object).GetName()] = o; seen("add", o) },
		UpdateFunc: func(old, now any) {
			latest[now.(client.Object).GetName()] = now
			seen("update, "+newer(old, now), old, now)
		},
		DeleteFunc: func(o any) { seen("delete, "+newer(latest[o.(client.Object).GetName()], o), o) },
	}
	one, two := configMap("watch-1", map[string]string{"x": "1"}), configMap("watch-2", nil)
	err := errors.Join(c.Create(ctx, one, by), c.Create(ctx, two, by))
	for _, o := range []client.Object{&corev1.ConfigMap{}, widget("", nil)} {
		informer, err2 := shown.GetInformer(ctx, o)
		if err2 == nil {
			_, err2 = informer.AddEventHandler(handler)
		}
		err = errors.Join(err, err2)
	}
	has := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(listed) >= n }
	}
	s.await(has(2))
	mu.Lock()
	initial = false
	mu.Unlock()
	slices.Sort(listed)
	s.say("watch: begins", err)
	s.lines = append(s.lines, listed...)

	one.Data["x"] = "2"
	err = c.Update(ctx, one, by)
	err = errors.Join(err, c.Update(ctx, one, by)) // Nothing changes.
	err = errors.Join(err, c.Delete(ctx, two), c.Create(ctx, configMap("watch-2", nil), by))
	one.Finalizers = []string{"example.com/x"}
	err = errors.Join(err, c.Update(ctx, one, by), c.Delete(ctx, one), c.Delete(ctx, one))
	err = errors.Join(err, c.Get(ctx, client.ObjectKeyFromObject(one), one))
	one.Finalizers = nil
	err = errors.Join(err, c.Update(ctx, one, by), c.Create(ctx, configMap("watch-3", nil), by, client.DryRunAll))
	for _, name := range []string{"watch-b", "watch-a"} {
		err = errors.Join(err, c.Create(ctx, configMap(name, nil), by))
	}
	err = errors.Join(err, c.Delete(ctx, configMap("watch-b", nil)), c.Create(ctx, configMap("watch-end", nil), by))
	s.await(func() bool { mu.Lock(); defer mu.Unlock(); return ended })

	ended = false
	w := widget("watch-w", map[string]any{"size": int64(1)})
	err = errors.Join(err, c.Create(ctx, w, by))
	_ = unstructured.SetNestedField(w.Object, "new", "status", "phase")
	err = errors.Join(err, c.Status().Update(ctx, w, by))
	_ = unstructured.SetNestedField(w.Object, int64(2), "spec", "size")
	err = errors.Join(err, c.Update(ctx, w, by), c.Delete(ctx, w), c.Create(ctx, widget("watch-end", nil), by))
	s.await(func() bool { mu.Lock(); defer mu.Unlock(); return ended })
	s.say("watch: changes", err)
	mu.Lock()
	defer mu.Unlock()
	for i, event := range events {
		s.lines = append(s.lines, fmt.Sprintf("watch %d: %s", i+1, event))
	}
}
