package compat

import (
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"testing"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

const (
	ourPath  = "github.com/keyedqueue/workqueue"
	peerPath = "k8s.io/client-go/util/workqueue"
)

// loadTypes returns the types of the packages with these import paths, all in one world, so that a
// type of a package that two of them import is one and the same.
func loadTypes(t *testing.T, paths ...string) map[string]*types.Package {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadTypes}, paths...)
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]*types.Package{}
	for _, p := range loaded {
		for _, err := range p.Errors {
			t.Fatal(err)
		}
		byPath[p.PkgPath] = p.Types
	}
	return byPath
}

// TestAPI finds every exported name of client-go's workqueue and of apimachinery's wait in ours, with the
// same meaning to the compiler.
func TestAPI(t *testing.T) {
	for _, tt := range []struct {
		ours, peer string
		// names is how many the peer exports in v0.37. Without it, a package that was loaded empty would have no
		// differences.
		names int
		// deprecated matches what a peer has and we do not.
		deprecated *regexp.Regexp
	}{
		{ourPath, peerPath, 70, nil},
		// All functions that poll are deprecated there, but for PollUntilContextCancel and PollUntilContextTimeout.
		{ourPath + "/wait", "k8s.io/apimachinery/pkg/util/wait", 42,
			regexp.MustCompile(
				`^Poll(|Infinite|InfiniteWithContext|Immediate.*|Until|WithContext|UntilWithContext): removed$`)},
	} {
		loaded := loadTypes(t, tt.ours, tt.peer)
		for _, change := range apidiff.Changes(loaded[tt.peer], loaded[tt.ours]).Changes {
			if !change.Compatible && (tt.deprecated == nil || !tt.deprecated.MatchString(change.Message)) {
				t.Errorf("%s: %s", tt.peer, change.Message)
			}
		}
		if n := len(exportedNames(loaded[tt.peer])); n != tt.names {
			t.Errorf("%s exports %d names, want %d", tt.peer, n, tt.names)
		}
	}
}

func exportedNames(p *types.Package) []string {
	return slices.DeleteFunc(p.Scope().Names(), func(name string) bool { return !token.IsExported(name) })
}

// notInterchangeable are the interfaces whose values one package cannot take from the other. The methods of
// MetricsProvider return interfaces of their package, and for the compiler two named interfaces are different
// results, however alike. A provider that was written for client-go compiles for ours when its import path is
// changed, but one value cannot serve both.
var notInterchangeable = map[string]bool{"MetricsProvider": true}

// TestAssignable passes values from one package to the other: any of an interface type to the interface
// of that name, and any of a concrete type to all interfaces that it implements at home.
func TestAssignable(t *testing.T) {
	loaded := loadTypes(t, ourPath, peerPath)
	ours, peer := loaded[ourPath], loaded[peerPath]
	arguments := map[string]types.Type{
		"any":    types.Universe.Lookup("any").Type(),
		"string": types.Typ[types.String],
	}
	for argument, T := range arguments {
		ourTypes, peerTypes := instantiate(t, ours, T), instantiate(t, peer, T)
		interfaces, implementations := 0, 0
		for name, peerType := range peerTypes {
			ourType := ourTypes[name]
			if ourType == nil {
				t.Errorf("%s is missing", name)
				continue
			}
			if types.IsInterface(peerType) {
				interfaces++
				want := !notInterchangeable[name]
				if types.AssignableTo(ourType, peerType) != want {
					t.Errorf("%s with %s: ours is assignable to client-go's: %t, want %t", name, argument, !want, want)
				}
				if types.AssignableTo(peerType, ourType) != want {
					t.Errorf("%s with %s: client-go's is assignable to ours: %t, want %t", name, argument, !want, want)
				}
				continue
			}
			for iname, peerInterface := range peerTypes {
				for _, pointer := range []bool{false, true} {
					if !implements(peerType, peerInterface, pointer) {
						continue
					}
					implementations++
					if !implements(ourType, peerInterface, pointer) {
						t.Errorf("our %s (pointer: %t) with %s is no %s of client-go", name, pointer, argument, iname)
					}
					if !implements(ourType, ourTypes[iname], pointer) {
						t.Errorf("our %s (pointer: %t) with %s is no %s of ours", name, pointer, argument, iname)
					}
					if !implements(peerType, ourTypes[iname], pointer) {
						t.Errorf("client-go's %s (pointer: %t) with %s is no %s of ours", name, pointer, argument, iname)
					}
				}
			}
		}
		// A loop over nothing would find nothing.
		if interfaces != 15 || implementations < 14 {
			t.Errorf("with %s: compared %d interfaces, want 15, and %d implementations", argument, interfaces,
				implementations)
		}
	}
}

// instantiate returns all exported types of p, the generic ones with the argument T.
func instantiate(t *testing.T, p *types.Package, T types.Type) map[string]types.Type {
	t.Helper()
	byName := map[string]types.Type{}
	for _, name := range exportedNames(p) {
		object, ok := p.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		byName[name] = object.Type()
		if named, ok := types.Unalias(object.Type()).(*types.Named); ok &&
			named.TypeParams().Len() > named.TypeArgs().Len() {
			instance, err := types.Instantiate(nil, named, []types.Type{T}, true)
			if err != nil {
				t.Fatalf("%s with %s: %v", name, T, err)
			}
			byName[name] = instance
		}
	}
	return byName
}

// implements reports whether typ, or a pointer to it, implements iface, which may be something else than
// an interface.
func implements(typ, iface types.Type, pointer bool) bool {
	if pointer {
		typ = types.NewPointer(typ)
	}
	return types.IsInterface(iface) && types.Implements(typ, iface.Underlying().(*types.Interface))
}
