package perfring

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EventNames returns the names of events that begin with prefix, sorted, for the completion of command
// lines. Tracepoints, if tracefs can be read, are among them once the prefix has their group.
func EventNames(prefix string) []string { return hostSystem.eventNames(prefix) }

func (sys system) eventNames(prefix string) []string {
	if strings.HasPrefix(prefix, breakpointPrefix) {
		return accesses(prefix)
	}
	if group, _, ok := strings.Cut(prefix, ":"); ok {
		if strings.Contains(group, "/") {
			return nil
		}
		var names []string
		for _, root := range sys.tracefs {
			events, _ := os.ReadDir(filepath.Join(root, "events", group))
			for _, e := range events {
				if name := group + ":" + e.Name(); e.IsDir() && strings.HasPrefix(name, prefix) {
					names = append(names, name)
				}
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	names := append(knownEventNames(), breakpointPrefix)
	slices.Sort(names)
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) })
}

// accesses completes the name of a breakpoint behind its address.
func accesses(prefix string) []string {
	address, access, ok := strings.Cut(prefix[len(breakpointPrefix):], ":")
	if !ok || address == "" {
		return nil
	}
	var names []string
	for _, a := range []string{"rw", "w", "x"} {
		if strings.HasPrefix(a, access) {
			names = append(names, breakpointPrefix+address+":"+a)
		}
	}
	return names
}
