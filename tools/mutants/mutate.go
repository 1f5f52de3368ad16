package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"strconv"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
	"golang.org/x/tools/go/packages"
)

// inverse is what an operator is broken into.
var inverse = map[token.Token]token.Token{
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.XOR: token.AND, token.AND_NOT: token.AND,
	token.SHL: token.SHR, token.SHR: token.SHL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
	token.INC: token.DEC, token.DEC: token.INC,
	token.BREAK: token.CONTINUE, token.CONTINUE: token.BREAK,
}

// boundary is the second way to break a comparison.
var boundary = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
}

// helpers are the names of the functions that stand for operators in a mutated package.
var helpers = map[token.Token]string{
	token.ADD: "Add", token.SUB: "Sub", token.MUL: "Mul", token.QUO: "Quo", token.REM: "Rem",
	token.AND: "And", token.OR: "Or", token.XOR: "Xor", token.AND_NOT: "AndNot", token.SHL: "Shl", token.SHR: "Shr",
	token.LSS: "Less", token.LEQ: "LessEqual", token.GTR: "Greater", token.GEQ: "GreaterEqual",
}

//go:embed helpers.go.txt
var helpersStart string

// helperSource returns the file that a mutated package has in addition.
func (m *mutator) helperSource() []byte {
	text := bytes.NewBufferString(strings.NewReplacer("PACKAGE", m.Name, "COUNT", strconv.Itoa(len(m.mutants))).Replace(helpersStart))
	for op, name := range helpers {
		types, y, result := "T mutantNumber", "T", "T"
		switch {
		case boundary[op] != 0:
			types, result = "T mutantOrdered", "bool"
		case op == token.SHL || op == token.SHR:
			types, y = "T, N mutantInteger", "N"
		case op >= token.REM:
			types = "T mutantInteger"
		}
		extra, also := "", ""
		if to := boundary[op]; to != 0 {
			extra, also = ", boundary", fmt.Sprintf("if mutantOn(boundary) { return x %s y }\n", to)
		}
		fmt.Fprintf(text, "\nfunc mutant%s[%s](n%s int, x T, y %s) %s {\nif mutantOn(n) { return x %s y }\n%sreturn x %s y\n}\n",
			name, types, extra, y, result, inverse[op], also, op)
	}
	return text.Bytes()
}

// mutant is one broken operator.
type mutant struct {
	pos      token.Position
	from, to token.Token
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d:%d: %s to %s", m.pos.Filename, m.pos.Line, m.pos.Column, m.from, m.to)
}

// mutator rewrites a package so that it has all of its mutants in it.
type mutator struct {
	*packages.Package
	omit    map[mutant]bool
	mutants []mutant // The number of a mutant is its index. There is no mutant 0.
}

// number returns the number of a mutant as an expression, or nil for one that must be omitted.
func (m *mutator) number(pos token.Pos, from, to token.Token) ast.Expr {
	broken := mutant{m.Fset.Position(pos), from, to}
	if m.omit[broken] {
		return nil
	}
	m.mutants = append(m.mutants, broken)
	return &ast.BasicLit{Kind: token.INT, Value: strconv.Itoa(len(m.mutants) - 1)}
}

// on is the condition that a mutant is the active one.
func on(number ast.Expr) ast.Expr { return call("mutantOn", number) }

func call(name string, args ...ast.Expr) ast.Expr {
	return &ast.CallExpr{Fun: ast.NewIdent(name), Args: args}
}

// rewrite returns the source of file with mutants in it.
func (m *mutator) rewrite(file *ast.File) ([]byte, error) {
	skip := func(c *astutil.Cursor) bool {
		switch n := c.Node().(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.ArrayType:
			return false // The length is a constant.
		}
		return true
	}
	astutil.Apply(file, skip, func(c *astutil.Cursor) bool {
		switch n := c.Node().(type) {
		case *ast.BinaryExpr:
			c.Replace(m.binary(n))
		case *ast.UnaryExpr:
			if n.Op == token.SUB {
				zero := &ast.BasicLit{Kind: token.INT, Value: "0"}
				c.Replace(m.helper(n, n.OpPos, n.Op, zero, n.X, m.TypesInfo.Types[n].Value != nil))
			}
		case *ast.IncDecStmt:
			op := map[token.Token]token.Token{token.INC: token.ADD, token.DEC: token.SUB}[n.Tok]
			one := &ast.BasicLit{Kind: token.INT, Value: "1"}
			m.assignment(c, n, n.TokPos, n.Tok, op, n.X, one)
		case *ast.AssignStmt:
			if op := n.Tok + (token.ADD - token.ADD_ASSIGN); n.Tok >= token.ADD_ASSIGN && n.Tok <= token.AND_NOT_ASSIGN {
				m.assignment(c, n, n.TokPos, n.Tok, op, n.Lhs[0], n.Rhs[0])
			}
		case *ast.BranchStmt:
			if to, ok := inverse[n.Tok]; ok && c.Index() >= 0 {
				if number := m.number(n.TokPos, n.Tok, to); number != nil {
					other := &ast.BranchStmt{Tok: to, Label: n.Label}
					c.InsertBefore(&ast.IfStmt{Cond: on(number), Body: &ast.BlockStmt{List: []ast.Stmt{other}}})
				}
			}
		}
		return true
	})
	var text bytes.Buffer
	err := format.Node(&text, token.NewFileSet(), file)
	return text.Bytes(), err
}

func (m *mutator) binary(n *ast.BinaryExpr) ast.Expr {
	value := m.TypesInfo.Types[n]
	// invert returns an expression that is not x while the mutant is active, and otherwise x.
	invert := func(x, number ast.Expr) ast.Expr {
		return &ast.ParenExpr{X: &ast.BinaryExpr{X: &ast.ParenExpr{X: x}, Op: token.NEQ, Y: on(number)}}
	}
	switch n.Op {
	case token.EQL, token.NEQ, token.LAND, token.LOR:
		number := m.number(n.OpPos, n.Op, inverse[n.Op])
		if number == nil {
			return n
		}
		if n.Op == token.EQL || n.Op == token.NEQ {
			return invert(n, number)
		}
		// De Morgan: && is || if the operands and the result are inverted.
		return invert(&ast.BinaryExpr{X: invert(n.X, number), Op: n.Op, Y: invert(n.Y, number)}, number)
	}
	if isString(value.Type) || value.IsType() { // A type is a union in a constraint, such as int | string.
		return n
	}
	constant := value.Value != nil
	if x, ok := m.TypesInfo.Types[n.X]; ok && x.Value != nil && (n.Op == token.SHL || n.Op == token.SHR) {
		constant = true
	}
	return m.helper(n, n.OpPos, n.Op, n.X, n.Y, constant)
}

// helper returns the call that stands for an operator, or whole if its mutants must be omitted. If the operands are
// constants, it names their type, which Go could not infer.
func (m *mutator) helper(whole ast.Expr, pos token.Pos, op token.Token, x, y ast.Expr, constant bool) ast.Expr {
	args := []ast.Expr{m.number(pos, op, inverse[op])}
	if to, ok := boundary[op]; ok && args[0] != nil {
		args = append(args, m.number(pos, op, to))
	}
	if args[0] == nil {
		return whole
	}
	if constant {
		name := types.TypeString(types.Default(m.TypesInfo.Types[whole].Type), func(p *types.Package) string {
			if p == m.Types {
				return ""
			}
			return p.Name()
		})
		if t, err := parser.ParseExpr(name); err == nil {
			return &ast.CallExpr{Fun: &ast.IndexExpr{X: ast.NewIdent("mutant" + helpers[op]), Index: t}, Args: append(args, x, y)}
		}
	}
	return call("mutant"+helpers[op], append(args, x, y)...)
}

// assignment rewrites x op= y, x++ and x--.
func (m *mutator) assignment(c *astutil.Cursor, n ast.Stmt, pos token.Pos, tok, op token.Token, x, y ast.Expr) {
	if c.Index() < 0 { // for i := 0; i < n; i++
		whole := &ast.BinaryExpr{X: x, Op: op, Y: y}
		c.Replace(&ast.AssignStmt{Lhs: []ast.Expr{x}, Tok: token.ASSIGN, Rhs: []ast.Expr{m.helper(whole, pos, op, x, y, false)}})
		return
	}
	var cases []ast.Stmt
	add := func(to token.Token) {
		number := m.number(pos, tok, to)
		if number == nil {
			return
		}
		stmt := ast.Stmt(&ast.AssignStmt{Lhs: []ast.Expr{x}, Tok: to, Rhs: []ast.Expr{y}})
		if to == token.INC || to == token.DEC {
			stmt = &ast.IncDecStmt{X: x, Tok: to}
		}
		cases = append(cases, &ast.CaseClause{List: []ast.Expr{on(number)}, Body: []ast.Stmt{stmt}})
	}
	if tok == token.INC || tok == token.DEC {
		add(inverse[tok])
	} else {
		if to := inverse[op] + (token.ADD_ASSIGN - token.ADD); op != token.REM && !isString(m.TypesInfo.TypeOf(x)) {
			add(to)
		}
		add(token.ASSIGN)
	}
	cases = append(cases, &ast.CaseClause{Body: []ast.Stmt{n}})
	c.Replace(&ast.SwitchStmt{Body: &ast.BlockStmt{List: cases}})
}

func isString(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsString != 0
}
