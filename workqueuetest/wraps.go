package workqueuetest

import (
	"reflect"
	"testing"

	"github.com/keyedqueue/workqueue"
	"github.com/keyedqueue/workqueue/leasing"
	"github.com/keyedqueue/workqueue/operate"
)

// Wraps fails t unless wrapper, which was made of inner, has each interface of the contract that inner has:
// it is an [operate.Operable], a [leasing.Leaser] and a [leasing.Answerer] if inner is. Every wrapper is a
// [workqueue.Extended] over any inner queue, and one with a limiter an [workqueue.ExtendedRateLimiting].
func Wraps[T comparable](t testing.TB, wrapper, inner workqueue.TypedInterface[T]) {
	t.Helper()
	if _, ok := wrapper.(workqueue.Extended[T]); !ok {
		t.Errorf("%T is no workqueue.Extended", wrapper)
	}
	_, limits := wrapper.(workqueue.TypedRateLimitingInterface[T])
	if _, ok := wrapper.(workqueue.ExtendedRateLimiting[T]); limits && !ok {
		t.Errorf("%T has a limiter and is no workqueue.ExtendedRateLimiting", wrapper)
	}
	wantSame[operate.Operable[T]](t, wrapper, inner)
	wantSame[leasing.Leaser[T]](t, wrapper, inner)
	wantSame[leasing.Answerer[T]](t, wrapper, inner)
}

// wantSame fails t if inner is an I and wrapper is not.
func wantSame[I any](t testing.TB, wrapper, inner any) {
	t.Helper()
	_, has := wrapper.(I)
	if _, must := inner.(I); must && !has {
		t.Errorf("%T is no %v, and %T, which it wraps, is one", wrapper, reflect.TypeFor[I](), inner)
	}
}
