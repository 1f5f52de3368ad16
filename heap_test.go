package workqueue

import (
	"testing"
	"time"

	"github.com/keyedqueue/workqueue/internal/keytable"
	"pgregory.net/rapid"
)

// popKeys is popDue, and asserts that the hashes are those of the keys.
func popKeys[T comparable](t rapid.TB, h *dueHeap[T], now time.Duration) (keys []T) {
	t.Helper()
	due := h.popDue(now, nil)
	for _, k := range due {
		if k.hash != keytable.HashOf(k.key) {
			t.Fatalf("popDue() has %v with a hash of %x, want %x", k.key, k.hash, keytable.HashOf(k.key))
		}
		keys = append(keys, k.key)
	}
	return keys
}

// The keys that are due come in batches, and what they took goes with them.
func TestHeapPopsManyKeys(t *testing.T) {
	var h dueHeap[int]
	now := time.Hour
	const n = 300_000 // which is enough for a table to preload
	for key := range n {
		h.put(keytable.HashOf(key), key, now, time.Duration(n-key), false)
	}
	for want := n - 1; h.len() > 0; {
		keys := popKeys(t, &h, now+n)
		if len(keys) != min(maxBatch, want+1) {
			t.Fatalf("popDue() = %d keys of %d", len(keys), want+1)
		}
		for _, key := range keys {
			if key != want {
				t.Fatalf("popDue() has %d, want %d", key, want)
			}
			want--
		}
	}
	left := 0
	for s := range keytable.Slot(n) {
		if h.keys.HasMemory(s) {
			left++
		}
	}
	if left > n/10 {
		t.Errorf("memory for %d keys is left", left)
	}
}
