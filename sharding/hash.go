package sharding

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"reflect"
	"unsafe"
)

// The hash decides which slot a key is in, so all replicas must compute the same one, whatever their version of this
// library, their architecture and their endianness: what is in this file must never change. The package hash/maphash
// is out of the question because it has a seed for each process, and FNV-1a because the last characters of a key do not
// reach its upper bits (and those of keys with the same beginning hardly differ in the lower ones).

const (
	hashStart = 0x9e3779b97f4a7c15
	hashMul1  = 0xa0761d6478bd642f
	hashMul2  = 0xe7037ed1a0b428db
)

// HashString is the hash of the string key s. Use it in a QueueConfig.Hash:
//
//	Hash: func(key types.NamespacedName) uint64 { return sharding.HashString(key.Namespace) }
func HashString(s string) uint64 { return hashString(hashStart, s) }

// hashString adds s to h, eight bytes at a time. The last eight may overlap those before.
func hashString(h uint64, s string) uint64 {
	all := unsafe.Slice(unsafe.StringData(s), len(s))
	b, n := all, len(s)
	last := uint64(0)
	switch {
	case n >= 8:
		for len(b) > 8 {
			h = mix(h^binary.LittleEndian.Uint64(b), hashMul1)
			b = b[8:]
		}
		last = binary.LittleEndian.Uint64(all[n-8:])
	case n >= 4:
		last = uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[n-4:]))<<32
	case n > 0:
		last = uint64(b[0]) | uint64(b[n/2])<<8 | uint64(b[n-1])<<16
	}
	// The length distinguishes "a" from "aa", and ("ab", "c") from ("a", "bc").
	return mix(h^last, hashMul2^uint64(n))
}

func hashNumber(h, n uint64) uint64 { return mix(h^n, hashMul1) }

// mix multiplies to 128 bits and folds the halves, so that each bit of a reaches each bit of the result.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// slotOf maps a hash to one of n slots, by its upper bits.
func slotOf(hash uint64, n int) int {
	slot, _ := bits.Mul64(hash, uint64(n))
	return int(slot)
}

// leaf is a part of a key that is a string or a number.
type leaf struct {
	offset uintptr
	kind   reflect.Kind
}

// hasher computes the hash of keys of one type.
type hasher[T comparable] struct {
	custom func(T) uint64 // nil if there are leaves
	leaves []leaf
}

// newHasher returns the hasher for keys that are strings, numbers, booleans, or structs and arrays of such. It returns
// an error for others: they have no value that other processes could know (pointers, channels), or need not have
// one (interfaces), or are equal and look different (floats).
func newHasher[T comparable]() (hasher[T], error) {
	leaves, err := leavesOf(reflect.TypeFor[T](), 0, nil)
	if err != nil {
		return hasher[T]{}, fmt.Errorf("sharding: keys of type %v need a QueueConfig.Hash: %w", reflect.TypeFor[T](), err)
	}
	return hasher[T]{leaves: leaves}, nil
}

func (f *hasher[T]) hash(key T) uint64 {
	if f.custom != nil {
		return f.custom(key)
	}
	h := uint64(hashStart)
	for _, l := range f.leaves {
		p := unsafe.Add(unsafe.Pointer(&key), l.offset)
		if l.kind == reflect.String { // Most keys have no others, and each Add, Get and Done comes by here.
			h = hashString(h, *(*string)(p))
		} else {
			h = l.addNumber(h, p)
		}
	}
	return h
}

// addNumber adds the leaf at p to h. An int has the same hash as an int64 of the same value.
func (l leaf) addNumber(h uint64, p unsafe.Pointer) uint64 {
	switch l.kind {
	case reflect.Int64, reflect.Uint64:
		return hashNumber(h, *(*uint64)(p))
	case reflect.Int:
		return hashNumber(h, uint64(*(*int)(p)))
	case reflect.Uint, reflect.Uintptr:
		return hashNumber(h, uint64(*(*uint)(p)))
	case reflect.Int32:
		return hashNumber(h, uint64(*(*int32)(p)))
	case reflect.Uint32:
		return hashNumber(h, uint64(*(*uint32)(p)))
	case reflect.Int16:
		return hashNumber(h, uint64(*(*int16)(p)))
	case reflect.Uint16:
		return hashNumber(h, uint64(*(*uint16)(p)))
	case reflect.Int8:
		return hashNumber(h, uint64(*(*int8)(p)))
	default: // Uint8, Bool
		return hashNumber(h, uint64(*(*uint8)(p)))
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
