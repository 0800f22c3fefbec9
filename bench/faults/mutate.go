package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// replacements are operators and what is put in their place, with the kind of that fault.
var replacements = map[token.Token]struct {
	kind string
	by   token.Token
}{
	token.LSS:  {"compare", token.LEQ},
	token.LEQ:  {"compare", token.LSS},
	token.GTR:  {"compare", token.GEQ},
	token.GEQ:  {"compare", token.GTR},
	token.EQL:  {"compare", token.NEQ},
	token.NEQ:  {"compare", token.EQL},
	token.ADD:  {"sum", token.SUB},
	token.SUB:  {"sum", token.ADD},
	token.LAND: {"logic", token.LOR},
	token.LOR:  {"logic", token.LAND},
}

// A mutator lists the faults that can be planted in a file.
type mutator struct {
	name     string
	source   []byte
	set      *token.FileSet
	function *ast.FuncDecl
	faults   []*fault
}

// candidates lists the faults that can be planted in a source file. Some of them do not compile.
func candidates(name string, source []byte) ([]*fault, error) {
	m := mutator{name: name, source: source, set: token.NewFileSet()}
	file, err := parser.ParseFile(m.set, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			m.function = d
			m.walk(d.Body, d.Type)
		}
	}
	return m.faults, nil
}

// walk looks at all that is below a node, which is in a function of the type.
func (m *mutator) walk(root ast.Node, in *ast.FuncType) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			m.walk(n.Body, n.Type)
			return false
		case *ast.BinaryExpr:
			m.binary(n)
		case *ast.AssignStmt:
			switch n.Tok {
			case token.ADD_ASSIGN:
				m.add("sum", n.TokPos, n.TokPos+2, "-=")
			case token.SUB_ASSIGN:
				m.add("sum", n.TokPos, n.TokPos+2, "+=")
			}
		case *ast.IfStmt:
			m.negate(n.Cond)
		case *ast.IndexExpr:
			m.bound(n.Index)
		case *ast.SliceExpr:
			m.bound(n.Low)
			m.bound(n.High)
			m.bound(n.Max)
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && m.text(call.Fun) != "panic" {
				m.add("drop", n.Pos(), n.End(), "{}")
			}
		case *ast.CallExpr:
			m.swap(n)
		case *ast.ReturnStmt:
			m.result(n, in)
		}
		return true
	})
}

func (m *mutator) binary(n *ast.BinaryExpr) {
	r, ok := replacements[n.Op]
	if !ok {
		return
	}
	if r.kind == "compare" {
		if m.text(n.X) == "err" && m.text(n.Y) == "nil" {
			return // any test notices that
		}
		m.bound(n.X)
		m.bound(n.Y)
	}
	m.add(r.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), r.by.String())
}

// negate turns a condition around, unless that is what replacing its operator does, too.
func (m *mutator) negate(condition ast.Expr) {
	switch c := condition.(type) {
	case *ast.BinaryExpr:
		if c.Op == token.EQL || c.Op == token.NEQ {
			return
		}
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			m.add("negate", c.Pos(), c.End(), m.text(c.X))
			return
		}
	case *ast.Ident, *ast.CallExpr, *ast.SelectorExpr:
		m.add("negate", c.Pos(), c.End(), "!"+m.text(c))
		return
	}
	m.add("negate", condition.Pos(), condition.End(), "!("+m.text(condition)+")")
}

// bound adds 1 to a number.
func (m *mutator) bound(n ast.Expr) {
	literal, ok := n.(*ast.BasicLit)
	if !ok || literal.Kind != token.INT {
		return
	}
	value, err := strconv.ParseUint(literal.Value, 0, 63)
	if err != nil {
		return
	}
	text := strconv.FormatUint(value+1, 10)
	if strings.HasPrefix(literal.Value, "0x") {
		text = fmt.Sprintf("%#x", value+1)
	}
	m.add("bound", n.Pos(), n.End(), text)
}

// swap exchanges neighbours among the arguments of a call. If their types differ, it does not compile.
func (m *mutator) swap(call *ast.CallExpr) {
	if f := m.text(call.Fun); f == "min" || f == "max" {
		return
	}
	for i := 1; i < len(call.Args); i++ {
		a, b := call.Args[i-1], call.Args[i]
		if isName(a) && isName(b) && m.text(a) != m.text(b) {
			between := string(m.source[m.offset(a.End()):m.offset(b.Pos())])
			m.add("swap", a.Pos(), b.End(), m.text(b)+between+m.text(a))
		}
	}
}

func isName(n ast.Expr) bool {
	switch n := n.(type) {
	case *ast.Ident:
		return true
	case *ast.SelectorExpr:
		return isName(n.X)
	}
	return false
}

// result changes a bool that is the last result of a function.
func (m *mutator) result(n *ast.ReturnStmt, in *ast.FuncType) {
	if in.Results == nil || len(n.Results) == 0 {
		return
	}
	if t, ok := in.Results.List[len(in.Results.List)-1].Type.(*ast.Ident); !ok || t.Name != "bool" {
		return
	}
	last := n.Results[len(n.Results)-1]
	by := "false"
	if m.text(last) == "false" {
		by = "true"
	}
	if _, ok := last.(*ast.CallExpr); ok && in.Results.NumFields() > len(n.Results) {
		return // a call that has all results
	}
	m.add("return", last.Pos(), last.End(), by)
}

func (m *mutator) offset(p token.Pos) int { return m.set.Position(p).Offset }

func (m *mutator) text(n ast.Node) string {
	return string(m.source[m.offset(n.Pos()):m.offset(n.End())])
}

// add adds the fault in which the source from one position to another is replaced, if that is in one line.
func (m *mutator) add(kind string, from, to token.Pos, by string) {
	begin, end := m.offset(from), m.offset(to)
	lineBegin := bytes.LastIndexByte(m.source[:begin], '\n') + 1
	lineEnd := len(m.source)
	if n := bytes.IndexByte(m.source[begin:], '\n'); n >= 0 {
		lineEnd = begin + n
	}
	if end > lineEnd {
		return
	}
	before := string(m.source[lineBegin:lineEnd])
	after := before[:begin-lineBegin] + by + before[end-lineBegin:]
	before, after = strings.TrimSpace(before), strings.TrimSpace(after)
	if strings.Contains(before, "\t") {
		return // the lists are separated by tabs
	}
	f := &fault{
		file: m.name, function: nameOf(m.function), line: m.set.Position(from).Line, kind: kind,
		before: before, after: after,
	}
	at := m.offset(m.function.Pos())
	for line := range bytes.Lines(m.source[at:lineEnd]) {
		if string(bytes.TrimSpace(line)) == before {
			f.nth++
		}
	}
	m.faults = append(m.faults, f)
}
