package human

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// JSON returns a writer for JSON text that writes to w and replaces characters that are not printed:
// control characters from 0x7f on, marks that change the direction of text, line separators. Names of the
// recorded system may hold them, and a terminal or an editor would interpret them. They become \u escapes,
// which readers of JSON turn back.
//
// Text that is written in pieces may be cut inside a character, but the last piece must end with a whole one.
func JSON(w io.Writer) io.Writer { return &jsonText{w: w} }

const del = 0x7f // is escaped by nobody else, unlike the control characters below

type jsonText struct {
	w    io.Writer
	rest []byte // of a character whose end is still to come
	out  []byte
}

func (j *jsonText) Write(p []byte) (int, error) {
	n := len(p)
	if len(j.rest) > 0 {
		p = append(j.rest, p...)
		j.rest = nil
	}
	j.out = j.out[:0]
	done := 0 // bytes of p that are in out
	for i := 0; i < len(p); {
		if p[i] < utf8.RuneSelf && p[i] != del {
			i++
			continue
		}
		if !utf8.FullRune(p[i:]) {
			j.rest = append(j.rest, p[i:]...)
			p = p[:i]
			break
		}
		r, size := utf8.DecodeRune(p[i:])
		if !unicode.IsPrint(r) && r != utf8.RuneError {
			j.out = append(j.out, p[done:i]...)
			j.out = appendEscape(j.out, r)
			done = i + size
		}
		i += size
	}
	text := p[done:]
	if done > 0 {
		j.out = append(j.out, text...)
		text = j.out
	}
	if _, err := j.w.Write(text); err != nil {
		return 0, err
	}
	return n, nil
}

// appendEscape appends a character as JSON escapes it: in UTF-16 (RFC 8259, section 7).
func appendEscape(b []byte, r rune) []byte {
	if r < 0x10000 {
		return fmt.Appendf(b, `\u%04x`, r)
	}
	r -= 0x10000
	return fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
}
