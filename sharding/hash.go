package sharding

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/keyedqueue/workqueue/stablehash"
)

// HashString is the hash of the string key s. Use it in a QueueConfig.Hash:
//
//	Hash: func(key types.NamespacedName) uint64 { return sharding.HashString(key.Namespace) }
func HashString(s string) uint64 { return stablehash.String(s) }

// slotOf maps a hash to one of n slots. It must never change: all replicas must find a key in the same slot.
func slotOf(hash uint64, n int) int { return int(stablehash.Scale(hash, uint64(n))) }

// hasher computes the hash of keys of one type.
type hasher[T comparable] struct {
	custom func(T) uint64 // QueueConfig.Hash, or nil
	stable stablehash.Hasher[T]
	isName bool // a Namespace and a Name, perhaps in a struct, with the hash of "namespace/name"
}

// newHasher returns the hasher for keys that have a stable hash.
func newHasher[T comparable]() (hasher[T], error) {
	stable, err := stablehash.New[T]()
	t := reflect.TypeFor[T]()
	if err != nil {
		return hasher[T]{}, fmt.Errorf("sharding: keys of type %v need a QueueConfig.Hash: %w", t, err)
	}
	return hasher[T]{stable: stable, isName: isName(t)}, nil
}

// namespacedName has the layout of all types for which isName is true.
type namespacedName struct{ Namespace, Name string }

func isName(t reflect.Type) bool {
	for t.Kind() == reflect.Struct && t.NumField() == 1 { // such as reconcile.Request
		t = t.Field(0).Type
	}
	return t.Kind() == reflect.Struct && t.ConvertibleTo(reflect.TypeFor[namespacedName]())
}

func (f *hasher[T]) hash(key T) uint64 {
	switch {
	case f.custom != nil:
		return f.custom(key)
	case !f.isName:
		return f.stable.Hash(key)
	}
	n := (*namespacedName)(unsafe.Pointer(&key))
	if n.Namespace == "" { // As in client-go's caches, the key is then the name alone.
		return stablehash.String(n.Name)
	}
	path := append(make([]byte, 0, 128), n.Namespace...)
	path = append(append(path, '/'), n.Name...)
	return stablehash.String(unsafe.String(unsafe.SliceData(path), len(path)))
}

// fingerprint identifies the hash by what it makes of some keys. It is empty if the hash panics for these.
func (f *hasher[T]) fingerprint() string {
	h := uint64(0)
	defer func() { _ = recover() }()
	for i := range 3 {
		var key T
		fill(reflect.ValueOf(&key).Elem(), i)
		h = stablehash.String(fmt.Sprint(h, f.hash(key)))
	}
	return fmt.Sprintf("%016x", h)
}

// fill makes v the i-th sample of its type, as far as its fields are exported.
func fill(v reflect.Value, i int) {
	switch {
	case v.Kind() == reflect.Struct && isName(v.Type()) && v.NumField() == 2:
		v.Field(0).SetString(fmt.Sprint("sample-", i))
		v.Field(1).SetString("key")
	case v.Kind() == reflect.Struct:
		for n := range v.NumField() {
			fill(v.Field(n), i+3*n)
		}
	case v.Kind() == reflect.Array:
		for n := range v.Len() {
			fill(v.Index(n), i+3*n)
		}
	case !v.CanSet():
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprintf("sample-%d/key", i))
	case v.CanInt():
		v.SetInt(int64(i))
	case v.CanUint():
		v.SetUint(uint64(i))
	}
}

// contradictions returns the names of the queues that have another fingerprint in a than in b. A name that
// only one of them has may still come: members make their queues one after the other.
func contradictions(a, b map[string]string) (queues []string) {
	for name, hash := range a {
		if other, ok := b[name]; ok && other != hash {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return queues
}
