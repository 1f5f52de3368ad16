package sharding

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

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
	hash func(T) uint64
	// name is what members compare: two queues of one name in the group must have the same.
	name string
}

func newHasher[T comparable](c QueueConfig[T]) (hasher[T], error) {
	t := reflect.TypeFor[T]()
	switch {
	case c.Hash != nil && c.HashVersion == "":
		return hasher[T]{}, fmt.Errorf("sharding: QueueConfig.Hash needs a HashVersion, which replicas compare")
	case c.Hash != nil:
		return hasher[T]{c.Hash, "version " + c.HashVersion}, nil
	}
	if path, ok := stablehash.NewPath[T](); ok {
		return hasher[T]{path.Hash, "string"}, nil // as that of "namespace/name"
	}
	stable, err := stablehash.New[T]()
	if err != nil {
		return hasher[T]{}, fmt.Errorf("sharding: keys of type %v need a QueueConfig.Hash: %w", t, err)
	}
	return hasher[T]{stable.Hash, layout(t)}, nil
}

// layout returns the kinds of values in t, in their order, which decide the stable hash, and the names of its
// fields, so that members notice when two fields of one kind change places.
func layout(t reflect.Type) string {
	var parts []string
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.Name != "_" { // which no hash has
				parts = append(parts, f.Name, layout(f.Type))
			}
		}
	case reflect.Array:
		parts = slices.Repeat([]string{layout(t.Elem())}, t.Len())
	default:
		parts = []string{t.Kind().String()}
	}
	return strings.Join(parts, " ")
}

// contradictions returns the names of the queues that have another hash in a than in b. A name that
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
