package handlertest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keyedqueue/workqueue/handlertest"
)

// nothing adds no keys.
func nothing(object) []string { return nil }

// wrongCalls are mistakes that a comparison of outcomes does not find: they need a check, an invariant, a
// call that fails, or somebody who comes at the wrong moment.
var wrongCalls = []wrongHandler{
	{name: "takes what exists for its own: two owners", undisturbed: true,
		scenario: func(s scenario, right bool) {
			apps, pods := apps(s), handlertest.NewWorld(s, "pods", nothing)
			apps.Set("web", app{Spec: 1})
			apps.Set("db", app{Spec: 1})
			ready := func() (n int) {
				for _, o := range apps.All() {
					n += o.Value.Status
				}
				return n
			}
			s.Measure = func() any { return ready() }
			s.Check(func() error {
				if n := ready(); n != 1 {
					return fmt.Errorf("%d apps have the one pod", n)
				}
				return nil
			})
			s.Start = func(p process) handler {
				apps, pods := apps.Client(p), pods.Client(p)
				return func(ctx context.Context, key string) error {
					o, err := apps.Get(ctx, key)
					if err != nil || o.Value.Status == 1 {
						return err
					}
					_, err = pods.Create(ctx, "pod", app{Owner: key})
					if errors.Is(err, handlertest.ErrExists) && right {
						var pod object
						if pod, err = pods.Get(ctx, "pod"); err == nil && pod.Value.Owner != key {
							return nil // The name is taken.
						}
					}
					if ignoring(err, handlertest.ErrExists) != nil {
						return err
					}
					o.Value.Status = 1
					_, err = apps.Update(ctx, o)
					return err
				}
			}
		}, words: []string{"fails undisturbed: Check: 2 apps have the one pod", "creates pods/pod"}},

	{name: "fails forever after a crash between two writes, with the right outcome",
		scenario: func(s scenario, right bool) {
			apps, pods := apps(s), handlertest.NewWorld(s, "pods", nothing)
			apps.Set("web", app{Spec: 1})
			s.Without(handlertest.LostAnswer)
			s.Measure = func() any { return len(pods.All()) }
			s.Start = func(p process) handler {
				apps, pods := apps.Client(p), pods.Client(p)
				return func(ctx context.Context, key string) error {
					o, err := apps.Get(ctx, key)
					if err != nil || o.Value.Status == 1 {
						return err
					}
					_, err = pods.Create(ctx, key, app{Owner: key})
					if err != nil && (!right || ignoring(err, handlertest.ErrExists) != nil) {
						return err
					}
					o.Value.Status = 1
					_, err = apps.Update(ctx, o)
					return err
				}
			}
		}, words: []string{"web still fails: pods/web: exists already", "crashes after that write", "crash#1=3ms"}},

	{name: "breaks an invariant meanwhile: too many pods at once", scenario: func(s scenario, right bool) {
		apps, pods := apps(s), pods(s)
		apps.Set("web", app{Spec: 2})
		s.Measure = func() any { return len(pods.All()) }
		s.Always("at most two pods", func() error {
			if n := len(pods.All()); n > 2 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		s.Start = func(p process) handler {
			apps, pods := apps.Client(p), pods.Client(p)
			return func(ctx context.Context, key string) error {
				web, _ := apps.Cached(key)
				have := owned(pods, key)
				for n := len(have); n < web.Value.Spec; n++ {
					name := fmt.Sprint(key, "-", n)
					if !right {
						name = fmt.Sprint(key, "-", time.Now().UnixNano())
					}
					if _, err := pods.Create(ctx, name, app{Owner: key}); ignoring(err, handlertest.ErrExists) != nil {
						return err
					}
				}
				for n := web.Value.Spec; n < len(have); n++ { // It repairs what it has done.
					if err := pods.Delete(ctx, have[n].Key); ignoring(err, handlertest.ErrNotFound) != nil {
						return err
					}
				}
				return nil
			}
		}
	}, words: []string{`Always "at most two pods": there are 3`, "creates pods/"}},

	{name: "swallows the error of a call", scenario: func(s scenario, right bool) {
		apps, pods := apps(s), handlertest.NewWorld(s, "pods", nothing)
		apps.Set("web", app{Spec: 1})
		s.Start = func(p process) handler {
			pods := pods.Client(p)
			return func(ctx context.Context, key string) error {
				_, err := pods.Create(ctx, key, app{Owner: key})
				if right {
					return ignoring(err, handlertest.ErrExists)
				}
				return nil
			}
		}
	}, words: []string{"missing: pods/web", "Owner:web}: unavailable", "fail:web#1=3ms"}},

	{name: "takes a read that fails for an object that is gone", scenario: func(s scenario, right bool) {
		apps, pods := apps(s), handlertest.NewWorld(s, "pods", nothing)
		apps.Set("web", app{Spec: 1})
		pods.Set("web", app{Owner: "web"})
		s.Start = func(p process) handler {
			apps, pods := apps.Client(p), pods.Client(p)
			return func(ctx context.Context, key string) error {
				_, err := apps.Get(ctx, key)
				if right && ignoring(err, handlertest.ErrNotFound) != nil || err == nil {
					return err
				}
				return ignoring(pods.Delete(ctx, key), handlertest.ErrNotFound)
			}
		}
	}, words: []string{"missing: pods/web", "reads: unavailable", "fail:web#1=3ms"}},

	{name: "gives up after the second conflict", scenario: func(s scenario, right bool) {
		apps, counts := apps(s), handlertest.NewWorld(s, "counts", nothing) // Nobody comes back when these change.
		apps.Set("web", app{})
		counts.Set("web", app{})
		s.Start = func(p process) handler {
			counts := counts.Client(p)
			return func(ctx context.Context, key string) (err error) {
				for range 2 {
					var o object
					if o, err = counts.Get(ctx, key); err != nil {
						return err
					}
					o.Value.Status = 1
					if _, err = counts.Update(ctx, o); ignoring(err, handlertest.ErrConflict) != nil || err == nil {
						return err
					}
				}
				if right {
					return err
				}
				return nil
			}
		}
	}, words: []string{"missing: counts/web", "HANDLERTEST='conflict:web#1=3ms'"}},

	{name: "takes a lost answer for a call that has failed", scenario: func(s scenario, right bool) {
		apps, pods := apps(s), handlertest.NewWorld(s, "pods", nothing)
		apps.Set("web", app{Spec: 1})
		s.Without(handlertest.Crash, handlertest.FailedCall, handlertest.Conflict)
		s.Measure = func() any { return len(pods.All()) }
		s.Start = func(p process) handler {
			apps, pods := apps.Client(p), pods.Client(p)
			var mu sync.Mutex
			tries := 0
			return func(ctx context.Context, key string) error {
				o, err := apps.Get(ctx, key)
				if err != nil || o.Value.Status == 1 {
					return err
				}
				mu.Lock()
				if tries++; right {
					tries = 1
				}
				name := fmt.Sprint(key, "-", tries)
				mu.Unlock()
				if _, err := pods.Create(ctx, name, app{Owner: key}); ignoring(err, handlertest.ErrExists) != nil {
					return err
				}
				o.Value.Status = 1
				_, err = apps.Update(ctx, o)
				return ignoring(err, handlertest.ErrConflict)
			}
		}
	}, words: []string{"undisturbed: 1", "here:        2", "web: gets no answer", "lost:web#1=3ms"}},

	{name: "tries again after a conflict with the version that it has", scenario: func(s scenario, right bool) {
		apps := apps(s)
		apps.Set("web", app{Spec: 1})
		s.Start = func(p process) handler {
			apps := apps.Client(p)
			return func(ctx context.Context, key string) error {
				o, err := apps.Get(ctx, key)
				for err == nil && o.Value.Status != o.Value.Spec {
					next := o
					next.Value.Status = o.Value.Spec
					if next, err = apps.Update(ctx, next); err == nil {
						return nil
					}
					if err = ignoring(err, handlertest.ErrConflict); err == nil && right {
						o, err = apps.Get(ctx, key)
					}
				}
				return err
			}
		}
	}, words: []string{"it never comes to rest", "writes to apps/web@2, and changes nothing",
		"the last line again and again", "conflict:web#1=3ms"}},

	{name: "cleans up only after what it has finished", scenario: func(s scenario, right bool) {
		apps, pods := apps(s), handlertest.NewWorld(s, "pods", nothing)
		apps.Set("web", app{Spec: 1})
		s.Sometime("deletes web", func() { apps.Remove("web") })
		s.Without(handlertest.Crash)
		s.Start = func(p process) handler {
			apps, pods := apps.Client(p), pods.Client(p)
			var mu sync.Mutex
			finished := false
			return func(ctx context.Context, key string) error {
				mu.Lock()
				mustClean := finished || right
				mu.Unlock()
				web, exists := apps.Cached(key)
				if !exists {
					if !mustClean {
						return nil
					}
					return ignoring(pods.Delete(ctx, key), handlertest.ErrNotFound)
				}
				if _, err := pods.Create(ctx, key, app{Owner: key}); ignoring(err, handlertest.ErrExists) != nil {
					return err
				}
				web.Value.Status = 1
				_, err := apps.Update(ctx, web)
				mu.Lock()
				finished = finished || err == nil
				mu.Unlock()
				return ignoring(err, handlertest.ErrNotFound)
			}
		}
	}, words: []string{"extra:   pods/web", "somebody: deletes web", "somebody: deletes apps/web",
		"sometime:deletes+web#1="}},
}
