package workqueue

import "testing"

// Keys are appended under a lock, so collect makes room for those of a slab before. It did not, and calls waited for
// 280 ms while Snapshot listed a million keys.
func TestCollectMakesRoom(t *testing.T) {
	const slabs = 100
	scan := func(n int, keys []KeySnapshot[int]) ([]KeySnapshot[int], bool) {
		if room := cap(keys) - len(keys); room < fewKeys {
			t.Errorf("slab %d: room for %d keys, want %d", n, room, fewKeys)
		}
		for i := range fewKeys {
			keys = append(keys, KeySnapshot[int]{Key: n*fewKeys + i})
		}
		return keys, n < slabs-1
	}
	trimmed := 0
	trim := func(keys []KeySnapshot[int]) []KeySnapshot[int] { trimmed++; return keys }
	keys := collect(scan, trim)
	if len(keys) != slabs*fewKeys || keys[len(keys)-1].Key != len(keys)-1 || trimmed != slabs {
		t.Errorf("%d keys, trimmed %d times", len(keys), trimmed)
	}
}
