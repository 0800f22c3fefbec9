package symbols

import "strings"

// Shorten replaces the arguments of templates and of Rust's generics in a demangled name by dots:
// std::map<int, long>::insert becomes std::map<...>::insert. The brackets of Rust's <T as Trait> are not a
// list of arguments, and stay.
func Shorten(name string) string {
	if !strings.Contains(name, "<") {
		return name
	}
	var short strings.Builder
	for i := 0; i < len(name); {
		next := token(name, i)
		if name[i] == '<' && next == i+1 && followsTemplate(name, i) {
			end, ok := listEnd(name, i)
			if !ok {
				return name
			}
			if end > i+2 {
				short.WriteString("<...>")
				i = end
				continue
			}
		}
		short.WriteString(name[i:next])
		i = next
	}
	return short.String()
}

// operators are the operators with an angle bracket, each before any shorter one that it begins with.
var operators = [...]string{"<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">"}

// token returns the end of the token at i: the whole name of an operator function, an arrow, a character
// in quotes, or one byte.
func token(name string, i int) int {
	const operator = "operator"
	rest := name[i:]
	switch {
	case strings.HasPrefix(rest, operator) && (i == 0 || !isIdentifier(name[i-1])):
		for _, o := range operators {
			if strings.HasPrefix(rest[len(operator):], o) {
				return i + len(operator) + len(o)
			}
		}
		symbol := rest[len(operator):]
		return len(name) - len(strings.TrimLeft(symbol, "+-*/%^&|~!=,"))
	case strings.HasPrefix(rest, "->"):
		return i + 2
	case len(rest) >= 3 && rest[0] == '\'' && rest[2] == '\'':
		return i + 3
	}
	return i + 1
}

func isIdentifier(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' ||
		c >= 'A' && c <= 'Z'
}

// followsTemplate reports whether the bracket at i follows something that can have arguments: a name, an
// operator or Rust's "::". A comparison has blanks around it.
func followsTemplate(name string, i int) bool {
	before := name[:i]
	if n := strings.TrimSuffix(before, " "); n != before {
		return endsInOperator(n)
	}
	return i > 0 && (isIdentifier(name[i-1]) || strings.IndexByte(")]}", name[i-1]) >= 0) ||
		strings.HasSuffix(before, "::") || endsInOperator(before)
}

// endsInOperator reports whether the name of an operator function ends a name.
func endsInOperator(name string) bool {
	const longest = len("operator<=>")
	name = name[max(0, len(name)-longest-1):]
	at := strings.LastIndex(name, "operator")
	return at >= 0 && at+len("operator") < len(name) && token(name, at) == len(name)
}

// listEnd returns the end of the list whose opening bracket is at i. Angle brackets in parentheses may be
// comparisons, which do not come in pairs.
func listEnd(name string, i int) (end int, ok bool) {
	var open []byte
	for i < len(name) {
		next := token(name, i)
		if next > i+1 {
			i = next
			continue
		}
		switch c := name[i]; c {
		case '<', '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			for len(open) > 0 && open[len(open)-1] == '<' {
				open = open[:len(open)-1]
			}
			if len(open) == 0 {
				return 0, false
			}
			open = open[:len(open)-1]
		case '>':
			if open[len(open)-1] == '<' {
				if open = open[:len(open)-1]; len(open) == 0 {
					return next, true
				}
			}
		}
		i = next
	}
	return 0, false
}
