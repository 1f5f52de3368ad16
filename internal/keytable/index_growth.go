package keytable

import "runtime"

// The index grows by doubling. To move all keys at once would make one caller wait for tens of milliseconds
// where there are a million. So the old index stays for a while. Each Delete, and every eighth FindOrInsert,
// moves the keys of one slab, where their hashes lie side by side in memory, until all have been moved;
// meanwhile a look-up goes to both. That is over long before the index is too small or too large again.

// callsPerMove is how many calls of FindOrInsert there are for each slab that they move. To move a slab takes
// ten microseconds, and a queue inserts hundreds of keys under one lock.
const callsPerMove = 8

// isMoving reports whether there are keys that are in old and not in index.
func (t *Table[K, V]) isMoving() bool { return len(t.old.buckets) != 0 }

// grow makes room for more keys: twice as many or, if a burst has left an index that is larger than that, up
// to 16 times as many, since growing step by step moves each key again and again.
func (t *Table[K, V]) grow() {
	if t.count >= maxKeys {
		panic("workqueue: more than 2147483647 keys")
	}
	n := max(minBuckets, 2*len(t.index.buckets))
	for m := 8 * n; m > n; m /= 2 { // n is twice as many already
		if buckets := t.spare.Take(m); buckets != nil {
			t.moveTo(buckets)
			return
		}
	}
	t.moveTo(t.spare.Get(n))
}

// shrink gives memory back when few keys are left. The index stays so large that keys which come and
// go around this number do not make it grow and shrink in turn.
func (t *Table[K, V]) shrink() {
	t.moveTo(t.spare.Get(max(keptBuckets, len(t.index.buckets)/4)))
}

// moveTo makes buckets, which are empty, the table's index, and begins to move the keys there.
func (t *Table[K, V]) moveTo(buckets []bucket) {
	t.moveAll()
	t.old, t.moved = t.index, 0
	t.index = indexOf(buckets)
	t.limit = min(len(buckets)*keysPerBucket, maxKeys)
	if len(t.old.buckets) <= keptBuckets {
		t.moveAll()
	}
}

func (t *Table[K, V]) moveAll() {
	for t.isMoving() {
		t.moveSome()
	}
}

// moveSome moves the keys of the next slab, and forgets old if no later one has any. Moved keys also stay in
// old until it is dropped as a whole; only Delete takes single keys out of it.
func (t *Table[K, V]) moveSome() {
	t.moveSlab(t.moved)
	slabs := t.slots.slabs
	for t.moved++; t.moved < len(slabs) && slabs[t.moved].live == 0; t.moved++ {
	}
	if t.moved >= len(slabs) {
		t.forgetOld()
	}
}

func (t *Table[K, V]) moveSlab(n int) {
	// All homes are read before the first of them is changed. See Preload.
	var read uint64
	for s := range t.slots.live(n) {
		read |= t.index.homeBucket(t.slots.at(s).hash).tags
	}
	runtime.KeepAlive(read)
	for s := range t.slots.live(n) {
		if h := t.slots.at(s).hash; !t.index.has(h, s) { // It is if the key was inserted meanwhile.
			t.index.insert(h, s)
		}
	}
}

// forgetOld keeps the memory of old for the next burst, unless clearing it would take milliseconds.
func (t *Table[K, V]) forgetOld() {
	if n := len(t.old.buckets); n >= keptBuckets && n <= largestSpare {
		clear(t.old.buckets)
		t.spare.Put(t.old.buckets)
	}
	t.old = index{}
}

// findMoving looks for key while keys move.
func (t *Table[K, V]) findMoving(h Hash, key K) (Slot, *Entry[K, V]) {
	if s, e := t.probe(&t.index, h, key); e != nil {
		return s, e
	}
	return t.probe(&t.old, h, key)
}

// removeMoving takes s, whose key has hash h, out of both indexes while keys move.
func (t *Table[K, V]) removeMoving(h Hash, s Slot) {
	for _, x := range []*index{&t.index, &t.old} {
		if x.has(h, s) {
			x.remove(h, s)
		}
	}
}
