package inputs

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A Change says how the bytes of a target's inputs are to be changed.
type Change func(*mutator)

// In makes three of four changes in the places that the function names: pairs of a beginning and an end.
// It is called for each seed, and for each input that is kept.
func In(places func(b []byte) [][2]int) Change {
	return func(m *mutator) { m.named = places }
}

// Repaired calls a function for seven of eight inputs that are changed. It puts right what would have the
// parser stop at once, as checksums, in place.
func Repaired(repair func(b []byte)) Change {
	return func(m *mutator) { m.repair = repair }
}

// An entry is a seed, or an input that is worth changing.
type entry struct {
	args   []any
	places [][][2]int // for each argument
}

type mutator struct {
	source *rand.PCG
	rnd    *rand.Rand
	pool   []entry
	held   int // bytes of the pool
	named  func(b []byte) [][2]int
	repair func(b []byte)
	args   []any
	buffer [][]byte // for each argument
}

func (m *mutator) placesOf(b []byte) [][2]int {
	if m.named == nil {
		return nil
	}
	var places [][2]int
	for _, p := range m.named(b) {
		if 0 <= p[0] && p[0] < p[1] && p[1] <= len(b) {
			places = append(places, p)
		}
	}
	return places
}

// change is an entry of the pool with one to eight changes.
func (m *mutator) change() []any {
	// One of two is among the newest sixteen.
	from := 0
	if n := len(m.pool); n > 16 && m.rnd.Uint32()&1 == 0 {
		from = n - 16
	}
	e := &m.pool[from+m.rnd.IntN(len(m.pool)-from)]
	m.args = append(m.args[:0], e.args...)
	for len(m.buffer) < len(e.args) {
		m.buffer = append(m.buffer, nil)
	}
	for i, v := range m.args {
		if b, ok := v.([]byte); ok { // a target may write to its input
			m.buffer[i] = append(m.buffer[i][:0], b...)
			m.args[i] = m.buffer[i]
		}
	}
	for range 1 + bits.TrailingZeros64(m.rnd.Uint64()|1<<7) {
		i := m.rnd.IntN(len(m.args))
		switch v := m.args[i].(type) {
		case []byte:
			m.buffer[i] = m.bytes(v, e.places[i], i)
			m.args[i] = m.buffer[i]
		case string:
			m.buffer[i] = m.bytes(append(m.buffer[i][:0], v...), nil, i)
			m.args[i] = string(m.buffer[i])
		case bool:
			m.args[i] = m.rnd.Uint32()&1 == 0
		case uint8:
			m.args[i] = uint8(m.number(uint64(v)))
		case uint16:
			m.args[i] = uint16(m.number(uint64(v)))
		case uint32:
			m.args[i] = uint32(m.number(uint64(v)))
		case uint64:
			m.args[i] = m.number(v)
		case int:
			m.args[i] = int(m.number(uint64(v)))
		case int64:
			m.args[i] = int64(m.number(uint64(v)))
		default:
			panic("inputs: an argument of another type")
		}
	}
	for i, v := range m.args {
		b, ok := v.([]byte)
		if !ok {
			continue
		}
		if m.repair != nil && m.rnd.Uint32()&7 != 0 {
			m.repair(b)
		}
		m.args[i] = b[:len(b):len(b)] // what a target appends is not written behind it
	}
	return m.args
}

// number is another one than v: near it, at the edges of a type, a word of the input's bytes, or anything.
func (m *mutator) number(v uint64) uint64 {
	r := m.rnd.Uint64()
	switch r >> 4 & 7 {
	case 0, 1:
		return v + r>>8&31 - 16
	case 2:
		return v ^ 1<<(r>>8&63)
	case 3:
		return edge(r >> 8)
	case 4:
		return r >> 8 & 0xff
	case 5:
		return m.rnd.Uint64() >> (r >> 8 & 63)
	}
	for _, a := range m.args {
		if b, ok := a.([]byte); ok && len(b) >= 8 {
			return binary.LittleEndian.Uint64(b[m.rnd.IntN(len(b)-7):])
		}
	}
	return ^v
}

// edge is a power of two, one less or more, or their negation.
func edge(r uint64) uint64 {
	v := uint64(1)<<(r&63) + r>>6&3 - 1
	if r>>8&3 == 0 {
		v = -v
	}
	return v
}

// bytes changes b, which is m's, at one place.
func (m *mutator) bytes(b []byte, places [][2]int, arg int) []byte {
	if len(b) == 0 {
		return m.insert(b, 0, m.piece(arg))
	}
	from, to := 0, len(b)
	if len(places) > 0 && m.rnd.Uint32()&3 != 0 {
		p := places[m.rnd.IntN(len(places))]
		if p[0] < len(b) {
			from, to = p[0], min(p[1], len(b))
		}
	}
	at := from + m.rnd.IntN(to-from)
	switch r := m.rnd.Uint64(); r >> 8 & 15 {
	case 0, 1:
		b[at] ^= 1 << (r & 7)
	case 2:
		b[at] = byte(r)
	case 3:
		b[at] += byte(r&15) - 8
	case 4, 5, 6:
		m.word(b, from+(at-from)&^7, r)
	case 7:
		m.word(b, at, r)
	case 8:
		return append(b[:at], b[min(at+m.length(), len(b)):]...)
	case 9:
		n := min(m.length(), len(b)-at)
		return m.insert(b, at, append([]byte(nil), b[at:at+n]...)) // the same again
	case 10:
		other := m.rnd.IntN(len(b))
		copy(b[at:min(at+m.length(), len(b))], b[other:])
	case 11:
		return m.insert(b, at, m.piece(arg))
	case 12:
		copy(b[at:], m.piece(arg))
	case 13:
		clear(b[at:min(at+m.length(), len(b))])
	case 14:
		return m.digits(b, at, r)
	case 15:
		if r&7 == 0 {
			return b[:at]
		}
		copy(b[at:], binary.AppendUvarint(nil, edge(m.rnd.Uint64())))
	}
	return b
}

// word puts an edge or a sum in place of a word of 2, 4 or 8 bytes.
func (m *mutator) word(b []byte, at int, r uint64) {
	size := 2 << (r >> 12 % 3)
	if at+size > len(b) {
		return
	}
	var w [8]byte
	copy(w[:], b[at:at+size])
	v := binary.LittleEndian.Uint64(w[:])
	switch r >> 16 & 3 {
	case 0, 1:
		v += r>>20&127 - 64
	case 2:
		v = edge(r >> 20)
	case 3:
		v = r >> 20 & 0xff
	}
	binary.LittleEndian.PutUint64(w[:], v)
	if r>>62 == 0 {
		binary.BigEndian.PutUint64(w[:], v<<(64-8*size))
	}
	copy(b[at:], w[:size])
}

// digits puts another number in place of the next one in a text.
func (m *mutator) digits(b []byte, at int, r uint64) []byte {
	begin := strings.IndexAny(string(b[at:min(at+64, len(b))]), "0123456789abcdef")
	if begin < 0 {
		return b
	}
	begin += at
	end := begin + 1
	for end < len(b) && strings.IndexByte("0123456789abcdef", b[end]) >= 0 {
		end++
	}
	base := 10 + int(r&1)*6
	text := strconv.AppendUint(nil, edge(m.rnd.Uint64()), base)
	return m.insert(append(b[:begin], b[end:]...), begin, text)
}

// length is a small one, mostly.
func (m *mutator) length() int {
	return 1 + m.rnd.IntN(1<<(3+m.rnd.IntN(7)))
}

// piece is a part of the same argument of another entry, or any bytes.
func (m *mutator) piece(arg int) []byte {
	n := m.length()
	switch v := m.pool[m.rnd.IntN(len(m.pool))].args[arg].(type) {
	case []byte:
		if len(v) > 0 && m.rnd.Uint32()&3 != 0 {
			at := m.rnd.IntN(len(v))
			return v[at:min(at+n, len(v))]
		}
	case string:
		if len(v) > 0 && m.rnd.Uint32()&3 != 0 {
			at := m.rnd.IntN(len(v))
			return []byte(v[at:min(at+n, len(v))])
		}
	}
	piece := make([]byte, n)
	for i := range piece {
		piece[i] = byte(m.rnd.Uint32())
	}
	return piece
}

// insert puts a piece in at a place, unless that is long by now.
func (m *mutator) insert(b []byte, at int, piece []byte) []byte {
	if len(b)+len(piece) > 256<<10 {
		return b
	}
	n := len(b)
	b = append(b, piece...)
	copy(b[at+len(piece):], b[at:n])
	copy(b[at:], piece)
	return b
}
