package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A usageError is an error in the command line.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string {
	help := e.command + " --help"
	if errors.As(e.err, new(*eventsError)) {
		help = "unspool help events"
	}
	return fmt.Sprintf("%v (see '%s')", e.err, help)
}

// An eventsError is about the value of -e.
type eventsError struct{ error }

func (e *eventsError) Unwrap() error { return e.error }

// noArguments refuses arguments, for commands that take none.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{c.CommandPath(), fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

// unknownCommand refuses arguments that name no command, with the names that are like the first one.
func unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q%s", strings.Join(args, " "), didYouMean(c, args[0], ""))
	if instead, ok := insteadOfPerf[args[0]]; ok {
		err = fmt.Errorf("unknown command %q, which is one of perf; %s", args[0], instead)
	}
	return &usageError{c.CommandPath(), err}
}

// insteadOfPerf says for commands of perf what does the same here.
var insteadOfPerf = map[string]string{
	"script": "'unspool convert FILE -o FILE.folded' writes the stacks as text, and 'perf script' reads recordings of " +
		"unspool, too",
	"diff": "'unspool report A B' shows what differs between two recordings",
	"annotate": "'unspool report --http FILE' shows source and machine code, and 'unspool report --by source' adds up " +
		"by line",
	"list": "'unspool help events' lists events",
	"stat": "unspool samples events and does not count them: 'unspool record -e EVENT -c 1' samples each, and --stats " +
		"writes how many",
	"archive": "'unspool convert FILE -o FILE.pb.gz' writes a recording with its names, and 'perf archive' reads " +
		"recordings of unspool, too",
	"inject":       "'unspool convert IN -o OUT' unwinds stacks",
	"evlist":       "'unspool report FILE' begins with the events",
	"buildid-list": "'unspool report --json FILE' has the build IDs of all files",
	"trace":        "'unspool record -e GROUP:NAME' samples tracepoints with their stacks",
	"sched":        "'unspool record -e sched:sched_switch' samples context switches with their stacks",
	"probe":        "'unspool record -e probe:NAME' samples the probes that 'perf probe' makes",
}

// isUnknown returns an error if a command line begins with a word that is no command, whatever follows it.
func isUnknown(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], "__complete") {
		return nil
	}
	root.InitDefaultHelpCmd()
	if c, _, err := root.Find(args[:1]); err != nil || c != root {
		return nil
	}
	return unknownCommand(root, args[:1])
}

// ownUsage changes cobra's template for usage: the root alone only shows its help, which is no use to
// mention, help topics are no commands, and on a terminal the texts about options fit its width.
func ownUsage(root *cobra.Command) {
	cobra.AddTemplateFunc("fitting", func(options *pflag.FlagSet) string {
		width := 0 // of a line; not limited
		if isTerminal(os.Stdout) {
			width = max(columns(os.Stdout)-1, narrowest)
		}
		return optionalValues(options.FlagUsagesWrapped(width))
	})
	template := strings.Replace(root.UsageTemplate(), "if .Runnable", "if and .Runnable .HasParent", 1)
	template = strings.Replace(template, "{{rpad .CommandPath .CommandPathPadding}} {{.Short}}",
		"{{.Root.Name}} help {{.Name}}   {{.Short}}", 1)
	root.SetUsageTemplate(strings.ReplaceAll(template, "Flags.FlagUsages", "Flags | fitting"))
}

// optionalValue is how pflag shows an option whose value can be left out: --http ADDR[="localhost:"].
var optionalValue = regexp.MustCompile(`(--[a-z-]+) ([A-Z]+)\[=[^]]*\]`)

// optionalValues shows these as they are typed, --http[=ADDR], in the same width.
func optionalValues(usage string) string {
	return optionalValue.ReplaceAllStringFunc(usage, func(option string) string {
		return fmt.Sprintf("%-*s", len(option), optionalValue.ReplaceAllString(option, "$1[=$2]"))
	})
}

// narrowest is for how many columns help is written at least.
const narrowest = 60

// ownCompletion lets cobra's command for completions fail for a shell that it does not know.
func ownCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	var shells []string
	for _, shell := range c.Commands() {
		shell.Args = noArguments
		shells = append(shells, shell.Name())
	}
	c.DisableFlagsInUseLine = true
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return &usageError{c.CommandPath(),
			fmt.Errorf("unknown shell %q: there are %s", args[0], strings.Join(shells, ", "))}
	}
}

// flagError says in words of our own what is wrong with an option, and what it takes.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var valueless *pflag.ValueRequiredError
	var malformed *pflag.InvalidSyntaxError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return unknownOption(c, unknown)
	case errors.As(err, &valueless):
		f := valueless.GetFlag()
		kind, _ := pflag.UnquoteUsage(f)
		return fmt.Errorf("%s: a value is missing: %s %s", optionName(f), optionName(f), kind)
	case errors.As(err, &malformed):
		return fmt.Errorf("%q is no option", malformed.GetSpecifiedFlag())
	case errors.As(err, &invalid):
		return invalidValue(invalid.GetFlag(), invalid.GetValue(), err)
	}
	return err
}

// optionName is an option as it is typed.
func optionName(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand
	}
	return "--" + f.Name
}

func unknownOption(c *cobra.Command, e *pflag.NotExistError) error {
	name, letters := e.GetSpecifiedName(), e.GetSpecifiedShortnames()
	if letters == "" {
		// cobra finds what is like the name of a command, so the options are made commands.
		options := &cobra.Command{}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			options.AddCommand(&cobra.Command{Use: f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
		})
		return fmt.Errorf("unknown option --%s%s", name, didYouMean(options, name, "--"))
	}
	hint := ""
	if strings.Trim(letters, "0123456789") == "" {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Shorthand != "" && f.NoOptDefVal != "" && f.Value.Type() != "bool" {
				hint = fmt.Sprintf(": the value of -%s is given as -%s=%s", f.Shorthand, f.Shorthand, letters)
			}
		})
	}
	return fmt.Errorf("unknown option -%s%s", name, hint)
}

// mostSuggestions is how many names are suggested at most: more are no help.
const mostSuggestions = 3

// didYouMean suggests the subcommands of c that are like a name.
func didYouMean(c *cobra.Command, name, prefix string) string {
	c.SuggestionsMinimumDistance = min(2, (len(name)-1)/2) // of three letters, two others are no likeness
	near := c.SuggestionsFor(name)
	if len(near) == 0 || len(near) > mostSuggestions || slices.Contains(near, name) {
		return ""
	}
	slices.Sort(near)
	return ": did you mean " + prefix + strings.Join(near, " or "+prefix) + "?"
}

// invalidValue returns what the value of an option must be.
func invalidValue(f *pflag.Flag, value string, err error) error {
	given := optionName(f) + " " + quoted(value)
	if f.Value.Type() == "bool" {
		given = "--" + f.Name + "=" + quoted(value) // an argument that follows is none of its own
	}
	var must valueError
	if errors.As(err, &must) {
		return fmt.Errorf("%s: %w", given, must)
	}
	return fmt.Errorf("%s: %s", given, mustBe(f.Value.Type(), errors.Is(err, strconv.ErrRange)))
}

// quoted is a value as it is shown in a message: with quotation marks where it would not be seen.
func quoted(value string) string {
	if value == "" || strings.ContainsAny(value, " \t\n") {
		return strconv.Quote(value)
	}
	return value
}

// mustBe returns what the value of an option of a type of pflag's must be.
func mustBe(kind string, outOfRange bool) string {
	switch {
	case outOfRange:
		return "is too large or too small"
	case kind == "bool":
		return "must be true or false"
	case kind == "int":
		return "must be a whole number"
	case kind == "float64":
		return "must be a number"
	case kind == "intSlice":
		return "must be whole numbers, separated by commas"
	case kind == "stringSlice":
		return "a quotation mark is out of place"
	}
	return "cannot be understood"
}
