package main

import (
	"strings"

	"github.com/spf13/pflag"
)

// A callGraph is the value of --call-graph, which is perf record's. Stacks are always recorded here, and
// unwound by DWARF; the option can say how much of them is copied.
type callGraph struct {
	kind string
	size *stackSize
}

// add adds the options by which perf records stacks.
func (g *callGraph) add(fl *pflag.FlagSet, size *stackSize) {
	g.size = size
	fl.BoolP("stacks", "g", true, "record stacks, which is always done: for those used to perf")
	_ = fl.MarkHidden("stacks")
	fl.Var(g, "call-graph",
		"as perf's `KIND`: dwarf,BYTES is --stack-size BYTES; fp and lbr are accepted and ignored")
}

func (g *callGraph) String() string { return g.kind }

// Type is the placeholder in the help of options that name none.
func (g *callGraph) Type() string { return "kind" }

func (g *callGraph) Set(text string) error {
	kind, size, sized := strings.Cut(text, ",")
	switch {
	case kind == "dwarf" && sized:
		if err := g.size.Set(size); err != nil {
			return err
		}
	case kind != "dwarf" && kind != "fp" && kind != "lbr" || sized:
		return valueError("must be dwarf, dwarf,BYTES, fp or lbr")
	}
	g.kind = kind
	return nil
}

// remark returns what a kind means here that sounds as if it did something else; "" for all others.
func (g *callGraph) remark() string {
	switch g.kind {
	case "fp", "lbr":
		return "--call-graph " + g.kind + ": stacks are unwound by DWARF all the same; " +
			"'unspool compare' shows what frame pointers give"
	}
	return ""
}
