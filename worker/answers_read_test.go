package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// nilText is an error whose methods panic for a nil pointer.
type nilText struct{ text string }

func (e *nilText) Error() string { return e.text }

func TestReadAnswer(t *testing.T) {
	broken := errors.New("broken")
	five := 5
	retry, giveUp, interrupted := request{next: NextRetry}, request{next: NextGiveUp},
		request{next: NextInterrupted}
	fatal := request{next: NextGiveUp, fatal: true}
	again, retryAfter := request{next: NextRequeue, after: time.Minute},
		request{next: NextRetry, after: time.Minute}
	wrap := func(err error) error { return fmt.Errorf("wrapped: %w", err) }
	for _, c := range []struct {
		name        string
		err         error
		interrupted bool // UntilAdded has ended a context
		want        request
	}{
		{"nil", nil, false, request{next: NextForget}},
		{"nil, and the key was added again", nil, true, request{next: NextForget}},
		{"any error", broken, false, retry},
		{"any error, and the key was added again", broken, true, retry},
		{"a nil pointer", (*nilText)(nil), false, retry},
		{"ErrGoexit", ErrGoexit, false, retry},

		{"RequeueAfter", RequeueAfter(time.Minute), false, again},
		{"RequeueAfter, wrapped", wrap(RequeueAfter(time.Minute)), true, again},
		{"at once", RequeueAfter(0), false, request{next: NextRequeue}},
		{"in the past", RequeueAfter(-1), false, request{next: NextRequeue}},
		{"a failure, and in the past", errors.Join(RetryAfter(broken, -1), RequeueAfter(-1)), false, retry},
		{"with a priority", Requeue{After: time.Minute, Priority: &five}, false,
			request{next: NextRequeue, after: time.Minute, priority: &five}},
		{"with a failure beside it", errors.Join(broken, RequeueAfter(time.Minute)), false, retryAfter},
		{"with a failure beside it, wrapped", wrap(errors.Join(RequeueAfter(time.Minute), wrap(broken))), false,
			retryAfter},
		{"twice", errors.Join(RequeueAfter(time.Minute), RequeueAfter(time.Hour)), false, again},
		{"Every", wrap(Every(time.Minute)), false, request{next: NextRequeue, every: time.Minute}},
		{"Every with a failure beside it", errors.Join(Every(time.Minute), broken), false, retry},
		{"RetryAfter", wrap(RetryAfter(broken, time.Minute)), false, retryAfter},
		{"RetryAfter twice", RetryAfter(RetryAfter(broken, time.Second), time.Minute), false, retryAfter},
		{"RetryAfter twice, the longer one inside", RetryAfter(wrap(RetryAfter(broken, time.Minute)), time.Second),
			false, retryAfter},
		{"RetryAfter beside a longer one", errors.Join(RetryAfter(broken, time.Second),
			wrap(RetryAfter(broken, time.Minute))), false, retryAfter},
		{"RetryAfter of several", RetryAfter(errors.Join(RetryAfter(broken, 1), RetryAfter(broken, time.Minute)), 2),
			false, retryAfter},
		{"RetryAfter beside a longer RequeueAfter", errors.Join(RetryAfter(broken, 1), RequeueAfter(time.Minute)),
			false, retryAfter},
		{"RetryAfter of canceled with a longer RequeueAfter", RetryAfter(errors.Join(context.Canceled,
			RequeueAfter(time.Minute)), time.Second), false, retryAfter},
		{"RetryAfter with RequeueAfter in it", RetryAfter(errors.Join(broken, RequeueAfter(time.Second)),
			time.Minute), false, retryAfter},
		{"RetryAfter with a longer RequeueAfter in it", RetryAfter(errors.Join(broken, RequeueAfter(time.Minute)),
			time.Second), false, retryAfter},
		{"RetryAfter of nil", RetryAfter(nil, time.Minute), false, request{next: NextForget}},
		{"RetryAfter of Terminal", RetryAfter(Terminal(broken), time.Minute), false, giveUp},
		{"RetryAfter of ErrAdded", RetryAfter(ErrAdded, time.Minute), true, retryAfter},

		{"Terminal", Terminal(broken), false, giveUp},
		{"Terminal, wrapped", wrap(Terminal(broken)), false, giveUp},
		{"Terminal of nil", Terminal(nil), false, request{next: NextForget}},
		{"Terminal of a nil pointer", Terminal((*nilText)(nil)), false, giveUp},
		{"Terminal of RequeueAfter", Terminal(RequeueAfter(1)), false, giveUp},
		{"Terminal beside RequeueAfter", errors.Join(RequeueAfter(1), Terminal(broken)), false, giveUp},
		{"Terminal of ErrAdded", Terminal(ErrAdded), true, giveUp},

		{"Fatal", Fatal(broken), false, fatal},
		{"Fatal, wrapped", wrap(Fatal(broken)), false, fatal},
		{"Fatal of nil", Fatal(nil), false, request{next: NextForget}},
		{"Fatal beside Terminal", errors.Join(Terminal(broken), Fatal(broken)), false, fatal},
		{"Terminal of Fatal", Terminal(Fatal(broken)), false, fatal},

		{"ErrAdded", ErrAdded, true, interrupted},
		{"ErrAdded, wrapped", wrap(ErrAdded), true, interrupted},
		{"ErrAdded from elsewhere", ErrAdded, false, interrupted},
		{"ErrAdded beside RequeueAfter", errors.Join(ErrAdded, RequeueAfter(time.Minute)), true, again},
		{"canceled", context.Canceled, false, retry},
		{"canceled, and the key was added again", wrap(context.Canceled), true, interrupted},
		{"too slow, and the key was added again", context.DeadlineExceeded, true, retry},
		{"ErrCanceled, and the key was added again", ErrCanceled, true, retry},

		{"a panic", &PanicError{Value: "what a value"}, false, retry},
		{"a panic with Terminal", &PanicError{Value: Terminal(broken)}, false, retry},
		{"a panic with Fatal", &PanicError{Value: Fatal(broken)}, false, retry},
		{"a panic with ErrAdded", &PanicError{Value: ErrAdded}, true, retry},
		{"a panic with RequeueAfter", &PanicError{Value: RequeueAfter(1)}, false, retry},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := readAnswer(c.err, c.interrupted); got != c.want {
				t.Errorf("readAnswer(%v, %v) is %+v, want %+v", c.err, c.interrupted, got, c.want)
			}
		})
	}
}
