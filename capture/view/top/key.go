package top

import (
	"strings"
	"unicode/utf8"
)

// A key is what was typed: a character, or one of the keys below.
type key rune

const (
	keyUp key = -1 - iota
	keyDown
	keyLeft
	keyRight
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyEnter
	keyEscape
	keyBackspace
	keyInterrupt // Ctrl-C
	keyOther     // one that means nothing here
)

// sequences are those that terminals send for keys (xterm's Control Sequences, "PC-Style Function Keys", and
// the VT220's), without the escape character.
var sequences = map[string]key{
	"[A": keyUp, "[B": keyDown, "[C": keyRight, "[D": keyLeft, "[H": keyHome, "[F": keyEnd,
	"OA": keyUp, "OB": keyDown, "OC": keyRight, "OD": keyLeft, "OH": keyHome, "OF": keyEnd,
	"[5~": keyPageUp, "[6~": keyPageDown, "[1~": keyHome, "[4~": keyEnd, "[7~": keyHome, "[8~": keyEnd,
}

// keys returns the keys in what was read from a terminal at once. An escape character that nothing follows is
// the Esc key: terminals send a sequence in one piece.
func keys(read []byte) (all []key) {
	for len(read) > 0 {
		k, n := nextKey(read)
		all = append(all, k)
		read = read[n:]
	}
	return all
}

// nextKey returns the first key, and of how many bytes it is.
func nextKey(read []byte) (k key, n int) {
	switch read[0] {
	case '\r', '\n':
		return keyEnter, 1
	case 0x7f, '\b':
		return keyBackspace, 1
	case 3:
		return keyInterrupt, 1
	case '\t':
		return '\t', 1
	case 0x1b:
		return escape(read)
	}
	r, n := utf8.DecodeRune(read)
	if r == utf8.RuneError || r < ' ' {
		return keyOther, n
	}
	return key(r), n
}

// escape returns the key of an escape sequence: CSI or SS3 (ECMA-48), or the Esc key.
func escape(read []byte) (k key, n int) {
	if len(read) < 2 || !strings.ContainsRune("[O", rune(read[1])) {
		return keyEscape, 1
	}
	n = 2
	for n < len(read) && read[n] >= 0x20 && read[n] < 0x40 {
		n++
	}
	if n < len(read) {
		n++
	}
	if k, ok := sequences[string(read[1:n])]; ok {
		return k, n
	}
	return keyOther, n
}
