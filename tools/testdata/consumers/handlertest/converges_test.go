package main

import (
	"context"
	"testing"

	"github.com/keyedqueue/workqueue/handlertest"
	"github.com/keyedqueue/workqueue/worker"
)

func TestConverges(t *testing.T) {
	handlertest.Converges(t, func(s *handlertest.Scenario[string]) {
		words := handlertest.NewWorld[string, string](s, "words", nil)
		copies := handlertest.NewWorld(s, "copies", func(o handlertest.Object[string, string]) []string { return nil })
		words.Set("a", "b")
		s.Start = func(p *handlertest.Process) worker.Handler[string] {
			from, to := words.Client(p), copies.Client(p)
			return func(ctx context.Context, key string) error {
				word, _ := from.Cached(key)
				if _, err := to.Get(ctx, key); err == nil {
					return nil
				}
				_, err := to.Create(ctx, key, word.Value)
				return err
			}
		}
	})
}
