package keytable

import "testing"

func TestLastTaken(t *testing.T) {
	var table Table[string, int]
	var last LastTaken[string]
	found := func(key string, h Hash, hashed bool) bool {
		s, e := FindTaken(&table, &last, key, h, hashed)
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

	if last.Slot() != None || !found(a, 0, false) || found(a, wrong, true) {
		t.Error("before anything is taken, a key is not found by its hash alone")
	}
	last.Took(slotA, 1)
	if _, hashed := last.Hash(a); hashed || last.Slot() != slotA || !found(a, wrong, true) {
		t.Error("the only key that is held needs a hash")
	}
	if !found(b, 0, false) || found(b, wrong, true) {
		t.Error("another key is not found by its hash alone")
	}
	last.Took(slotB, 2)
	if h, hashed := last.Hash(a); !hashed || h != HashOf(a) || last.Slot() != slotB {
		t.Error("one of two keys that are held is not hashed")
	}
	last.Ended(slotA)
	if last.Slot() != slotB || !found(b, wrong, true) {
		t.Error("the end of another key made the last unknown")
	}
	last.Ended(slotB)
	if last.Slot() != None || found(b, wrong, true) {
		t.Error("the last is known after its end")
	}
	last.Took(slotA, 1)
	if _, hashed := last.Hash(a); hashed {
		t.Error("the only key that is held is hashed")
	}
}
