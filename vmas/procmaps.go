package vmas

import "bytes"

// parseMapsLine reads one line of /proc/PID/maps, without its newline (fs/proc/task_mmu.c,
// show_map_vma):
//
//	7f1c2a400000-7f1c2a426000 r--p 00000000 fe:01 1048601        /usr/lib/libc.so.6
//
// The kernel writes a newline in the path as \012 and escapes nothing else; parseMapsLine undoes
// that in place, and m.Name points into line. ok is false if line is not a line of maps.
func parseMapsLine(line []byte, m *Map) (ok bool) {
	var end, major, minor uint64
	rest := line
	if m.Addr, rest, ok = hexField(rest, '-'); !ok {
		return false
	}
	if end, rest, ok = hexField(rest, ' '); !ok || end <= m.Addr {
		return false
	}
	m.Len = end - m.Addr
	if len(rest) < 5 || rest[4] != ' ' {
		return false
	}
	m.Prot, m.Flags = 0, FlagPrivate
	if rest[0] == 'r' {
		m.Prot |= ProtRead
	}
	if rest[1] == 'w' {
		m.Prot |= ProtWrite
	}
	if rest[2] == 'x' {
		m.Prot |= ProtExec
	}
	if rest[3] == 's' {
		m.Flags = FlagShared
	}
	if m.Offset, rest, ok = hexField(rest[5:], ' '); !ok {
		return false
	}
	if major, rest, ok = hexField(rest, ':'); !ok || major>>32 != 0 {
		return false
	}
	if minor, rest, ok = hexField(rest, ' '); !ok || minor>>32 != 0 {
		return false
	}
	m.ID = FileID{Major: uint32(major), Minor: uint32(minor)}
	if m.ID.Inode, rest, ok = decimal(rest); !ok {
		return false
	}
	if len(rest) > 0 && rest[0] != ' ' {
		return false
	}
	m.Name = unescapeNewlines(bytes.TrimLeft(rest, " "))
	if len(m.Name) == 0 || bytes.HasPrefix(m.Name, anonPrefix) {
		m.Name = anonName
	}
	return true
}

// Records say //anon for memory that has no name in maps, or the name that the process gave it.
var (
	anonName   = []byte("//anon")
	anonPrefix = []byte("[anon:")
)

// hexField reads hexadecimal digits up to the byte sep.
func hexField(b []byte, sep byte) (v uint64, rest []byte, ok bool) {
	for i, c := range b {
		var d byte
		switch {
		case c >= '0' && c <= '9':
			d = c - '0'
		case c >= 'a' && c <= 'f':
			d = c - 'a' + 10
		default:
			return v, b[i+1:], c == sep && i > 0
		}
		if i == 16 {
			return 0, nil, false
		}
		v = v<<4 | uint64(d)
	}
	return 0, nil, false
}

// decimal reads decimal digits up to the first byte that is not one, which stays in rest.
func decimal(b []byte) (v uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		d := uint64(b[i] - '0')
		if v > (1<<64-1-d)/10 {
			return 0, nil, false
		}
		v = v*10 + d
	}
	return v, b[i:], i > 0
}

var escapedNewline = []byte(`\012`)

// unescapeNewlines turns \012 into a newline, in place.
func unescapeNewlines(b []byte) []byte {
	i := bytes.Index(b, escapedNewline)
	if i < 0 {
		return b
	}
	out := b[:i]
	for i < len(b) {
		if bytes.HasPrefix(b[i:], escapedNewline) {
			out = append(out, '\n')
			i += len(escapedNewline)
		} else {
			out = append(out, b[i])
			i++
		}
	}
	return out
}

// stat is what this package reads of /proc/PID/task/TID/stat.
type stat struct {
	comm  string
	state byte
	ppid  uint32
	flags uint64 // PF_*
	start uint64 // clock ticks after boot
}

// pfKthread is PF_KTHREAD in include/linux/sched.h.
const pfKthread = 0x00200000

// alive reports whether the task can still run and will still send an EXIT record.
func (s *stat) alive() bool { return s.state != 'Z' && s.state != 'X' && s.state != 'x' }

// parseStat reads a stat line (proc_pid_stat(5)). The name is between the first parenthesis and the
// last, with newline and backslash escaped.
func parseStat(b []byte, st *stat) (ok bool) {
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return false
	}
	st.comm = boundComm(unescapeComm(b[open+1 : shut]))
	rest := b[shut+1:]
	// Fields 3 (state) to 22 (starttime).
	for field := 3; field <= 22; field++ {
		if len(rest) < 2 || rest[0] != ' ' {
			return false
		}
		rest = rest[1:]
		n := bytes.IndexAny(rest, " \n")
		if n < 0 {
			n = len(rest)
		}
		if n == 0 {
			return false
		}
		v := rest[:n]
		rest = rest[n:]
		if field == 3 {
			st.state = v[0]
			continue
		}
		if field != 4 && field != 9 && field != 22 {
			continue
		}
		num, tail, ok := decimal(v)
		if !ok || len(tail) > 0 {
			return false
		}
		switch field {
		case 4:
			st.ppid = uint32(num)
		case 9:
			st.flags = num
		case 22:
			st.start = num
		}
	}
	return true
}

// unescapeComm undoes the escapes of a name in stat (proc_task_name), in place.
func unescapeComm(b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	out := b[:0]
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '\\' && i+1 < len(b) {
			i++
			if c = b[i]; c == 'n' {
				c = '\n'
			}
		}
		out = append(out, c)
	}
	return out
}
