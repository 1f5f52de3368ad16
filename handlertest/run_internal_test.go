package handlertest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/testkit"
	"github.com/keyedqueue/workqueue/worker"
)

func TestScheduleText(t *testing.T) {
	s := schedule{
		{crashes, "", 3}:                        time.Second,
		{lag, "pods in process 2", 1}:           300 * time.Millisecond,
		{slow, "default/web=1 #2:x'\"\n%+", 12}: 3 * time.Millisecond,
	}
	text := s.String()
	got, err := parseSchedule(text)
	if err != nil || !maps.Equal(got, s) {
		t.Errorf("%s is read as %v, %v", text, got, err)
	}
	if strings.ContainsAny(text, "'\"\n") {
		t.Errorf("%s cannot stand between quotes of a shell", text)
	}
	for _, bad := range []string{"x", "crash", "crash#1", "crash#0=1s", "crash#1=0s", "crash#1=-1s", "boom#1=1s",
		"lag:%zz#1=1s", "crash#1=1"} {
		if s, err := parseSchedule(bad); err == nil {
			t.Errorf("%q is read as %v, want an error", bad, s)
		}
	}
}

func TestShrink(t *testing.T) {
	all := make(schedule)
	for n := range 40 {
		all[site{slow, "a", n + 1}] = 10 * time.Second
	}
	needs := []site{{slow, "a", 7}, {slow, "a", 31}}
	calls := 0
	got := shrink(all, func() bool { return true }, func(s schedule) bool {
		calls++
		return s[needs[0]] > 0 && s[needs[1]] >= 100*time.Millisecond
	})
	if want := (schedule{needs[0]: sizes[0], needs[1]: 100 * time.Millisecond}); !maps.Equal(got, want) {
		t.Errorf("shrunk to %v, want %v", got, want)
	}
	if calls > 200 {
		t.Errorf("it took %d calls", calls)
	}
	calls = 0
	shrink(all, func() bool { return calls < 5 }, func(schedule) bool { calls++; return true })
	if calls > 5 {
		t.Errorf("%d calls, want at most 5", calls)
	}
}

// An object that changes again while the cache lags, two processes, crashes: everything that
// has an order.
func everything(s *Scenario[string]) {
	apps := NewWorld[string, int](s, "apps", nil)
	for i := range 4 {
		apps.Set(fmt.Sprint("app-", i), i)
		s.At(time.Duration(i)*7*time.Millisecond, func() { apps.Set("app-1", 10+i) })
	}
	s.Replicas = 2
	s.Start = func(p *Process) worker.Handler[string] {
		client := apps.Client(p)
		return func(ctx context.Context, key string) error {
			o, err := client.Get(ctx, key)
			if err != nil {
				return err
			}
			if o.Value < 100 {
				o.Value += 100
				if _, err = client.Update(ctx, o); err != nil {
					return err
				}
			}
			if o.Value%2 == 0 {
				return worker.RequeueAfter(3 * time.Second)
			}
			return nil
		}
	}
}

// slowKey is a key whose text takes time. It is asked for around each step of a key's life, so goroutines
// that race with each other take turns in many ways.
type slowKey string

func (k slowKey) String() string {
	for range rand.IntN(20) {
		runtime.Gosched()
	}
	return string(k)
}

// crowded are two worlds that add the same keys at the same moment, to queues that other workers wait for,
// and processes whose contexts take long to end.
func crowded(s *Scenario[slowKey]) {
	apps := NewWorld[slowKey, int](s, "apps", nil)
	pods := NewWorld(s, "pods", func(pod Object[string, slowKey]) []slowKey { return []slowKey{pod.Value} })
	for i := range 6 {
		app := slowKey(fmt.Sprint("app-", i))
		apps.Set(app, i)
		for n := range 3 {
			pods.Set(fmt.Sprint(app, "-", n), app)
			s.At(time.Duration(n)*time.Second, func() { pods.Remove(fmt.Sprint(app, "-", n)) })
		}
	}
	s.Replicas = 2
	s.Start = func(p *Process) worker.Handler[slowKey] {
		for range 1000 {
			_, cancel := context.WithCancel(p.Context())
			context.AfterFunc(p.Context(), cancel)
		}
		return func(ctx context.Context, key slowKey) error { p.Point(ctx, "works"); return nil }
	}
}

// adding has handlers that add the keys of others at the moment at which their process may crash.
func adding(s *Scenario[string]) {
	apps := NewWorld[string, int](s, "apps", nil)
	for i := range 4 {
		apps.Set(fmt.Sprint("app-", i), i)
	}
	s.Replicas = 2
	s.Start = func(p *Process) worker.Handler[string] {
		client := apps.Client(p)
		return func(ctx context.Context, key string) error {
			o, err := client.Get(ctx, key)
			if err != nil || o.Value >= 100 {
				return err
			}
			o.Value += 100
			if o, err = client.Update(ctx, o); err == nil {
				s.QueueOf(p).Add(fmt.Sprint("app-", (o.Value+1)%4))
			}
			return err
		}
	}
}

// The same seed has the same story, and so has the schedule that it has led to, no matter what the scheduler of Go
// does.
func TestSameSeedSameStory(t *testing.T) {
	disturbed := sameStory(t, everything, 100)
	seeds := uint64(40)
	if testkit.RaceEnabled { // It is slow.
		seeds = 8
	}
	disturbed += sameStory(t, crowded, seeds) + sameStory(t, adding, 100)
	if disturbed < 500 {
		t.Errorf("the runs had %d disturbances", disturbed)
	}
}

func sameStory[K comparable](t *testing.T, scenario func(*Scenario[K]), seeds uint64) (disturbed int) {
	t.Helper()
	for seed := range seeds {
		first := play(t, scenario, newDecider(nil, seed), true, "")
		// What a seed decides follows from the sites alone, so the schedule is as good as the seed.
		for _, other := range []result{play(t, scenario, newDecider(first.used, 0), true, "")} {
			if slices.Equal(first.story, other.story) && maps.Equal(first.used, other.used) {
				continue
			}
			i := 0
			for i < min(len(first.story), len(other.story))-1 && first.story[i] == other.story[i] {
				i++
			}
			t.Fatalf("seed %d has two stories, one with\n%s\nand one with\n%s\nunder %v\nand %v", seed,
				storyOf(first.story[max(0, i-8):i+1]), storyOf(other.story[max(0, i-8):i+1]), first.used, other.used)
		}
		if disturbed += len(first.used); first.failed != nil {
			t.Fatalf("seed %d: %s", seed, first.failed.text)
		}
	}
	return disturbed
}

// In a hundred runs everything happens that may happen.
func TestEverythingHappens(t *testing.T) {
	var kindsSeen []string
	var stories strings.Builder
	for seed := range uint64(100) {
		res := play(t, everything, newDecider(nil, seed), true, "")
		for at := range res.used {
			kindsSeen = append(kindsSeen, at.kind)
		}
		stories.WriteString(cut(res.story, len(res.story), 0))
	}
	for kind := range faultOf {
		if !slices.Contains(kindsSeen, kind) {
			t.Errorf("no %s in a hundred runs", kind)
		}
	}
	for _, words := range []string{"lists anew", "conflict", "crashes after that write",
		"crashes before the key is done", "reaches the queue late"} {
		if !strings.Contains(stories.String(), words) {
			t.Errorf("no story says %q", words)
		}
	}
}

// What somebody does sometime, he does once at each moment, and early in half of the random runs.
func TestSometimeIsEarly(t *testing.T) {
	deleted := site{sometime, "deletes web", 1}
	moments := []time.Duration{time.Millisecond, 2 * time.Millisecond}
	all := oneByOne(result{sites: []site{deleted}, moments: moments})
	if len(all) != 2 || all[0][deleted] != moments[0] || all[1][deleted] != moments[1] {
		t.Errorf("one by one: %v", all)
	}
	early := 0
	for seed := range uint64(200) {
		d := newDecider(nil, seed)
		by := d.decide(sometime, "deletes web")
		if by <= 0 {
			t.Fatalf("seed %d: it is not done", seed)
		}
		if by <= 64*stepTime && !slices.Contains(sizes, by) {
			early++
		}
	}
	if early < 60 {
		t.Errorf("%d of 200 runs are early", early)
	}
}
