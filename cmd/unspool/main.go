package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"unspool/capture/output/human"
	"unspool/capture/rights/limits"
	"unspool/capture/rights/sandbox"
	"unspool/capture/verdict/doctor"
)

// statusFailure is the exit status for a failure of unspool itself. It is one that commands seldom have, as
// with env and nohup.
const statusFailure = 125

func main() {
	args := byName(os.Args[0], os.Args[1:])
	if err := errors.Join(enoughRoom(args), sandbox.Lower()); err != nil {
		os.Exit(fail(err, args, statusFailure))
	}
	os.Exit(run(args))
}

// enoughRoom looks at the limits, unless this process is another one's that has done so.
func enoughRoom(args []string) error {
	if len(typed(args)) < len(args) {
		return nil
	}
	return limits.Check()
}

// run runs a command line and returns the exit status. The process is prepared for it.
func run(args []string) int {
	root := &cobra.Command{
		Use:   "unspool COMMAND",
		Short: "Profile programs without frame pointers, with stacks that can be trusted",
		Long: `unspool samples running programs, unwinds a copy of each sample's stack by the
DWARF tables that every distribution ships, and writes a perf.data file with
plain callchains. No byte of a stack is ever written.`,
		Example: `  unspool record -- ./program          record a command
  unspool record -a -d 10              record the whole system for ten seconds
  unspool report perf.data             show where the time went
  unspool convert perf.data -o p.html  write it for another tool: a flame graph
  unspool compare -- ./program         what frame pointers lose, and DWARF costs
  unspool doctor                       check that this machine can record`,
		Args:          unknownCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,

		DisableFlagsInUseLine: true,
	}
	showVersion(root)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{c.CommandPath(), flagError(c, err)}
	})
	status := 0
	root.AddCommand(recordCommand(&status), convertCommand(), reportCommand(), compareCommand(&status),
		doctorCommand(&status), topCommand(&status))
	root.AddCommand(checkCommand(&status), liveUnwinderCommand(), manCommand())
	root.AddCommand(topics()...)
	root.SetHelpCommand(helpCommand())
	ownCompletion(root)
	ownUsage(root)
	root.SetArgs(loneHTML(args))
	err := isUnknown(root, args)
	if err == nil {
		err = root.Execute()
	}
	if err != nil {
		return fail(err, args, statusFailure)
	}
	return status
}

// helpCommand is cobra's, but that it fails for what is no command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about a command",
		ValidArgsFunction: completeTopics,
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0 && about == c.Root():
				return unknownCommand(about, args)
			case len(rest) > 0:
				return noArguments(about, rest)
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag() // as --help shows it
			return about.Help()
		},
		DisableFlagsInUseLine: true,
	}
}

// completeTopics completes what help tells something about.
func completeTopics(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if to, _, err := c.Root().Find(args); err == nil {
		for _, sub := range to.Commands() {
			told := sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand()
			if told && strings.HasPrefix(sub.Name(), prefix) {
				names = append(names, sub.Name()+"\t"+sub.Short)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// fail prints an error of a command line, and a command that fixes it if there is one.
func fail(err error, args []string, status int) int {
	var own interface {
		error
		ExitStatus() int
	}
	if errors.As(err, &own) {
		status = own.ExitStatus()
	} else if message, fix, ok := doctor.Explain(err, typed(args)); ok {
		say("%s", message)
		if fix != "" {
			fmt.Fprintf(os.Stderr, "  try: %s\n", human.Clean(fix))
		}
		return status
	}
	for _, err := range each(err) {
		text := inWords(err)
		if uid, ok := sandbox.ReadsAs(); ok && errors.Is(err, fs.ErrPermission) {
			text += fmt.Sprintf(" (with sudo, files are read as uid %d; --no-sandbox reads them as root)", uid)
		}
		say("%s", text)
	}
	return status
}

// mostSaid is how many columns a line for the user has at most: paths may have 4,096 bytes.
const mostSaid = 1000

// say prints one line for the user, with characters of the recorded system made safe to print.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "unspool: %s\n", human.Shorten(human.Clean(fmt.Sprintf(format, args...)), mostSaid))
}

// each splits an error of errors.Join.
func each(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, each(e)...)
	}
	return all
}
