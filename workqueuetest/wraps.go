package workqueuetest

import (
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
)

// Wraps fails t unless wrapper, which was made of inner, has each interface of package workqueue's contract
// that inner has. Every wrapper is a [workqueue.Extended] over any inner queue, and one with a limiter an
// [workqueue.ExtendedRateLimiting].
func Wraps[T comparable](t testing.TB, wrapper, inner workqueue.TypedInterface[T]) {
	t.Helper()
	has := func(what string, inInner, inWrapper bool) {
		t.Helper()
		if inInner && !inWrapper {
			t.Errorf("%T is no workqueue.%s, and %T, which it wraps, is one", wrapper, what, inner)
		}
	}
	_, limits := wrapper.(workqueue.TypedRateLimitingInterface[T])
	_, a := wrapper.(workqueue.Extended[T])
	has("Extended", true, a)
	_, a = wrapper.(workqueue.ExtendedRateLimiting[T])
	has("ExtendedRateLimiting", limits, a)
	_, a = wrapper.(operate.Operable[T])
	_, b := inner.(operate.Operable[T])
	has("Operable", b, a)
	_, a = wrapper.(leasing.Leaser[T])
	_, b = inner.(leasing.Leaser[T])
	has("Leaser", b, a)
}
