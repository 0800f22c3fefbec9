package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"unspool/perfring"
)

// completeCommand completes programs in PATH, then the program's own
// arguments as files.
func completeCommand(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || strings.Contains(prefix, "/") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefix) && !e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

func completeEvents(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	names, how := perfring.EventNames(prefix), cobra.ShellCompDirectiveNoFileComp
	if len(names) == 1 && strings.HasSuffix(names[0], ":") {
		how |= cobra.ShellCompDirectiveNoSpace // the address of a breakpoint follows
	}
	return names, how
}

func completePIDs(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var pids []string
	_ = eachProcess(func(pid int, comm string) {
		if n := strconv.Itoa(pid); strings.HasPrefix(n, prefix) {
			pids = append(pids, n+"\t"+comm)
		}
	})
	return pids, cobra.ShellCompDirectiveNoFileComp
}

// completeProcesses completes process IDs, and names of processes.
func completeProcesses(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	values, how := completePIDs(c, args, prefix)
	var names []string
	_ = eachProcess(func(_ int, comm string) {
		if prefix != "" && strings.HasPrefix(comm, prefix) {
			names = append(names, comm)
		}
	})
	slices.Sort(names)
	return append(values, slices.Compact(names)...), how
}
