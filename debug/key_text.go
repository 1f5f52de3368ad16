package debug

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"reflect"
)

// keyText returns what a key is called: a string itself, of other types what fmt says. It calls the
// methods of the key, so no lock may be held.
func keyText(key any) string {
	switch key := key.(type) {
	case string: // not by fmt, which copies it
		return key
	case error, fmt.Stringer, fmt.Formatter:
		return fmt.Sprint(key)
	}
	// fmt follows a pointer to a struct, which somebody may be changing.
	if v := reflect.ValueOf(key); v.Kind() == reflect.Pointer {
		return fmt.Sprintf("(%T)(%p)", key, key)
	}
	return fmt.Sprintf("%+v", key)
}

// keyID distinguishes keys whose texts are alike. It is the same in each run of the program, except for
// pointers.
func keyID(key any) string {
	format := "%T %#v"
	if reflect.ValueOf(key).Kind() == reflect.Pointer {
		format = "%T %p"
	}
	sum := sha256.Sum256(fmt.Appendf(nil, format, key, key))
	return base64.RawURLEncoding.EncodeToString(sum[:4]) // The text must fit, too.
}
