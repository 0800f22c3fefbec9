package symbols

import "github.com/ianlancetaylor/demangle"

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

// Demangle returns the demangled name of a C++, Rust or D function: without parameters, as perf prints it.
// Other names are returned unchanged.
func Demangle(name string) string {
	if len(name) > maxMangled || len(name) < 3 {
		return name
	}
	if name[0] == '_' && name[1] == 'D' {
		if d, ok := demangleD(name); ok {
			return d
		}
		return name
	}
	switch {
	case name[0] == '_' && (name[1] == 'Z' || name[1] == 'R'), len(name) > 4 && name[:4] == "___Z":
	default:
		return name
	}
	return demangle.Filter(name, demangle.NoParams, demangle.MaxLength(14))
}
