package gate

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// sleeper starts a goroutine that sleeps once at g, and passes a wake-up on if more is set when it unlocks.
func sleeper(g *Gate, done <-chan struct{}, more *bool) (woken <-chan bool) {
	result := make(chan bool, 1)
	go func() {
		g.Lock()
		woken := g.Sleep(done)
		if *more {
			g.Wake()
		}
		g.UnlockAndSend()
		result <- woken
	}()
	return result
}

func wake(g *Gate, times int) {
	g.Lock()
	defer g.UnlockAndSend()
	for range times {
		g.Wake()
	}
}

// A wake-up is for one sleeper. It passes the wake-up on if there is more to do.
func TestWakeUpsArePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, more := new(Gate), false
		wake(g, 3) // Nothing sleeps, so this does nothing.
		var sleepers []<-chan bool
		for range 5 {
			sleepers = append(sleepers, sleeper(g, nil, &more))
		}
		awake := func() (n int) {
			synctest.Wait()
			for _, s := range sleepers {
				n += len(s)
			}
			return n
		}
		if n := awake(); n != 0 {
			t.Fatalf("%d woke up by themselves", n)
		}
		wake(g, 3)
		if n := awake(); n != 1 {
			t.Fatalf("%d woke up, want 1", n)
		}
		more = true
		wake(g, 1)
		if n := awake(); n != 5 {
			t.Fatalf("%d woke up, want 5", n)
		}
		if g.Watched() || g.pending || len(g.wakeUps) != 0 {
			t.Errorf("watched: %v, pending: %v, %d wake-ups", g.Watched(), g.pending, len(g.wakeUps))
		}
	})
}

// A sleeper that gives up at the moment of a wake-up says so, and the wake-up is there for the next one.
func TestSleeperGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 { // A select between the two chooses at random.
			g, more := new(Gate), true
			done := make(chan struct{})
			first := sleeper(g, done, &more)
			second := sleeper(g, nil, &more)
			synctest.Wait()
			g.Lock()
			g.Wake()
			close(done)
			g.UnlockAndSend()
			if <-first {
				t.Fatal("Sleep = true with done closed")
			}
			if !<-second {
				t.Fatal("Sleep = false without a done")
			}
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, end := new(Gate), errors.New("the end")
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 3)
		for _, ctx := range []context.Context{ctx, ctx, t.Context()} {
			d := g.Drain()
			go func() { results <- d.Wait(ctx) }()
		}
		d := g.Drain()
		if !g.Watched() {
			t.Error("a drain does not count as watching")
		}
		cancel()
		for range 2 {
			if err := <-results; err != context.Canceled {
				t.Errorf("Wait = %v of a context that was canceled", err)
			}
		}
		synctest.Wait()
		if len(results) != 0 {
			t.Fatalf("Wait returned %v before the end", <-results)
		}
		g.EndDrain(end)
		g.EndDrain(nil) // Nothing is left to end.
		if err := <-results; err != end || g.Watched() {
			t.Errorf("Wait = %v, want %v; watched: %v", err, end, g.Watched())
		}
		for range 100 { // A select between the two chooses at random.
			if err := d.Wait(ctx); err != end {
				t.Fatalf("Wait = %v of an ended drain, want %v", err, end)
			}
		}
	})
}

// Every critical section of a queue ends with the method that looks at what it has changed.
func TestOnlyUnlockSends(t *testing.T) {
	unlocks := []string{"unlock", "notifyAndUnlock"}
	calls := 0
	for _, dir := range []string{"../..", "../../priorityqueue", "../../foreign"} {
		files, _ := filepath.Glob(filepath.Join(dir, "*.go"))
		for _, name := range files {
			source, err := os.ReadFile(name)
			if strings.HasSuffix(name, "_test.go") || err != nil {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				ast.Inspect(decl, func(n ast.Node) bool {
					if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "UnlockAndSend" {
						calls++
						if f, ok := decl.(*ast.FuncDecl); !ok || !slices.Contains(unlocks, f.Name.Name) {
							t.Errorf("%s calls UnlockAndSend: call the queue's unlock", name)
						}
					}
					return true
				})
			}
		}
	}
	if calls < 4 {
		t.Errorf("found only %d calls", calls)
	}
}
