package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version and commit are set by the Makefile.
var version, commit = "devel", ""

// showVersion makes --version print the version, and what the program was built from.
func showVersion(root *cobra.Command) {
	root.Version = version
	cobra.AddTemplateFunc("builtFrom", func() string {
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return ""
		}
		return builtFrom(commit, info)
	})
	root.SetVersionTemplate("unspool {{.Version}}\n{{builtFrom}}")
}

// builtFrom returns lines about a build: the commit, Go and its settings for the machine, and the modules. Without a
// commit, it is the one that Go has noted, if it has.
func builtFrom(commit string, info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	var b strings.Builder
	fmt.Fprintf(&b, "commit %s\n", cmp.Or(commit, settings["vcs.revision"], "unknown"))
	fmt.Fprintf(&b, "%s %s/%s\n", info.GoVersion, settings["GOOS"], settings["GOARCH"])
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		fmt.Fprintf(&b, "%s %s\n", m.Path, m.Version)
	}
	return b.String()
}
