package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// checkKey returns an error for a key that programs write as another string. To the server two strings are
// two keys, even if programs read the same from both: two workers could have it at once.
//
// It does what a program does, without the program's type: it makes a type from the queue's description,
// decodes the key into a value of that type, and encodes it again.
func checkKey(description, key string) error {
	_, kind, _ := strings.Cut(description, "keys: ")
	_, basic := basicKinds[kind]
	if kind == "string" || !basic && !strings.HasPrefix(kind, "{") && !strings.HasPrefix(kind, "[") {
		return nil // Any string is one of its keys, as far as is known here.
	}
	var parsed any
	if err := json.Unmarshal([]byte(key), &parsed); err != nil {
		return fmt.Errorf("the queue's keys are JSON: %s", kind)
	}
	t, rest, ok := typeOf(kind, parsed)
	if !ok || rest != "" {
		return fmt.Errorf("it is not known how programs write the queue's keys: %s", kind)
	}
	value, decoder := reflect.New(t).Interface(), json.NewDecoder(strings.NewReader(key))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return fmt.Errorf("the queue's keys are %s: %w", kind, err)
	}
	canonical, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("the queue's keys are %s: %w", kind, err)
	}
	if string(canonical) == key {
		return nil
	}
	err = fmt.Errorf("programs write this key as %s", canonical)
	if kind[0] == '{' {
		err = fmt.Errorf("%w, with all fields in this order", err)
	}
	return err
}

// basicKinds are the types that are described by their names.
var basicKinds = make(map[string]reflect.Type)

func init() {
	for _, key := range []any{
		false, "", 0, int8(0), int16(0), int32(0), int64(0),
		uint(0), uint8(0), uint16(0), uint32(0), uint64(0), uintptr(0),
	} {
		t := reflect.TypeOf(key)
		basicKinds[t.String()] = t
	}
}

// anyText stands for a type with methods of its own. What these make of a string is not known here, but
// JSON has one way to write it.
type anyText json.RawMessage

func (w *anyText) UnmarshalJSON(b []byte) error {
	var s any
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	switch s := s.(type) {
	case nil:
		return errors.New("null is no text")
	case string:
		b, _ = json.Marshal(s)
	}
	*w = bytes.Clone(b)
	return nil
}

func (w anyText) MarshalJSON() ([]byte, error) {
	if w == nil {
		return nil, errors.New("a text is missing")
	}
	return w, nil
}

// typeOf returns a type with the JSON of the type at the beginning of kind, and the rest of kind. A kind
// looks like {Name string, At text, In {N int8,omitempty}}: see describe in package redisqueue. parsed is
// what the key has there. It shows that In is an embedded struct, if the object has N in place of In.
func typeOf(kind string, parsed any) (t reflect.Type, rest string, ok bool) {
	switch {
	case strings.HasPrefix(kind, "{"):
		return structOf(kind[1:], parsed)
	case strings.HasPrefix(kind, "["):
		length, element, _ := strings.Cut(kind[1:], "]")
		n, err := strconv.Atoi(length)
		t, rest, ok = typeOf(element, nil)
		if err != nil || !ok || n < 0 || n > 1<<16 || uintptr(n)*t.Size() > 1<<20 {
			return nil, "", false
		}
		return reflect.ArrayOf(n, t), rest, true
	}
	end := strings.IndexAny(kind+",", ",}")
	if t, ok = basicKinds[kind[:end]]; !ok && strings.HasPrefix(kind, "text") {
		t, ok = reflect.TypeFor[anyText](), true
	}
	return t, kind[end:], ok
}

var (
	// fieldName matches the name of a field in front of its type. It may have spaces.
	fieldName = regexp.MustCompile(`^(.*?) (?:\{|\[|(?:bool|string|u?int\w*)[,}]|text[,} ])`)
	// fieldOptions matches the options of a field's JSON, such as omitempty, behind its type.
	fieldOptions = regexp.MustCompile(`^(,\w+)*`)
)

// structOf is typeOf for what is behind the brace of a struct.
func structOf(kind string, parsed any) (t reflect.Type, rest string, ok bool) {
	object, _ := parsed.(map[string]any)
	var fields []reflect.StructField
	for !strings.HasPrefix(kind, "}") {
		match := fieldName.FindStringSubmatch(kind)
		if match == nil {
			return nil, "", false
		}
		name := match[1]
		value, present := object[name]
		if !present {
			value = parsed // If the field is an embedded struct, this object has its fields.
		}
		t, rest, ok := typeOf(kind[len(name)+1:], value)
		if !ok {
			return nil, "", false
		}
		options := fieldOptions.FindString(rest)
		if !present && options == "" && hasFieldOf(object, t) {
			for i := range t.NumField() {
				fields = append(fields, t.Field(i))
			}
		} else {
			tag := reflect.StructTag("json:" + strconv.Quote(name+options))
			fields = append(fields, reflect.StructField{Type: t, Tag: tag})
		}
		kind = strings.TrimPrefix(rest[len(options):], ", ")
	}
	for i := range fields {
		fields[i].Name = fmt.Sprint("F", i)
	}
	return reflect.StructOf(fields), kind[1:], true
}

// hasFieldOf reports whether t is a struct and object has one of its fields.
func hasFieldOf(object map[string]any, t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if _, has := object[name]; has {
			return true
		}
	}
	return false
}
