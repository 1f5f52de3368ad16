package drain

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d, end := New(), errors.New("the end")
		results := make(chan error, 3)
		for _, ctx := range []context.Context{ctx, ctx, t.Context()} {
			go func() { results <- d.Wait(ctx) }()
		}
		synctest.Wait()
		if len(results) != 0 {
			t.Fatalf("Wait returned %v before the end", <-results)
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
		d.End(end)
		if err := <-results; err != end {
			t.Errorf("Wait = %v, want %v", err, end)
		}
		for range 100 { // which of the two a select sees is a matter of luck
			if err := d.Wait(ctx); err != end {
				t.Fatalf("Wait = %v of an ended one, want %v", err, end)
			}
		}
		if err := (*Drain)(nil).Wait(ctx); err != nil {
			t.Errorf("Wait = %v of none", err)
		}
	})
}
