package keytable

import "testing"

func TestLatest(t *testing.T) {
	var table Table[string, int]
	var latest Latest[string]
	found := func(key string, h Hash, hashed bool) bool {
		s, e := FindHeld(&table, &latest, key, h, hashed)
		return s != None && e.Key == key
	}
	a, b := "a", "b"
	// A hash that leads to neither, so that only those are found by it that need none.
	var wrong Hash
	for tagOf(wrong) == tagOf(HashOf(a)) || tagOf(wrong) == tagOf(HashOf(b)) {
		wrong++
	}
	slotA, _ := insert(&table, a)
	slotB, _ := insert(&table, b)

	if latest.Slot() != None || !found(a, 0, false) || found(a, wrong, true) {
		t.Error("before anything is taken, a key is not found by its hash alone")
	}
	latest.Took(slotA, 1)
	if _, hashed := latest.Hash(a); hashed || latest.Slot() != slotA || !found(a, wrong, true) {
		t.Error("the only key that is held needs a hash")
	}
	if !found(b, 0, false) || found(b, wrong, true) {
		t.Error("another key is not found by its hash alone")
	}
	latest.Took(slotB, 2)
	if h, hashed := latest.Hash(a); !hashed || h != HashOf(a) || latest.Slot() != slotB {
		t.Error("one of two keys that are held is not hashed")
	}
	latest.Ended(slotA)
	if latest.Slot() != slotB || !found(b, wrong, true) {
		t.Error("the end of another key made the latest unknown")
	}
	latest.Ended(slotB)
	if latest.Slot() != None || found(b, wrong, true) {
		t.Error("the latest is known after its end")
	}
	latest.Took(slotA, 1)
	if _, hashed := latest.Hash(a); hashed {
		t.Error("the only key that is held is hashed")
	}
}
