package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// debugInformation says from where names, source lines and inlined functions of stripped programs can be had.
// No server is asked.
func (m *Environment) debugInformation() Check {
	c := Check{Name: "debug information"}
	var from []string
	if n := len(strings.Fields(m.Environ("DEBUGINFOD_URLS"))); n > 0 {
		from = append(from, "debuginfod (DEBUGINFOD_URLS)")
	}
	if readable(filepath.Join(m.Debug, ".build-id")) == nil {
		from = append(from, "files in "+m.Debug)
	}
	if len(from) > 0 {
		c.Detail = "there is " + strings.Join(from, ", and there are ")
		if !strings.HasPrefix(from[0], "debuginfod") {
			c.Detail = "there are " + from[0]
		}
		return c
	}
	c.State = Warning
	c.Detail = "neither debuginfod nor files in " + m.Debug + ": stripped programs have few names and no lines"
	urls, _ := filepath.Glob(filepath.Join(m.Etc, "debuginfod/*.urls"))
	install := m.debugPackages()
	switch {
	case len(urls) > 0:
		c.Detail += "; servers are in " + filepath.Join(m.Etc, "debuginfod") +
			", and DEBUGINFOD_URLS is not set (sudo removes it)"
		c.Fix = fmt.Sprintf(`export DEBUGINFOD_URLS="$(cat %s)"`, filepath.Join(m.Etc, "debuginfod/*.urls"))
	case install != "":
		c.Detail += "; packages with them can be installed"
		c.Fix = install
	default:
		c.Detail += "; set DEBUGINFOD_URLS to your distribution's server"
	}
	return c
}

// debugPackages is how a package with debug information is installed, "" where that is not known or the
// archive that has them is not among the sources.
func (m *Environment) debugPackages() string {
	for _, p := range []struct{ program, command string }{
		{"apt-get", "sudo apt-get install PACKAGE-dbgsym"},
		{"dnf", "sudo dnf debuginfo-install PACKAGE"},
		{"zypper", "sudo zypper install PACKAGE-debuginfo"},
	} {
		if _, err := m.LookPath(p.program); err != nil {
			continue
		}
		if p.program == "apt-get" && !m.aptHasDebug() {
			return ""
		}
		return p.command
	}
	return ""
}

// aptHasDebug reports whether the archive of debug packages is among apt's sources: suites like trixie-debug, or
// ddebs of Ubuntu.
func (m *Environment) aptHasDebug() bool {
	files, _ := filepath.Glob(filepath.Join(m.Etc, "apt/sources.list.d/*"))
	for _, path := range append(files, filepath.Join(m.Etc, "apt/sources.list")) {
		if ext := filepath.Ext(path); ext != ".list" && ext != ".sources" {
			continue
		}
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		text, err := readText(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(strings.TrimSpace(line), "#") &&
				(strings.Contains(line, "-debug") || strings.Contains(line, "ddebs")) {
				return true
			}
		}
	}
	return false
}
