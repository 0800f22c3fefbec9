package symbols

import "github.com/ianlancetaylor/demangle"

// maxMangled is the longest name that is demangled: the text of a mangled name can be exponentially longer.
const maxMangled = 16 << 10

// Name returns the name that people know a function by, shortened on request.
func (s *Symbolizer) Name(mangled string) string {
	name := Demangle(mangled)
	if s.options.Shorten && name != mangled {
		return Shorten(name)
	}
	return name
}

// Demangle returns the name that people know a C++, Rust or D function by: without parameters, as perf prints it. Other names are
// returned as they are.
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
