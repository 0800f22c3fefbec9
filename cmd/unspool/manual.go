package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"unspool/capture/format/export"
	"unspool/capture/output/human"
	"unspool/perfring"
)

// manual holds the help topics (.txt) and what the manual page of a command says in addition to its help
// (.md).
//
//go:embed manual
var manual embed.FS

// topics returns the help topics, which are not commands: 'unspool help NAME' prints the text of manual/NAME.txt.
func topics() (all []*cobra.Command) {
	for _, t := range []struct{ name, short string }{
		{"events", "What can be sampled with -e"},
		{"formats", "Which formats there are, and how files are written"},
		{"json", "What --stats and --json write"},
		{"kernels", "Which kernels and releases are tested, and what older ones lack"},
		{"limits", "What unspool cannot do"},
		{"names", "Where names of functions come from"},
		{"security", "What is trusted, bounded and confined"},
	} {
		text, err := manual.ReadFile("manual/" + t.name + ".txt")
		if err != nil {
			panic(err) // it is part of the program
		}
		long := strings.TrimSpace(string(text))
		switch t.name {
		case "events":
			long = strings.Replace(long, "NAMES", eventNames(), 1)
			long = strings.Replace(long, "MODIFIERS", modifierLines(), 1)
		case "formats":
			long = strings.Replace(long, "FORMATS", formatLines(), 1)
		}
		all = append(all, &cobra.Command{
			Use:                   t.name,
			Short:                 t.short,
			Long:                  long,
			DisableFlagsInUseLine: true,
		})
	}
	return all
}

// eventNames returns the names of events, in lines like those of manual/events.txt.
func eventNames() string {
	const columns = 78
	known := slices.DeleteFunc(perfring.EventNames(""), func(n string) bool { return strings.HasSuffix(n, ":") })
	return strings.Join(human.Wrap(strings.Join(known, " "), columns-2), "\n  ")
}

// manCommand writes the manual pages; `make install` calls it.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a folder",
		Hidden: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{c.CommandPath(), errors.New("give one folder to write the pages into")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return writeManual(c.Root(), args[0]) },
	}
}

// writeManual writes a page for the program and for each of its commands and help topics.
func writeManual(root *cobra.Command, folder string) error {
	if _, err := os.ReadDir(folder); err != nil {
		return err // once, and not for each page
	}
	root.DisableAutoGenTag = true
	pages := []*cobra.Command{root}
	for _, c := range root.Commands() {
		switch {
		case c.Name() == "completion":
			c.Hidden = true // its help says how to install it in a shell, which `make install` does
		case c.Name() != "help" && !c.Hidden:
			pages = append(pages, c)
		}
	}
	var errs []error
	for _, c := range pages {
		text, err := manualPage(c)
		if err == nil {
			name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
			err = os.WriteFile(filepath.Join(folder, name), text, 0o644)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// noValue stands for the value of an option that has none, and is removed from the finished page.
const noValue = "NOVALUE"

// manualPage is a command's page. It changes the command, which cannot be run any more.
func manualPage(c *cobra.Command) ([]byte, error) {
	more, err := manual.ReadFile("manual/" + c.Name() + ".md")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if c.Flags().Lookup("sandbox") != nil {
		confinement, err := manual.ReadFile("manual/confinement.md")
		if err != nil {
			return nil, err
		}
		more = append(more, confinement...)
	}
	if c.IsAdditionalHelpTopicCommand() {
		c.Long = indent(c.Long)
	}
	c.Long = verbatim(c.Long) + "\n\n" + string(more)
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	c.Flags().VisitAll(showValue)
	var page bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Source: "unspool " + version, Manual: "unspool"}
	if err := doc.GenMan(c, header, &page); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(page.Bytes(), []byte("="+noValue), nil), nil
}

// verbatim indents the lines of tables by four more, so that Markdown does not fill them: help indents them
// by two.
func verbatim(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = "    " + line
		}
	}
	return strings.Join(lines, "\n")
}

// indent indents all lines like those of a table.
func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// shown is an option's value that the page shows without quotes.
type shown struct{ pflag.Value }

func (shown) Type() string { return "" }

// showValue makes the page show what an option takes, as help does, instead of its default.
func showValue(f *pflag.Flag) {
	name, usage := pflag.UnquoteUsage(f)
	if f.Value.Type() == "bool" {
		name, f.NoOptDefVal = noValue, ""
		if f.DefValue == "true" { // the option is for turning it off
			name = "false"
		}
	}
	switch {
	case f.DefValue == "", f.DefValue == "0", f.DefValue == "[]", f.Value.Type() == "bool":
	case !strings.Contains(usage, "default"):
		usage += " (default " + f.DefValue + ")"
	}
	f.Value, f.DefValue, f.Usage = shown{f.Value}, name, usage
}

// modifierLines returns the modifiers of events, in lines like those of manual/events.txt.
func modifierLines() string {
	var lines []string
	for _, m := range perfring.Modifiers() {
		lines = append(lines, fmt.Sprintf("%c   %s", m.Letter, m.Means))
	}
	return strings.Join(lines, "\n  ")
}

// formatLines returns the lines of the formats for manual/formats.txt.
func formatLines() string {
	const columns, indent = 100, 36 // where the third column begins
	var b strings.Builder
	for _, f := range export.Formats() {
		endings := strings.Join(f.Endings, ", ")
		if f.Name == export.Perf.Name {
			endings += ", most others"
		}
		text := strings.Join(human.Wrap(f.About+". "+f.Holds, columns-indent), "\n"+strings.Repeat(" ", indent))
		fmt.Fprintf(&b, "  %-20s %-12s %s\n", endings, f.Name, text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
