package report

const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	blue   = "\x1b[94m" // the bright one: the other one is hard to read on black
	dim    = "\x1b[2m"
	strong = "\x1b[1m"
	plain  = "\x1b[0m"
)

func (out *printer) paint(code, s string) string {
	if !out.o.Colour || code == "" || s == "" {
		return s
	}
	return code + s + plain
}

func (out *printer) bold(s string) string { return out.paint(strong, s) }
func (out *printer) dim(s string) string  { return out.paint(dim, s) }

// Heat is the ANSI escape sequence for the colour of a share in percent, "" for none.
func Heat(percent float64) string {
	switch {
	case percent >= 20:
		return red
	case percent >= 5:
		return yellow
	}
	return ""
}
