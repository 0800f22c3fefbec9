package symbols

import "strings"

// demangleD returns the name of a D function, without its parameters and with dots for the arguments of
// templates: the mangled _D4core5array__T6appendTaZQkFNaAaZv is core.array.append!(...).append. The
// grammar is in "Name Mangling" in the D ABI. The parts that are left out have to be read as well, to find
// out where the name goes on. It is here as the package that reads names of C++ and Rust,
// github.com/ianlancetaylor/demangle, does not read those of D.
func demangleD(mangled string) (string, bool) {
	if mangled == "_Dmain" {
		return "D main", true
	}
	text, _, _ := strings.Cut(mangled, ".") // a clone's suffix
	d := dName{text: text, at: len("_D"), left: 16 * len(text)}
	if !strings.HasPrefix(text, "_D") || !d.qualified(0, true) {
		return "", false
	}
	// The type follows, or Z if there is none.
	if d.end() || d.accept('Z') && d.end() {
		return d.name.String(), true
	}
	d.method()
	return d.name.String(), d.typ(0) && d.end()
}

// dName reads a mangled name.
type dName struct {
	text string
	at   int
	left int // steps
	name strings.Builder
}

// maxDNesting bounds the nesting of types.
const maxDNesting = 64

func (d *dName) end() bool { return d.at >= len(d.text) }

// peek is the byte n positions further on, 0 beyond the end.
func (d *dName) peek(n int) byte {
	if d.at+n >= len(d.text) {
		return 0
	}
	return d.text[d.at+n]
}

func (d *dName) accept(c byte) bool {
	if d.peek(0) != c {
		return false
	}
	d.at++
	return true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// number reads a decimal number, of the twenty digits that 64 bits can have at most.
func (d *dName) number() (n int, ok bool) {
	const digits = 20
	for i := 0; i < digits && isDigit(d.peek(0)); i++ {
		n, ok = min(10*n+int(d.peek(0)-'0'), 1<<32), true // larger numbers are never valid
		d.at++
	}
	return n, ok
}

// back reads a back reference: Q and a number in letters, the last of which is lower case. It returns
// the place that the reference leads to.
func (d *dName) back() (to int, ok bool) {
	from, n := d.at, 0
	if !d.accept('Q') {
		return 0, false
	}
	const digits = 7
	for range digits {
		c := d.peek(0)
		d.at++
		switch {
		case c >= 'A' && c <= 'Z':
			n = 26*n + int(c-'A')
		case c >= 'a' && c <= 'z':
			n = 26*n + int(c-'a')
			return from - n, n > 0 && from-n >= 0
		default:
			return 0, false
		}
	}
	return 0, false
}

// identifier reads a length and as many bytes.
func (d *dName) identifier() (string, bool) {
	n, ok := d.number()
	if !ok || n == 0 || n > len(d.text)-d.at {
		return "", false
	}
	d.at += n
	return d.text[d.at-n : d.at], true
}

// isName reports whether a name follows: an identifier, a template, or a back reference to an identifier.
func (d *dName) isName() bool {
	if d.peek(0) != 'Q' {
		return isDigit(d.peek(0)) || d.isTemplate()
	}
	at := d.at
	to, ok := d.back()
	d.at = at
	return ok && isDigit(d.text[to])
}

func (d *dName) isTemplate() bool {
	return d.peek(0) == '_' && d.peek(1) == '_' && (d.peek(2) == 'T' || d.peek(2) == 'U')
}

// qualified reads a run of names, between which there may be the parameters of functions that contain the
// next name. The names are kept if keep is set.
func (d *dName) qualified(depth int, keep bool) bool {
	for first := true; ; first = false {
		name, ok := d.symbol(depth)
		if !ok {
			return false
		}
		if keep && name != "" {
			if d.name.Len()+len(name) > maxMangled {
				return false
			}
			if !first {
				d.name.WriteByte('.')
			}
			d.name.WriteString(name)
		}
		if d.isName() {
			continue
		}
		at := d.at
		d.method()
		if !d.function(depth) || !d.isName() {
			d.at = at
			return true
		}
	}
}

// symbol reads one name.
func (d *dName) symbol(depth int) (string, bool) {
	if d.left--; d.left < 0 || depth > maxDNesting {
		return "", false
	}
	if d.accept('0') { // without a name
		return "", true
	}
	if d.peek(0) == 'Q' {
		to, ok := d.back()
		if !ok {
			return "", false
		}
		at := d.at
		d.at = to
		name, ok := d.identifier()
		d.at = at
		return special(name), ok
	}
	if !d.isTemplate() {
		at := d.at
		n, ok := d.number()
		if !ok || !d.isTemplate() {
			d.at = at
			name, ok := d.identifier()
			return special(name), ok
		}
		if n > len(d.text)-d.at { // before 2017, templates had a length
			return "", false
		}
	}
	d.at += len("__T")
	name, ok := d.symbol(depth + 1)
	if !ok {
		return "", false
	}
	for !d.accept('Z') {
		if !d.argument(depth + 1) {
			return "", false
		}
	}
	return name + "!(...)", true
}

// special is what a function is called in the source.
func special(name string) string {
	switch name {
	case "__ctor":
		return "this"
	case "__dtor":
		return "~this"
	case "__postblit":
		return "this(this)"
	}
	return name
}

// argument reads an argument of a template.
func (d *dName) argument(depth int) bool {
	d.accept('H')
	switch {
	case d.accept('T'):
		return d.typ(depth)
	case d.accept('V'):
		return d.typ(depth) && d.value(depth)
	case d.accept('S'):
		at := d.at
		return d.qualified(depth, false) || d.measured(at, depth)
	case d.accept('X'):
		_, ok := d.identifier()
		return ok
	}
	return false
}

// measured reads a symbol in the form used before 2017: with a length, whose digits run into those of its
// first name.
func (d *dName) measured(at, depth int) bool {
	n := 0
	for ; at < len(d.text) && isDigit(d.text[at]); at++ {
		n = 10*n + int(d.text[at]-'0')
		end := at + 1 + n
		if end > len(d.text) {
			return false
		}
		d.at = at + 1
		if strings.HasPrefix(d.text[d.at:], "_D") {
			d.at += len("_D")
			if d.qualified(depth, false) {
				d.at = end // its type is not needed
				return true
			}
		} else if d.qualified(depth, false) && d.at == end {
			return true
		}
	}
	return false
}

// value reads a constant.
func (d *dName) value(depth int) bool {
	if d.left--; d.left < 0 || depth > maxDNesting {
		return false
	}
	c := d.peek(0)
	if isDigit(c) {
		_, ok := d.number()
		return ok
	}
	d.at++
	switch c {
	case 'n':
		return true
	case 'i', 'N':
		_, ok := d.number()
		return ok
	case 'e':
		return d.float()
	case 'c':
		return d.float() && d.accept('c') && d.float()
	case 'a', 'w', 'd': // a string: its length and two digits for each byte
		n, ok := d.number()
		if !ok || !d.accept('_') || 2*n > len(d.text)-d.at {
			return false
		}
		d.at += 2 * n
		return true
	case 'A', 'S':
		n, ok := d.number()
		for ; ok && n > 0; n-- {
			ok = d.value(depth + 1)
		}
		return ok
	}
	return false
}

// float reads a number in hexadecimal.
func (d *dName) float() bool {
	for _, word := range []string{"NAN", "INF", "NINF"} {
		if strings.HasPrefix(d.text[d.at:], word) {
			d.at += len(word)
			return true
		}
	}
	d.accept('N')
	for isDigit(d.peek(0)) || d.peek(0) >= 'A' && d.peek(0) <= 'F' {
		d.at++
	}
	if !d.accept('P') {
		return false
	}
	d.accept('N')
	_, ok := d.number()
	return ok
}

// method reads the mark of a function with a hidden this, which is before its type, and the modifiers.
func (d *dName) method() {
	if d.accept('M') {
		d.modifiers()
	}
}

// modifiers reads const, immutable, shared and inout.
func (d *dName) modifiers() {
	for {
		switch c := d.peek(0); {
		case c == 'x', c == 'y', c == 'O':
			d.at++
		case c == 'N' && d.peek(1) == 'g':
			d.at += 2
		default:
			return
		}
	}
}

// typ reads a type.
func (d *dName) typ(depth int) bool {
	if d.left--; d.left < 0 || depth > maxDNesting {
		return false
	}
	d.modifiers()
	c := d.peek(0)
	switch c {
	case 'Q':
		_, ok := d.back()
		return ok
	case 'F', 'U', 'W', 'V', 'R', 'Y':
		return d.function(depth) && d.typ(depth+1)
	}
	d.at++
	switch c {
	case 'A', 'P':
		return d.typ(depth + 1)
	case 'G':
		_, ok := d.number()
		return ok && d.typ(depth+1)
	case 'H': // the key, then the value
		if !d.typ(depth + 1) {
			return false
		}
		return d.typ(depth + 1)
	case 'C', 'S', 'E', 'T', 'I':
		return d.qualified(depth+1, false)
	case 'D':
		d.modifiers()
		return d.typ(depth + 1)
	case 'B':
		n, ok := d.number()
		for ; ok && n > 0; n-- {
			ok = d.typ(depth + 1)
		}
		return ok
	case 'N':
		return d.accept('n') || d.accept('h') && d.typ(depth+1)
	case 'z':
		return d.accept('i') || d.accept('k')
	}
	return c != 0 && strings.IndexByte("vghstiklmfdeopjqrcbauwn", c) >= 0
}

// function reads a function's type up to its return type.
func (d *dName) function(depth int) bool {
	if c := d.peek(0); c == 0 || strings.IndexByte("FUWVRY", c) < 0 {
		return false
	}
	d.at++
	for d.peek(0) == 'N' && d.peek(1) != 0 && strings.IndexByte("abcdefijlm", d.peek(1)) >= 0 {
		d.at += 2
	}
	return d.parameters(depth)
}

// parameters reads parameters up to their end.
func (d *dName) parameters(depth int) bool {
	for {
		switch d.peek(0) {
		case 'X', 'Y', 'Z':
			d.at++
			return true
		}
		for { // scope, return, in, out, ref, lazy
			if c := d.peek(0); c == 'N' && d.peek(1) >= 'j' && d.peek(1) <= 'l' {
				d.at += 2
			} else if c == 'M' || c >= 'I' && c <= 'L' {
				d.at++
			} else {
				break
			}
		}
		if !d.typ(depth + 1) {
			return false
		}
	}
}
