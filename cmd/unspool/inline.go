package main

import (
	"strconv"

	"github.com/spf13/pflag"
)

// negated is a bool of an option that says the opposite of it.
type negated struct{ of *bool }

func (n negated) String() string { return strconv.FormatBool(n.of != nil && !*n.of) }

func (n negated) Type() string { return "bool" }

func (n negated) Set(text string) error {
	is, err := strconv.ParseBool(text)
	*n.of = !is
	return err
}

// addInline adds --inline and --no-inline, of which the last one counts. The help shows the one that is not usual.
func addInline(fl *pflag.FlagSet, inline *bool, usual bool) {
	fl.BoolVar(inline, "inline", usual, "show inlined functions, by the debugging information")
	fl.Var(negated{inline}, "no-inline", "leave out inlined functions and source lines, which take time to look up")
	fl.Lookup("no-inline").NoOptDefVal = "true"
	fl.Lookup("no-inline").DefValue = "false"
	_ = fl.MarkHidden(map[bool]string{true: "inline", false: "no-inline"}[usual])
}

// addVerbose adds --verbose.
func addVerbose(fl *pflag.FlagSet, verbose *bool) {
	fl.BoolVarP(verbose, "verbose", "v", false,
		"print all notes, with every file that could not be used, and how unspool is confined")
}
