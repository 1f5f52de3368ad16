package sharding

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/keyedqueue/workqueue/internal/stablehash"
)

// HashString is the hash of the string key s. Use it in a QueueConfig.Hash:
//
//	Hash: func(key types.NamespacedName) uint64 { return sharding.HashString(key.Namespace) }
func HashString(s string) uint64 { return stablehash.String(s) }

// slotOf maps a hash to one of n slots. Like package stablehash, it must never change: all replicas must find a key in the same slot.
func slotOf(hash uint64, n int) int { return int(stablehash.Scale(hash, uint64(n))) }

// hasher computes the hash of keys of one type.
type hasher[T comparable] struct {
	custom func(T) uint64 // QueueConfig.Hash, or nil
	stable stablehash.Hasher[T]
}

// newHasher returns the hasher for keys that have a stable hash.
func newHasher[T comparable]() (hasher[T], error) {
	stable, err := stablehash.New[T]()
	if err != nil {
		return hasher[T]{}, fmt.Errorf("sharding: keys of type %v need a QueueConfig.Hash: %w", reflect.TypeFor[T](), err)
	}
	return hasher[T]{stable: stable}, nil
}

func (f *hasher[T]) hash(key T) uint64 {
	if f.custom != nil {
		return f.custom(key)
	}
	return f.stable.Hash(key)
}

// fingerprint identifies the hash by what it makes of some keys: "type=number". A hash that panics for these has none, and is not checked.
func (f *hasher[T]) fingerprint() string {
	name, h := reflect.TypeFor[T]().String(), uint64(0)
	defer func() { _ = recover() }()
	for i := range 3 {
		var key T
		fill(reflect.ValueOf(&key).Elem(), i)
		h = stablehash.String(fmt.Sprint(h, f.hash(key)))
	}
	return fmt.Sprintf("%s=%016x", name, h)
}

// fill makes v the i-th sample of its type, as far as its fields are exported.
func fill(v reflect.Value, i int) {
	switch {
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

// contradict reports whether a and b each have a fingerprint of one type that the other one lacks. If only one of them has it, the other
// may still come: members make their queues one after the other.
func contradict(a, b []string) bool {
	typeOf := func(fingerprint string) string { name, _, _ := strings.Cut(fingerprint, "="); return name }
	return slices.ContainsFunc(a, func(x string) bool {
		return !slices.Contains(b, x) && slices.ContainsFunc(b, func(y string) bool {
			return typeOf(x) == typeOf(y) && !slices.Contains(a, y)
		})
	})
}
