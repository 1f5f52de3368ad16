package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/packages"
)

// keeper collects client-go's declarations of what the queue lacks.
type keeper struct {
	client *packages.Package
	queue  *types.Package

	body    bytes.Buffer
	imports importNames
	done    map[types.Object]bool
	printed map[ast.Node]bool
	asked   string // The exported name that is kept.
}

// add keeps an exported object, with the declarations that it needs. It fails if one of them is about queues: types
// of the two packages cannot be mixed.
func (k *keeper) add(object types.Object) error {
	k.asked = object.Name()
	return k.keep(object)
}

func (k *keeper) keep(object types.Object) error {
	if k.done[object] {
		return nil
	}
	if k.done == nil {
		k.done = map[types.Object]bool{}
	}
	k.done[object] = true
	if object.Exported() && k.queue.Scope().Lookup(object.Name()) != nil {
		return fmt.Errorf("%s is not in this version of %s, and cannot be kept from client-go, because it uses %s: "+
			"try a newer -version", k.asked, queuePath, object.Name())
	}
	for _, declaration := range k.declarations(object) {
		if err := k.print(declaration); err != nil {
			return err
		}
	}
	return nil
}

// declarations returns the declaration of object, and those of its methods.
func (k *keeper) declarations(object types.Object) []ast.Node {
	var found []ast.Node
	defines := func(name *ast.Ident) bool { return k.client.TypesInfo.Defs[name] == object }
	for _, file := range k.client.Syntax {
		for _, declaration := range file.Decls {
			switch declaration := declaration.(type) {
			case *ast.FuncDecl:
				if defines(declaration.Name) || k.receiver(declaration) == object {
					found = append(found, declaration)
				}
			case *ast.GenDecl:
				if declaration.Tok == token.IMPORT {
					continue
				}
				for _, spec := range declaration.Specs {
					if declares(spec, defines) {
						// All of it: constants of a group may count with iota.
						found = append(found, declaration)
						break
					}
				}
			}
		}
	}
	return found
}

func declares(spec ast.Spec, defines func(*ast.Ident) bool) bool {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return defines(spec.Name)
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if defines(name) {
				return true
			}
		}
	}
	return false
}

// receiver returns the type that a method is declared on.
func (k *keeper) receiver(declaration *ast.FuncDecl) types.Object {
	method, ok := k.client.TypesInfo.Defs[declaration.Name].(*types.Func)
	if !ok || method.Signature().Recv() == nil {
		return nil
	}
	t := method.Signature().Recv().Type()
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Origin().Obj()
	}
	return nil
}

// print writes a declaration, once, and keeps what it uses.
func (k *keeper) print(declaration ast.Node) error {
	if k.printed[declaration] {
		return nil
	}
	if k.printed == nil {
		k.printed = map[ast.Node]bool{}
	}
	k.printed[declaration] = true
	var err error
	ast.Inspect(declaration, func(node ast.Node) bool {
		if name, ok := node.(*ast.Ident); ok && err == nil {
			err = k.use(name)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if err := printer.Fprint(&k.body, k.client.Fset, declaration); err != nil {
		return fmt.Errorf("%s: %w", k.asked, err)
	}
	k.body.WriteString("\n\n")
	return nil
}

// use keeps what name stands for, if the package declares it, or imports it.
func (k *keeper) use(name *ast.Ident) error {
	object := k.client.TypesInfo.Uses[name] // Of an embedded field, the type, which Defs has as a field.
	if object == nil {
		object = k.client.TypesInfo.Defs[name]
	}
	if imported, ok := object.(*types.PkgName); ok {
		path := imported.Imported().Path()
		if k.imports.name(path, name.Name) != name.Name {
			return fmt.Errorf("%s cannot be kept from client-go: its files import %s under several names", k.asked, path)
		}
		return nil
	}
	if object != nil && object.Parent() == k.client.Types.Scope() {
		return k.keep(object)
	}
	return nil
}

// file returns the generated file, or nil if nothing is kept.
func (k *keeper) file() []byte {
	if k.body.Len() == 0 {
		return nil
	}
	return formatFile(header+"package workqueue\n", &k.imports, k.body.Bytes())
}
