package workqueuetest

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// A shared queue may count a stray Done as unmatched although its server has handed out the key: the Get is still
// under way. Any other queue must not.
func TestStrayDoneDuringGet(t *testing.T) {
	h := &history{}
	call := func(began, ended int64, c lineCall, got string) {
		h.calls = append(h.calls, porcupine.Operation{Input: c, Output: lineResult{key: got}, Call: began, Return: ended})
	}
	call(1, 20, lineCall{method: "Get"}, "a")
	call(2, 21, lineCall{method: "Get"}, "b")
	call(3, 4, lineCall{method: "Add", key: "a"}, "")
	call(5, 6, lineCall{method: "Add", key: "b"}, "")
	call(7, 8, lineCall{method: "Add", key: "b"}, "")
	call(9, 10, lineCall{method: "Add", key: "a"}, "")
	call(11, 12, lineCall{method: "Done", key: "a", stray: true}, "") // would queue a if it had an effect
	call(13, 14, lineCall{method: "Add", key: "c"}, "")
	call(22, 23, lineCall{method: "Done", key: "b"}, "") // queues b, because it was added while it was held
	call(24, 25, lineCall{method: "Get"}, "c")
	call(26, 27, lineCall{method: "Get"}, "b")

	if porcupine.CheckOperations(lineModel(false), h.calls) {
		t.Error("possible although every call has its effect")
	}
	if porcupine.CheckOperations(lineModel(true), h.calls) {
		t.Error("possible before the stray Done is known to be early")
	}
	h.markEarly()
	if !porcupine.CheckOperations(lineModel(true), h.calls) {
		t.Error("impossible for a shared queue")
	}
	for i := range h.calls {
		if c := h.calls[i].Input.(lineCall); c.early != c.stray {
			t.Errorf("early = %v: %+v", c.early, c)
		}
	}
}
