// Package stablehash hashes keys such that all processes compute the same hash, with every version of
// this library, their architecture and their endianness. Package sharding finds a key's slot by it, and
// package worker a key's moment within a period. What it computes must never change.
//
// The package hash/maphash is out of the question because it has a seed for each process, and FNV-1a because
// the last characters of a key do not reach its upper bits (and those of keys with the same beginning hardly
// differ in the lower ones).
package stablehash

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"
	"unsafe"
)

const (
	start = 0x9e3779b97f4a7c15
	mul1  = 0xa0761d6478bd642f
	mul2  = 0xe7037ed1a0b428db
)

func String(s string) uint64 { return addString(start, s) }

// addString adds s to h, eight bytes at a time. The last eight may overlap those before.
func addString(h uint64, s string) uint64 {
	all := unsafe.Slice(unsafe.StringData(s), len(s))
	b, n := all, len(s)
	last := uint64(0)
	switch {
	case n >= 8:
		for len(b) > 8 {
			h = mix(h^binary.LittleEndian.Uint64(b), mul1)
			b = b[8:]
		}
		last = binary.LittleEndian.Uint64(all[n-8:])
	case n >= 4:
		last = uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[n-4:]))<<32
	case n > 0:
		last = uint64(b[0]) | uint64(b[n/2])<<8 | uint64(b[n-1])<<16
	}
	// The length distinguishes "a" from "aa", and ("ab", "c") from ("a", "bc").
	return mix(h^last, mul2^uint64(n))
}

func addNumber(h, n uint64) uint64 { return mix(h^n, mul1) }

// mix multiplies to 128 bits and folds the halves, so that each bit of a reaches each bit of the result.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// Scale maps a hash to one of the numbers from 0 to n-1, by its upper bits.
func Scale(hash, n uint64) uint64 {
	scaled, _ := bits.Mul64(hash, n)
	return scaled
}

// Phase returns the moment within a period that belongs to the hash of a key: from 0 to period, which must be
// positive.
func Phase(hash uint64, period time.Duration) time.Duration {
	return time.Duration(Scale(hash, uint64(period)))
}

// UntilPhase returns how long after now the next moment is that is phase after a multiple of period since the
// Unix epoch. It takes the one after if the next is less than a thousandth of the period away: a timer comes
// that early if the clock is slewed meanwhile (NTP does that by up to one in 2,000), and what it has begun
// would come twice. So it is never more than 1.001 periods.
func UntilPhase(phase, period time.Duration, now time.Time) time.Duration {
	into := time.Duration(now.UnixNano()) % period
	d := (phase - into) % period
	if d < 0 {
		d += period
	}
	if d <= period/1000 {
		d += min(period, math.MaxInt64-d)
	}
	return d
}

// leaf is a part of a key that is a string, a number or a boolean.
type leaf struct {
	offset uintptr
	kind   reflect.Kind
}

// Hasher computes the hash of keys of one type.
type Hasher[T comparable] struct {
	leaves []leaf
	isPath bool // see NewPath
}

// New returns the Hasher for keys that are strings, numbers, booleans, or structs and arrays of such. It
// returns an error for others: pointers and channels mean nothing in another process, an interface may hold
// one, and equal floats can have different bits (0 and -0).
func New[T comparable]() (Hasher[T], error) {
	leaves, err := leavesOf(reflect.TypeFor[T](), 0, nil)
	return Hasher[T]{leaves: leaves}, err
}

// NewPath returns the Hasher for keys that are a Namespace and a Name, perhaps in structs of one field, such
// as types.NamespacedName and reconcile.Request. The hash is that of the string "namespace/name", or of the
// name alone if there is no namespace: so client-go's caches name objects. It returns false for other types.
func NewPath[T comparable]() (Hasher[T], bool) {
	t := reflect.TypeFor[T]()
	for t.Kind() == reflect.Struct && t.NumField() == 1 {
		t = t.Field(0).Type
	}
	if t.Kind() != reflect.Struct || !t.ConvertibleTo(reflect.TypeFor[struct{ Namespace, Name string }]()) {
		return Hasher[T]{}, false
	}
	leaves, err := leavesOf(reflect.TypeFor[T](), 0, nil)
	return Hasher[T]{leaves, true}, err == nil
}

func (f *Hasher[T]) hashPath(key *T) uint64 {
	namespace := *(*string)(unsafe.Add(unsafe.Pointer(key), f.leaves[0].offset))
	name := *(*string)(unsafe.Add(unsafe.Pointer(key), f.leaves[1].offset))
	if namespace == "" {
		return String(name)
	}
	path := append(make([]byte, 0, 128), namespace...)
	path = append(append(path, '/'), name...)
	return String(unsafe.String(unsafe.SliceData(path), len(path)))
}

func (f *Hasher[T]) Hash(key T) uint64 {
	if f.isPath {
		return f.hashPath(&key)
	}
	h := uint64(start)
	for _, l := range f.leaves {
		p := unsafe.Add(unsafe.Pointer(&key), l.offset)
		if l.kind == reflect.String { // Most keys have no others, and each call of a sharded queue comes by here.
			h = addString(h, *(*string)(p))
		} else {
			h = l.add(h, p)
		}
	}
	return h
}

// add adds the leaf at p to h. An int has the same hash as an int64 of the same value.
func (l leaf) add(h uint64, p unsafe.Pointer) uint64 {
	switch l.kind {
	case reflect.Int64, reflect.Uint64:
		return addNumber(h, *(*uint64)(p))
	case reflect.Int:
		return addNumber(h, uint64(*(*int)(p)))
	case reflect.Uint, reflect.Uintptr:
		return addNumber(h, uint64(*(*uint)(p)))
	case reflect.Int32:
		return addNumber(h, uint64(*(*int32)(p)))
	case reflect.Uint32:
		return addNumber(h, uint64(*(*uint32)(p)))
	case reflect.Int16:
		return addNumber(h, uint64(*(*int16)(p)))
	case reflect.Uint16:
		return addNumber(h, uint64(*(*uint16)(p)))
	case reflect.Int8:
		return addNumber(h, uint64(*(*int8)(p)))
	default: // Uint8, Bool
		return addNumber(h, uint64(*(*uint8)(p)))
	}
}

func leavesOf(t reflect.Type, offset uintptr, leaves []leaf) ([]leaf, error) {
	var err error
	switch t.Kind() {
	case reflect.String, reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return append(leaves, leaf{offset, t.Kind()}), nil
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Name == "_" { // == does not compare it
				continue
			}
			if leaves, err = leavesOf(f.Type, offset+f.Offset, leaves); err != nil {
				return nil, fmt.Errorf("field %s: %w", f.Name, err)
			}
		}
		return leaves, nil
	case reflect.Array:
		for i := range t.Len() {
			if leaves, err = leavesOf(t.Elem(), offset+uintptr(i)*t.Elem().Size(), leaves); err != nil {
				return nil, err
			}
		}
		return leaves, nil
	}
	return nil, fmt.Errorf("%v has no hash that other processes could compute", t)
}
