package compare

import (
	"context"
	"os/exec"
	"strings"
	"time"
)

// Packages tells which package of the distribution a file belongs to, as dpkg or rpm say.
type Packages struct {
	known map[string]string
}

// packageTimeout bounds one question: a package manager may wait for another's lock.
const packageTimeout = 2 * time.Second

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
		if name = dpkg(path); name == "" {
			name, _ = ask("rpm", "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE}", "--", path)
		}
		p.known[path] = name
	}
	return name
}

// dpkg asks Debian's package manager. It knows files by the names that packages give them, which may still be
// those of before /usr was merged.
func dpkg(path string) string {
	for _, name := range []string{path, strings.TrimPrefix(path, "/usr"), "/usr" + path} {
		found, ok := ask("dpkg-query", "-S", "--", name)
		owner, _, named := strings.Cut(found, ": ")
		if !ok || !named {
			continue
		}
		owner, _, _ = strings.Cut(owner, ",") // several may share it
		if version, ok := ask("dpkg-query", "-W", "-f", "${Package} ${Version}", "--", owner); ok {
			return version
		}
	}
	return ""
}

// ask runs a command and returns the first line that it prints.
func ask(name string, args ...string) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), packageTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), err == nil
}
