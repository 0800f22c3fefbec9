package main

import (
	"os"
	"path/filepath"
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
	return perfring.EventNames(prefix), cobra.ShellCompDirectiveNoFileComp
}

func completePIDs(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var pids []string
	dirs, _ := filepath.Glob("/proc/" + "[0-9]*")
	for _, dir := range dirs {
		pid := filepath.Base(dir)
		if _, err := strconv.Atoi(pid); err != nil || !strings.HasPrefix(pid, prefix) {
			continue
		}
		if comm, err := os.ReadFile(dir + "/comm"); err == nil {
			pids = append(pids, pid+"\t"+strings.TrimSpace(string(comm)))
		}
	}
	return pids, cobra.ShellCompDirectiveNoFileComp
}
