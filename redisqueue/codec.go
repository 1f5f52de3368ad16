package redisqueue

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strconv"
	"strings"
)

// Codec translates between keys and the strings that Redis keeps. Equal keys must have equal strings, and
// Decode must return a key that is equal to the one that was encoded, on every replica. Its methods are
// called by many goroutines at once, without a lock: Encode by the caller of a method, Decode by the queue's
// goroutines.
//
// The server compares strings, not keys: if two strings decode to equal keys (an older program wrote them
// differently), two replicas may have that key at once.
type Codec[T comparable] interface {
	// Encode returns key's string. A method of the queue that is given a key for which Encode returns an
	// error panics with that error. Short strings cost less: the server keeps each two to four times.
	Encode(key T) (string, error)
	// Decode returns the key of a string. A string for which it returns an error, or panics, is given up and
	// stops nothing. [Admin.Keys] has it, GivenUpKeys does not, and [Admin.RetryGivenUp] brings it back.
	// GivenUpLimit and GivenUpAge say how many are kept, and for how long.
	Decode(encoded string) (T, error)
}

// defaultCodec returns the codec of Config's documentation and what its strings look like, or an error for a
// type whose keys would not come back equal.
func defaultCodec[T comparable]() (codec Codec[T], description string, err error) {
	t := reflect.TypeFor[T]()
	if description, err = describe(t); err != nil {
		return nil, "", fmt.Errorf("redisqueue: keys of type %v need a Codec: %w", t, err)
	}
	switch {
	case isText(t):
		codec = textOrJSON[T]{
			func(key any) ([]byte, error) { return key.(encoding.TextMarshaler).MarshalText() },
			func(text []byte, key any) error { return key.(encoding.TextUnmarshaler).UnmarshalText(text) },
		}
	case t.Kind() == reflect.String || isInteger(t.Kind()):
		codec = plain[T]{}
	default:
		codec = textOrJSON[T]{json.Marshal, json.Unmarshal}
	}
	return codec, description, nil
}

// textOrJSON returns an error for a key that would not come back equal: JSON replaces invalid UTF-8, and
// leaves out fields that have the same name.
type textOrJSON[T comparable] struct {
	marshal   func(key any) ([]byte, error)
	unmarshal func(text []byte, key any) error
}

func (c textOrJSON[T]) Encode(key T) (string, error) {
	text, err := c.marshal(key)
	if err != nil {
		return "", err
	}
	if back, err := c.Decode(string(text)); err != nil || back != key {
		return "", fmt.Errorf("its string %q does not decode to the same key", text)
	}
	return string(text), nil
}

func (c textOrJSON[T]) Decode(encoded string) (key T, err error) {
	err = c.unmarshal([]byte(encoded), &key)
	return key, err
}

// The kinds between these are all integers.
func isInteger(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uintptr }

// plain leaves strings and integers as they are.
type plain[T comparable] struct{}

func (plain[T]) Encode(key T) (string, error) {
	switch v := reflect.ValueOf(key); {
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10), nil
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10), nil
	default:
		return v.String(), nil
	}
}

func (plain[T]) Decode(encoded string) (key T, err error) {
	switch v := reflect.ValueOf(&key).Elem(); {
	case v.CanInt():
		n, err := strconv.ParseInt(encoded, 10, v.Type().Bits())
		v.SetInt(n)
		return key, err
	case v.CanUint():
		n, err := strconv.ParseUint(encoded, 10, v.Type().Bits())
		v.SetUint(n)
		return key, err
	default:
		v.SetString(encoded)
		return key, nil
	}
}

// isText reports whether keys of a type are translated by their own methods.
func isText(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// describe says what the strings of a type of keys look like: a kind such as int8; text; [2]kind for an
// array; {name kind, name kind} for a struct, where a field's JSON tag is its name. Programs with the same
// description write a key as the same string. It leaves out the names of types, which may differ in two
// programs. It returns an error if a value may differ from what JSON makes of it.
func describe(t reflect.Type) (string, error) {
	switch k := t.Kind(); {
	case isText(t):
		return "text", nil
	case k == reflect.Bool || k == reflect.String || isInteger(k):
		return k.String(), nil
	case k == reflect.Float32 || k == reflect.Float64:
		return "", errors.New("0.0 and -0.0 are equal, but have two strings")
	case k == reflect.Array:
		element, err := describe(t.Elem())
		return fmt.Sprintf("[%d]%s", t.Len(), element), err
	case k == reflect.Struct:
		var fields []string
		for i := range t.NumField() {
			field := t.Field(i)
			if !field.IsExported() || field.Tag.Get("json") == "-" {
				return "", fmt.Errorf("JSON leaves out the field %s of %v", field.Name, t)
			}
			value, err := describe(field.Type)
			if err != nil {
				return "", err
			}
			fields = append(fields, cmp.Or(field.Tag.Get("json"), field.Name)+" "+value)
		}
		return "{" + strings.Join(fields, ", ") + "}", nil
	}
	return "", fmt.Errorf("a %v is not equal to what JSON makes of it", t)
}

// locate encodes item and returns its shard. It panics for what is no key.
func (q *Queue[T]) locate(item T) (string, *shard[T]) {
	if item != item {
		panic(fmt.Sprintf("redisqueue: a key of type %T is not equal to itself", item))
	}
	encoded, err := q.config.Codec.Encode(item)
	if err != nil {
		panic(fmt.Errorf("redisqueue: encode a key of type %T: %w", item, err))
	}
	return encoded, q.shardOf(encoded)
}

// shardOf returns the shard of a key. It panics for the reserved one.
func (q *Queue[T]) shardOf(encoded string) *shard[T] {
	if encoded == filler {
		panic("redisqueue: a key of 80 zero bytes is reserved")
	}
	if len(q.shards) == 1 {
		return q.shards[0]
	}
	h := fnv.New32a() // All replicas, of all versions, must agree on it.
	h.Write([]byte(encoded))
	return q.shards[h.Sum32()%uint32(len(q.shards))]
}

func (q *Queue[T]) decode(encoded string) (item T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("redisqueue: decode %q: panic: %v", encoded, v)
		}
	}()
	item, err = q.config.Codec.Decode(encoded)
	if err == nil && item != item {
		err = errors.New("the key is not equal to itself")
	}
	if err != nil {
		return item, fmt.Errorf("redisqueue: decode %q: %w", encoded, err)
	}
	checkHashable(item)
	return item, nil
}

// checkHashable panics, outside of all locks, for a key that no map can have.
func checkHashable[T comparable](item T) {
	_ = map[T]struct{}(nil)[item]
}
