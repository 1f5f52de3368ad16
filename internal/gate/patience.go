package gate

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Patience is how long a drain waits while keys are queued, none is held and nobody takes one.
const Patience = 10 * time.Second

// WaitPatiently is [Drain.Wait] that calls tired when the queue has idled for Patience, which idle measures
// on the clock c. If tired returns true, it measures again, and otherwise it only waits.
func (d *Drain) WaitPatiently(ctx context.Context, c clock.Clock, idle func() time.Duration, tired func() (again bool)) error {
	for again := true; again; {
		select {
		case <-d.ended:
			return d.err
		default:
		}
		left := Patience - idle()
		if left <= 0 {
			again = tired()
			continue
		}
		timer := c.NewTimer(left)
		select {
		case <-timer.C():
			continue
		case <-d.ended:
		case <-ctx.Done():
		}
		timer.Stop()
		break
	}
	return d.Wait(ctx)
}

// LogLeft logs that n keys are queued in the queue of that name, and that nobody takes them. A nil logger
// means slog's default one.
func LogLeft(logger *logr.Logger, name string, n int) {
	const message = "The queue is shut down, keys are left in it, and for 10 s no worker has had or taken a key"
	if logger != nil {
		logger.Info(message, "queue", name, "keys", n)
		return
	}
	slog.Warn(message, "queue", name, "keys", n)
}
