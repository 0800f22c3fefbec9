package limits

// A line is text in one place. What there is no room for is left out.
type line struct {
	text [1 << 10]byte
	n    int
}

// String returns a copy.
func (l *line) String() string { return string(l.text[:l.n]) }

func (l *line) add(s string) *line {
	l.n += copy(l.text[l.n:], s)
	return l
}

func (l *line) bytes(b []byte) *line {
	l.n += copy(l.text[l.n:], b)
	return l
}

// number adds a number in decimal.
func (l *line) number(n uint64) *line {
	var digits [20]byte
	at := len(digits)
	for first := true; first || n > 0; first = false {
		at--
		digits[at] = byte('0' + n%10)
		n /= 10
	}
	return l.bytes(digits[at:])
}
