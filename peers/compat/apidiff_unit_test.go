package compat

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// checkSource type-checks a package that imports nothing.
func checkSource(t *testing.T, path, source string) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path+".go", "package p\n"+source, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(types.Config).Check(path, fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCompareAPI shows that compareAPI can fail: it names each kind of difference, and nothing else.
func TestCompareAPI(t *testing.T) {
	for _, tt := range []struct {
		name, got, want string
		// found are the beginnings of the lines.
		found []string
	}{
		{name: "const gone", want: `const C = 1`, found: []string{"C: is missing"}},
		{name: "func gone", want: `func F() {}`, found: []string{"F: is missing"}},
		{name: "only an unexported one left", got: `func f() {}`, want: `func F() {}`, found: []string{"F: is missing"}},
		{name: "func for var", got: `func F() {}`, want: `var F func()`, found: []string{"F: is a function, want a variable"}},
		{name: "value of a const", got: `const C = 1`, want: `const C = 2`, found: []string{"C: is 1, want 2"}},
		{name: "type of a const", got: `const C = 1`, want: `const C int = 1`, found: []string{"C: is untyped int, want int"}},
		{name: "type of a var", got: `var V []string`, want: `var V []any`, found: []string{"V: is []string, want []any"}},

		{name: "parameter", got: `func F(int) {}`, want: `func F(int8) {}`, found: []string{"F: is func(int), want func(int8)"}},
		{name: "parameter more", got: `func F(int) {}`, want: `func F() {}`, found: []string{"F: is"}},
		{name: "result", got: `func F() *int { return nil }`, want: `func F() **int { return nil }`, found: []string{"F: is"}},
		{name: "variadic", got: `func F(...int) {}`, want: `func F([]int) {}`, found: []string{"F: is"}},
		{name: "type parameter more", got: `func F[T any]() {}`, want: `func F() {}`, found: []string{"F: is"}},
		{name: "constraint", got: `func F[T any](T) {}`, want: `func F[T comparable](T) {}`, found: []string{"F: is func[T any](T), want func[T comparable](T)"}},
		{name: "constraint is a union", got: `func F[T int | ~string]() {}`, want: `func F[T int | string]() {}`, found: []string{"F: is"}},
		{name: "place of a type parameter", got: `func F[T, U any](U) {}`, want: `func F[T, U any](T) {}`, found: []string{"F: is"}},
		{name: "direction of a channel", got: `var V chan int`, want: `var V <-chan int`, found: []string{"V: is"}},
		{name: "length of an array", got: `var V [1]int`, want: `var V [2]int`, found: []string{"V: is"}},
		{name: "key of a map", got: `var V map[int]int`, want: `var V map[string]int`, found: []string{"V: is"}},
		{name: "function in a struct", got: `var V struct{ F func() }`, want: `var V struct{ F func() error }`, found: []string{"V: is"}},
		{name: "method of a literal interface", got: `var V interface{ M() }`, want: `var V interface{ N() }`, found: []string{"V: is"}},

		{name: "alias for defined", got: `type A = int`, want: `type A int`, found: []string{"A: is a type alias, want a defined type"}},
		{name: "defined for alias", got: `type A int`, want: `type A = int`, found: []string{"A: is a defined type, want a type alias"}},
		{name: "other alias", got: `type G[T any] []T; type A = G[int]`, want: `type G[T any] []T; type A = G[any]`, found: []string{"A: is"}},
		{name: "underlying", got: `type A int`, want: `type A string`, found: []string{"A: is int, want string"}},
		{name: "underlying function", got: `type A func(int)`, want: `type A func(string)`, found: []string{"A: is"}},
		{name: "interface for struct", got: `type A interface{}`, want: `type A struct{}`, found: []string{"A: is no struct"}},
		{name: "struct for interface", got: `type A struct{}`, want: `type A interface{}`, found: []string{"A: is no interface"}},
		{name: "constraint of a type", got: `type A[T any] struct{}`, want: `type A[T comparable] struct{}`, found: []string{"A: is A[T any], want A[T comparable]"}},

		{name: "field gone", got: `type A struct{ X int }`, want: `type A struct{ X, Y int }`, found: []string{"A.Y: is missing"}},
		{name: "field more", got: `type A struct{ X, Y int }`, want: `type A struct{ X int }`, found: []string{"A.Y: is not wanted"}},
		{name: "unexported field more", got: `type A struct{ X int; y int }`, want: `type A struct{ X int }`, found: []string{"A: has unexported fields"}},
		{name: "order of fields", got: `type A struct{ Y, X int }`, want: `type A struct{ X, Y int }`, found: []string{"A.X: is missing or has", "A.Y: is missing or has"}},
		{name: "type of a field", got: `type A struct{ X int }`, want: `type A struct{ X any }`, found: []string{"A.X: is int, want any"}},
		{name: "tag", got: "type A struct{ X int `a` }", want: "type A struct{ X int `b` }", found: []string{"A.X: has the tag"}},
		{name: "embedded", got: `type B int; type A struct{ B B }`, want: `type B int; type A struct{ B }`, found: []string{"A.B: embedded: false, want true"}},
		{name: "comparable", got: `type A struct{ x []int }`, want: `type A struct{ x int }`, found: []string{"A: is not comparable"}},

		{name: "method gone", got: `type A int`, want: `type A int; func (A) M() {}`, found: []string{"A.M: is missing", "*A.M: is missing"}},
		{name: "pointer receiver", got: `type A int; func (*A) M() {}`, want: `type A int; func (A) M() {}`, found: []string{"A.M: is missing"}},
		{name: "signature of a method", got: `type A int; func (*A) M(int) {}`, want: `type A int; func (*A) M() {}`, found: []string{"*A.M: is func(int), want func()"}},
		{name: "method that an embedded type has", got: `type A struct{ b }; type b struct{}`, want: `type A struct{ b }; type b struct{}; func (b) M() {}`, found: []string{"A.M: is missing", "*A.M: is missing"}},
		{name: "method of a generic type", got: `type A[T any] struct{}; func (A[T]) M(T) {}`, want: `type A[T any] struct{}; func (A[T]) M([]T) {}`, found: []string{"A.M: is", "*A.M: is"}},

		{name: "interface without a method", got: `type A interface{}`, want: `type A interface{ M() }`, found: []string{"A.M: is missing"}},
		{name: "interface with one more", got: `type A interface{ M() }`, want: `type A interface{}`, found: []string{"A.M: is not wanted"}},
		{name: "inherited method gone", got: `type b interface{}; type A interface{ b }`, want: `type b interface{ M() }; type A interface{ b }`, found: []string{"A.M: is missing"}},
		{name: "signature in an interface", got: `type A interface{ M() any }`, want: `type A interface{ M() error }`, found: []string{"A.M: is func() any, want func() error"}},
		{name: "type set", got: `type A interface{ comparable }`, want: `type A interface{}`, found: []string{"A: is"}},
		{name: "two at once", got: `const C = 1`, want: `const C = 2; func F() {}`, found: []string{"C: is 1", "F: is missing"}},

		// What a program cannot tell is no difference.
		{name: "names of parameters", got: `func F[T any](b T) (c int) { return }`, want: `func F[U any](x U) (y int) { return }`},
		{name: "more of everything", got: `const C, D = 1, 2; type T int; func (T) M() {}; func G() {}`, want: `const C = 1; type T int`},
		{name: "value receiver", got: `type A int; func (A) M() {}`, want: `type A int; func (*A) M() {}`},
		{name: "inside of an opaque struct", got: `type A struct{ x, y int }`, want: `type A struct{ z map[int]any }`},
		{name: "names of unexported types", got: `type a int; func F(*a) {}`, want: `type b int; func F(*b) {}`},
		{name: "inheritance", got: `type A interface{ M(); N() }`, want: `type m interface{ M() }; type A interface{ m; N() }`},
		{name: "alias of the same", got: `type A = func(); func F(A) {}`, want: `type A = func(); func F(func()) {}`},
		{name: "types of the package", got: `type A[T any] struct{ Next *A[T] }; func F() A[int] { panic(0) }`, want: `type A[T any] struct{ Next *A[T] }; func F() A[int] { panic(0) }`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := compareAPI(checkSource(t, "got", tt.got), checkSource(t, "want", tt.want))
			if len(found) != len(tt.found) {
				t.Fatalf("%q, want %d lines", found, len(tt.found))
			}
			for i, line := range found {
				if !strings.HasPrefix(line, tt.found[i]) {
					t.Errorf("%q, want %q", line, tt.found[i])
				}
			}
		})
	}
}
