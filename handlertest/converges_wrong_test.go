package handlertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

type (
	scenario = *handlertest.Scenario[string]
	process  = *handlertest.Process
	handler  = worker.Handler[string]
	object   = handlertest.Object[string, app]
	client   = *handlertest.Client[string, app]
	world    = *handlertest.World[string, app]
)

// app is the value of all objects in these tests.
type app struct {
	Spec, Status int
	Note, Owner  string
}

func ownerOf(o object) []string { return []string{o.Value.Owner} }

func apps(s scenario) world { return handlertest.NewWorld[string, app](s, "apps", nil) }
func pods(s scenario) world { return handlertest.NewWorld(s, "pods", ownerOf) }

// setSpec changes the spec of the app, and nothing else.
func setSpec(apps world, spec int) {
	web, _ := apps.Get("web")
	web.Spec = spec
	apps.Set("web", web)
}

// owned returns the objects of a cache that have that owner.
func owned(c client, owner string) (list []object) {
	for _, o := range c.CachedAll() {
		if o.Value.Owner == owner {
			list = append(list, o)
		}
	}
	return list
}

// ignoring returns err, or nil if it is one of those.
func ignoring(err error, those ...error) error {
	for _, e := range those {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// wrongHandlers are mistakes. Each scenario has a handler with the mistake and, if right is set, one without
// it.
var wrongHandlers = []wrongHandler{
	{name: "creates again because the cache does not show its own create",
		scenario: func(s scenario, right bool) {
			apps, pods := apps(s), pods(s)
			apps.Set("web", app{Spec: 2})
			s.Measure = func() any { return len(pods.All()) }
			s.Start = func(p process) handler {
				apps, pods := apps.Client(p), pods.Client(p)
				return func(ctx context.Context, key string) error {
					web, _ := apps.Cached(key)
					for n := len(owned(pods, key)); n < web.Value.Spec; n++ {
						name := fmt.Sprint(key, "-", time.Now().UnixNano()) // a new one each time
						if right {
							name = fmt.Sprint(key, "-", n) // The same pod has the same name.
						}
						if _, err := pods.Create(ctx, name, app{Owner: key}); ignoring(err, handlertest.ErrExists) != nil {
							return err
						}
					}
					return nil
				}
			}
		}, words: []string{"undisturbed: 2", "here:        3"}},

	{name: "counts events", scenario: func(s scenario, right bool) {
		apps, counts := apps(s), handlertest.NewWorld(s, "counts", func(object) []string { return nil })
		apps.Set("web", app{Spec: 1})
		counts.Set("web", app{})
		s.At(time.Second, func() { apps.Set("web", app{Spec: 2}) })
		s.Start = func(p process) handler {
			apps, counts := apps.Client(p), counts.Client(p)
			return func(ctx context.Context, key string) error {
				count, err := counts.Get(ctx, key)
				if err != nil {
					return err
				}
				count.Value.Status++ // of the changes
				if web, _ := apps.Cached(key); right {
					count.Value.Status = web.Value.Spec
				}
				_, err = counts.Update(ctx, count)
				return err
			}
		}
	}},

	{name: "needs every add", scenario: func(s scenario, right bool) {
		apps, sums := apps(s), handlertest.NewWorld(s, "sums", func(object) []string { return nil })
		apps.Set("web", app{Spec: 1})
		sums.Set("web", app{})
		for i := 2; i <= 4; i++ {
			s.At(time.Duration(i)*20*time.Millisecond, func() { apps.Set("web", app{Spec: i}) })
		}
		s.Start = func(p process) handler {
			apps, sums := apps.Client(p), sums.Client(p)
			return func(ctx context.Context, key string) error {
				web, _ := apps.Cached(key)
				sum, err := sums.Get(ctx, key)
				if err != nil || sum.Value.Spec == web.Value.Spec {
					return err
				}
				sum.Value.Status += web.Value.Spec // each value that it ever had
				if sum.Value.Spec = web.Value.Spec; right {
					sum.Value.Status = web.Value.Spec * (web.Value.Spec + 1) / 2
				}
				_, err = sums.Update(ctx, sum)
				return err
			}
		}
	}},

	{name: "depends on the order of two keys", scenario: func(s scenario, right bool) {
		apps := apps(s)
		apps.Set("a", app{Spec: 7})
		apps.Set("b", app{Owner: "a"})
		s.Options.Workers = 1
		s.Start = func(p process) handler {
			apps := apps.Client(p)
			return func(ctx context.Context, key string) error {
				o, err := apps.Get(ctx, key)
				if err != nil {
					return err
				}
				if o.Value.Status = o.Value.Spec; o.Value.Owner != "" {
					first, err := apps.Get(ctx, o.Value.Owner)
					if err != nil {
						return err
					}
					if first.Value.Status == 0 && right {
						return worker.RequeueAfter(time.Second)
					}
					o.Value.Status = first.Value.Status // "a" comes before "b".
				}
				_, err = apps.Update(ctx, o)
				return err
			}
		}
	}, words: []string{"missing: apps/b = {Spec:0 Status:7"}},

	{name: "keeps in memory what a restart loses", scenario: func(s scenario, right bool) {
		apps, pods := apps(s), pods(s)
		apps.Set("web", app{Spec: 1})
		s.At(time.Second, func() { apps.Set("web", app{Spec: 0}) })
		s.Start = func(p process) handler {
			apps, pods := apps.Client(p), pods.Client(p)
			var mu sync.Mutex
			created := make(map[string]bool)
			return func(ctx context.Context, key string) error {
				web, _ := apps.Cached(key)
				if web.Value.Spec > 0 {
					mu.Lock()
					created[key] = true
					mu.Unlock()
					_, err := pods.Create(ctx, key+"-0", app{Owner: key})
					return ignoring(err, handlertest.ErrExists)
				}
				mu.Lock()
				exists := created[key]
				mu.Unlock()
				if !exists && !right {
					return nil
				}
				return ignoring(pods.Delete(ctx, key+"-0"), handlertest.ErrNotFound)
			}
		}
	}, words: []string{"crashes", "extra:   pods/web-0"}},

	{name: "two writes without order: an orphan after a crash", scenario: func(s scenario, right bool) {
		apps, pods := apps(s), handlertest.NewWorld(s, "pods", func(object) []string { return nil })
		apps.Set("web", app{Spec: 1})
		s.Measure = func() any { return len(pods.All()) }
		s.Start = func(p process) handler {
			apps, pods := apps.Client(p), pods.Client(p)
			return func(ctx context.Context, key string) error {
				web, err := apps.Get(ctx, key)
				if err != nil {
					return err
				}
				write := func() error { // Note the name of the pod.
					if web.Value.Note != "" {
						return nil
					}
					web.Value.Note = fmt.Sprint(key, "-", time.Now().UnixNano())
					web, err = apps.Update(ctx, web)
					return err
				}
				if right {
					if err := write(); err != nil {
						return err
					}
					_, err = pods.Create(ctx, web.Value.Note, app{Owner: key})
					return ignoring(err, handlertest.ErrExists)
				}
				if web.Value.Note != "" {
					return nil
				}
				if _, err := pods.Create(ctx, fmt.Sprint(key, "-", time.Now().UnixNano()), app{Owner: key}); err != nil {
					return err
				}
				return write()
			}
		}
	}, words: []string{"crashes after that write"}},

	{name: "deletes by name what was created again meanwhile", scenario: func(s scenario, right bool) {
		apps := apps(s)
		apps.Set("web", app{Status: 1}) // finished
		s.At(10*time.Millisecond, func() { apps.Remove("web"); apps.Set("web", app{Status: 0}) })
		s.Start = func(p process) handler {
			apps := apps.Client(p)
			return func(ctx context.Context, key string) error {
				web, ok := apps.Cached(key)
				if !ok || web.Value.Status == 0 {
					return nil
				}
				if right {
					return ignoring(apps.DeleteVersion(ctx, web), handlertest.ErrNotFound, handlertest.ErrConflict)
				}
				return ignoring(apps.Delete(ctx, key), handlertest.ErrNotFound)
			}
		}
	}, words: []string{"missing: apps/web"}},

	{name: "writes a stale copy over a newer spec", scenario: func(s scenario, right bool) {
		apps := apps(s)
		apps.Set("web", app{Spec: 1})
		s.At(10*time.Millisecond, func() { setSpec(apps, 2) })
		s.Start = func(p process) handler {
			apps := apps.Client(p)
			return func(ctx context.Context, key string) error {
				web, _ := apps.Cached(key)
				if web.Value.Status = web.Value.Spec; !right {
					web.Version = 0
				}
				_, err := apps.Update(ctx, web)
				return err
			}
		}
	}, words: []string{"missing: apps/web = {Spec:2", "extra:   apps/web = {Spec:1"}},

	{name: "never-ending write", undisturbed: true, scenario: func(s scenario, right bool) {
		apps := apps(s)
		apps.Set("web", app{Spec: 1})
		s.Start = func(p process) handler {
			apps := apps.Client(p)
			return func(ctx context.Context, key string) error {
				web, _ := apps.Cached(key)
				if web.Value.Status = web.Value.Spec; !right {
					web.Value.Note = "seen at " + time.Now().Format(time.StampMicro)
				}
				_, err := apps.Update(ctx, web)
				return err
			}
		}
	}, words: []string{"it never comes to rest", "more lines"}},

	{name: "forgets what was deleted while it was down", scenario: func(s scenario, right bool) {
		keys := func(object) []string { return nil }
		if right {
			keys = ownerOf // Pods without an owner also add its key.
		}
		apps, pods := apps(s), handlertest.NewWorld(s, "pods", keys)
		apps.Set("web", app{Spec: 1})
		s.At(time.Second, func() { apps.Remove("web") })
		s.Start = func(p process) handler {
			apps, pods := apps.Client(p), pods.Client(p)
			return func(ctx context.Context, key string) error {
				if _, ok := apps.Cached(key); !ok {
					return ignoring(pods.Delete(ctx, key+"-0"), handlertest.ErrNotFound)
				}
				_, err := pods.Create(ctx, key+"-0", app{Owner: key})
				return ignoring(err, handlertest.ErrExists)
			}
		}
	}, words: []string{"crashes", "somebody: deletes apps/web", "extra:   pods/web-0"}},

	{name: "uses causes as a payload", scenario: func(s scenario, right bool) {
		apps := apps(s)
		apps.Set("web", app{Spec: 1})
		s.At(time.Second, func() { setSpec(apps, 2) })
		s.Start = func(p process) handler {
			apps := apps.Client(p)
			return func(ctx context.Context, key string) error {
				web, _ := apps.Cached(key)
				causes := worker.CallOf(ctx).Causes().String()
				if changed := strings.HasSuffix(causes, "has changed"); changed == (web.Value.Spec == 1) && !right {
					return nil // Nothing new.
				}
				web.Value.Status = web.Value.Spec
				_, err := apps.Update(ctx, web)
				return err
			}
		}
	}},

	{name: "returns nil when it must wait", scenario: func(s scenario, right bool) {
		apps, databases := apps(s), handlertest.NewWorld(s, "databases", func(object) []string { return nil })
		apps.Set("web", app{Spec: 1})
		databases.Set("web", app{})
		s.At(300*time.Millisecond, func() { databases.Set("web", app{Status: 1}) }) // It is ready.
		s.At(time.Second, func() { setSpec(apps, 2) })
		s.Start = func(p process) handler {
			apps, databases := apps.Client(p), databases.Client(p)
			return func(ctx context.Context, key string) error {
				web, _ := apps.Cached(key)
				if db, _ := databases.Cached(key); db.Value.Status == 0 {
					if right {
						return worker.RequeueAfter(time.Second)
					}
					return nil
				}
				web.Value.Status = web.Value.Spec
				_, err := apps.Update(ctx, web)
				return err
			}
		}
	}},

	{name: "assumes that Done comes before the next event", scenario: func(s scenario, right bool) {
		apps := apps(s)
		apps.Set("web", app{Spec: 1})
		s.At(100*time.Millisecond, func() { setSpec(apps, 2) })
		s.Measure = func() any { web, _ := apps.Get("web"); return web.Note }
		s.Start = func(p process) handler {
			client := apps.Client(p)
			return func(ctx context.Context, key string) error {
				web, _ := client.Cached(key)
				if web.Value.Status == web.Value.Spec {
					return nil
				}
				p.Point(ctx, "makes what the spec asks for")
				made := fmt.Sprint("made for ", web.Value.Spec)
				if !right {
					web, _ = client.Cached(key) // No event comes before Done, so this is the spec that it has read.
				}
				web.Value.Note, web.Value.Status = made, web.Value.Spec
				_, err := client.Update(ctx, web)
				return err
			}
		}
	}},
}
