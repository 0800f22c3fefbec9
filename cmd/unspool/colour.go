package main

import (
	"os"

	"github.com/spf13/cobra"
)

// A colouring is the value of --color: when text is in colours.
type colouring string

const (
	automatic colouring = "auto" // on terminals
	always    colouring = "always"
	never     colouring = "never"
)

func (c *colouring) String() string { return string(*c) }

// Type is the placeholder in the help of options that name none.
func (c *colouring) Type() string { return "when" }

func (c *colouring) Set(text string) error {
	switch colouring(text) {
	case automatic, always, never:
		*c = colouring(text)
		return nil
	}
	return valueError("must be auto, always or never")
}

// add adds the option to a command.
func (c *colouring) add(to *cobra.Command) {
	*c = automatic
	to.Flags().Var(c, "color", "print in colours `WHEN`: auto, always or never")
	to.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(
		[]string{string(automatic), string(always), string(never)}, cobra.ShellCompDirectiveNoFileComp))
}

// on reports whether what is written to f is in colours. NO_COLOR counts when it is not empty (no-color.org),
// and the option goes before it.
func (c *colouring) on(f *os.File) bool {
	if *c != automatic {
		return *c == always
	}
	return isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
