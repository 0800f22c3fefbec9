package compare

import (
	"cmp"
	"context"
	"os/exec"
	"strings"
	"time"
)

// Packages tells which package of the distribution a file belongs to, as dpkg or rpm say.
type Packages struct {
	known    map[string]string
	patience time.Duration // with one query, instead of packageTimeout
}

// Programs are those that Packages runs, if they are installed.
func Programs() []string { return []string{dpkgQuery, rpmQuery} }

const (
	dpkgQuery = "dpkg-query"
	rpmQuery  = "rpm"
)

// packageTimeout bounds one query, as a package manager may wait for the lock of another one.
const packageTimeout = 4 * time.Second

// Of returns the name and version of the package that owns the file at a path, "libc6 2.36-9"; "" when no
// package manager knows it.
func (p *Packages) Of(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, " (deleted)") {
		return ""
	}
	name, ok := p.known[path]
	if !ok {
		if p.known == nil {
			p.known = make(map[string]string)
		}
		if name = p.dpkg(path); name == "" {
			if owner, ok := p.ask(rpmQuery, "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE}", "--", path); ok {
				name = firstLine(owner)
			}
		}
		p.known[path] = name
	}
	return name
}

// dpkg asks Debian's package manager. Files have the names in their packages there, which may still be those
// from before /usr was merged. All names are one query, as each reads the lists of files of all packages.
func (p *Packages) dpkg(path string) string {
	owners, _ := p.ask(dpkgQuery, "-S", "--", path, strings.TrimPrefix(path, "/usr"), "/usr"+path)
	for line := range strings.Lines(owners) {
		owner, _, named := strings.Cut(line, ": ")
		if !named {
			continue
		}
		owner, _, _ = strings.Cut(owner, ",") // several may share it
		if version, ok := p.ask(dpkgQuery, "-W", "-f", "${Package} ${Version}", "--", owner); ok {
			return firstLine(version)
		}
	}
	return ""
}

// ask runs a command and returns what it prints, and whether it ended with success: dpkg-query prints the
// names that it has found also where it has not found others.
func (p *Packages) ask(name string, args ...string) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(p.patience, packageTimeout))
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return string(out), err == nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}
