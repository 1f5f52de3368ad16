package debug

import (
	"context"

	"github.com/keyedqueue/workqueue/operate"
)

// Show shows a queue that has these methods.
func (h *Handler) Show(name string, q operate.Inspector) { h.register(name, q) }

// Point is what there was at a time, and what had happened since the point before.
type Point struct {
	Adds, Dones, Errors, Queued float64
}

// History returns what the charts of a queue are drawn from.
func (h *Handler) History(id string) (all []Point) {
	samples := h.find(id).history.all()
	for i, b := range samples[1:] {
		a := samples[i]
		all = append(all, Point{addsPerSecond(a, b), donesPerSecond(a, b), errorsPerSecond(a, b), b.queued})
	}
	return all
}

// Minute returns a queue's numbers per second, in the last minute.
func (h *Handler) Minute(id string) (adds, dones, errors float64) {
	m := h.read(context.Background(), h.find(id)).Minute
	return m.Adds, m.Dones, m.Errors
}

// Shown returns how many queues and pools there are.
func (h *Handler) Shown() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.byID)
}
