package analyzer

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
	"golang.org/x/tools/go/gcexportdata"
)

// copyQueue returns client-go's queue, as pkg imports it, as a package of its own: with the same declarations, but
// types that are not client-go's any more. Our package has the same declarations, so it stands for ours, which
// need not even be among the modules of the program.
func copyQueue(pkg *types.Package) (*types.Package, error) {
	all := map[string]*types.Package{}
	var add func(p *types.Package)
	add = func(p *types.Package) {
		if all[p.Path()] == nil {
			all[p.Path()] = p
			for _, imported := range p.Imports() {
				add(imported)
			}
		}
	}
	add(pkg)
	original := all[clientGoPath]
	delete(all, oursPath)
	if original == nil {
		return nil, errors.New("the types of client-go's queue are missing")
	}
	var data bytes.Buffer
	if err := gcexportdata.Write(&data, token.NewFileSet(), original); err != nil {
		return nil, err
	}
	return gcexportdata.Read(&data, token.NewFileSet(), all, oursPath)
}

// check checks the types of the package with the changed import in the files of change, and returns what does not
// fit.
func (m *migration) check(change map[*ast.File]bool) (problems []keptImport) {
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := &types.Config{
		Importer: m, Sizes: m.pass.TypesSizes,
		Error: func(err error) {
			if e, ok := errors.AsType[types.Error](err); ok && !strings.HasPrefix(e.Msg, "\t") {
				problems = append(problems, m.explain(e, info))
			}
		},
	}
	if m.pass.Module != nil && m.pass.Module.GoVersion != "" {
		config.GoVersion = "go" + m.pass.Module.GoVersion
	}
	files := make([]*ast.File, len(m.pass.Files))
	for i, file := range m.pass.Files {
		files[i] = file
		if change[file] {
			files[i] = changed(file)
		}
	}
	//nolint:errcheck // Error has seen the errors.
	config.Check(m.pass.Pkg.Path(), m.pass.Fset, files, info)
	return problems
}

// Import finds the packages that the package under test imports.
func (m *migration) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	for _, p := range m.pass.Pkg.Imports() {
		if p.Path() == path {
			return p, nil
		}
	}
	if path == oursPath {
		return m.copied, nil
	}
	return nil, fmt.Errorf("package %s is not imported", path)
}

// changed returns a copy of file with the changed import. All else is shared.
func changed(file *ast.File) *ast.File {
	copied := *file
	copied.Decls = append([]ast.Decl(nil), file.Decls...)
	copied.Imports = nil
	for i, d := range copied.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.IMPORT {
			continue
		}
		imports := *decl
		imports.Specs = nil
		for _, s := range decl.Specs {
			spec := *s.(*ast.ImportSpec)
			if spec.Path.Value == `"`+clientGoPath+`"` {
				path := *spec.Path
				path.Value = `"` + oursPath + `"`
				spec.Path = &path
			}
			imports.Specs = append(imports.Specs, &spec)
			copied.Imports = append(copied.Imports, &spec)
		}
		copied.Decls[i] = &imports
	}
	return &copied
}

// explain finds out what a type error is due to: if it is about a function of this package, its signature.
func (m *migration) explain(e types.Error, info *types.Info) keptImport {
	if pos := m.culprit(e, info); pos.IsValid() && m.clientGo[m.fileOf(pos)] != nil {
		return keptImport{pos, fmt.Sprintf("this signature must keep client-go's import: it is used in line %d, "+
			"where a type of another package names client-go's queue", m.line(e.Pos))}
	}
	return keptImport{e.Pos, "this must keep client-go's import: a type of another package names client-go's queue"}
}

// culprit returns where the signature is that does not fit.
func (m *migration) culprit(e types.Error, info *types.Info) token.Pos {
	file := m.fileOf(e.Pos)
	if file == nil {
		return token.NoPos
	}
	path, _ := astutil.PathEnclosingInterval(file, e.Pos, e.Pos)
	for _, n := range path {
		switch n := n.(type) {
		case *ast.FuncLit:
			if n.Pos() == e.Pos {
				return n.Pos()
			}
		case *ast.SelectorExpr, *ast.Ident, *ast.CompositeLit, *ast.UnaryExpr, *ast.CallExpr:
			if pos := m.declared(n.(ast.Expr), e.Msg, info); pos.IsValid() {
				return pos
			}
		case ast.Stmt:
			return token.NoPos
		}
	}
	return token.NoPos
}

// declared returns where the function that n refers to is declared, or the method that makes the type of n unfit
// for an interface.
func (m *migration) declared(n ast.Expr, message string, info *types.Info) token.Pos {
	id, _ := n.(*ast.Ident)
	if sel, ok := n.(*ast.SelectorExpr); ok {
		id = sel.Sel
	}
	if id != nil {
		if f, ok := info.Uses[id].(*types.Func); ok && m.fileOf(f.Pos()) != nil {
			return f.Pos()
		}
	}
	_, after, found := strings.Cut(message, "wrong type for method ")
	t := info.TypeOf(n)
	if !found || t == nil {
		return token.NoPos
	}
	name := strings.TrimRight(strings.Fields(after)[0], ")")
	if f, _, _ := types.LookupFieldOrMethod(t, true, m.pass.Pkg, name); f != nil && m.fileOf(f.Pos()) != nil {
		return f.Pos()
	}
	return token.NoPos
}
