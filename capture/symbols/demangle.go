package symbols

import (
	"regexp"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxMangled is the longest name that is demangled: the text of a mangled name can be exponentially longer.
const maxMangled = 16 << 10

// Name returns the demangled name of a function, shortened if the options say so.
func (s *Symbolizer) Name(mangled string) string {
	name := mangled
	s.Contain("mangled names", "their readable forms", func() {
		name = s.demangle(mangled)
		if s.options.Shorten && name != mangled {
			name = Shorten(name)
		}
	})
	return name
}

// Demangle returns the demangled name of a C++, Rust or D function: without parameters, as perf prints it, but with the
// marks of a copy or part of a function, as c++filt prints them: "app::run [clone .part.0]". Other names are returned
// unchanged.
func Demangle(name string) string {
	if len(name) > maxMangled || len(name) < 3 {
		return name
	}
	if name[0] == '_' && name[1] == 'D' {
		if d, ok := demangleD(name); ok {
			return d + clones(name)
		}
		return name
	}
	switch {
	case name[0] == '_' && (name[1] == 'Z' || name[1] == 'R'), len(name) > 4 && name[:4] == "___Z":
	default:
		return name
	}
	if d := demangle.Filter(name, demangle.NoParams, demangle.MaxLength(14)); d != name {
		return d + clones(name)
	}
	return name
}

var (
	// endings matches what compilers add to a mangled name. Old ones of Rust have dots in them, too.
	endings = regexp.MustCompile(`(?:\.[a-z_]+(?:\.[0-9]+)?)+$`)
	// cloned matches those of copies and parts of a function. Others, such as ".lto_priv.0" and ".llvm.1234", only make
	// a name unique.
	cloned = regexp.MustCompile(`\.(?:cold|constprop|eh|isra|part|__part)\b(?:\.[0-9]+)?`)
)

// clones marks which copy or part of a function a mangled name is of; it is "" for the function itself.
func clones(mangled string) string {
	if !strings.Contains(mangled, ".") {
		return ""
	}
	var marks strings.Builder
	for _, ending := range cloned.FindAllString(endings.FindString(mangled), -1) {
		marks.WriteString(" [clone " + ending + "]")
	}
	return marks.String()
}

// WithoutClones returns a demangled name without the marks of copies of the function.
func WithoutClones(name string) string {
	name, _, _ = strings.Cut(name, " [clone ")
	return name
}
