package perfring

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Breakpoint reports whether the event is a hardware breakpoint. Config1 is then the address and Config2 the
// length: they share their places in perf_event_attr with bp_addr and bp_len.
func (e *Event) Breakpoint() bool { return e.Type == unix.PERF_TYPE_BREAKPOINT }

// sampledEach reports whether every event is sampled if no rate is asked for.
func (e *Event) sampledEach() bool { return e.Tracepoint() || e.Breakpoint() }

// breakpointPrefix begins the name of a breakpoint.
const breakpointPrefix = "mem:"

// The kinds of access of a breakpoint: HW_BREAKPOINT_R, _W and _X of include/uapi/linux/hw_breakpoint.h.
const (
	breakpointRead  = 1
	breakpointWrite = 2
	breakpointExec  = 4
)

// The lengths of breakpoints without one, as perf has them. The kernel takes no other one than sizeof(long)
// for code.
const (
	dataLength = 4
	codeLength = 8
)

// cutBreakpoint cuts mem:ADDR[/LEN][:ACCESS][:MODIFIERS] at the colons. What follows the only colon is
// MODIFIERS if it does not begin with a letter of ACCESS.
func cutBreakpoint(name string) (place, access, mods string) {
	place, rest, _ := strings.Cut(strings.TrimPrefix(name, breakpointPrefix), ":")
	access, mods, _ = strings.Cut(rest, ":")
	if mods == "" && strings.IndexAny(access, "rwx") != 0 {
		access, mods = "", access
	}
	return place, access, mods
}

// parseBreakpoint reads the name of a breakpoint.
func parseBreakpoint(name string) (Event, error) {
	place, access, mods := cutBreakpoint(name)
	address, length, hasLength := strings.Cut(place, "/")
	e := Event{Name: name, Type: unix.PERF_TYPE_BREAKPOINT, Config2: dataLength}
	var err error
	if e.Config1, err = parseAddress(address); err != nil {
		return Event{}, err
	}
	if e.BreakpointType, err = parseAccess(access); err != nil {
		return Event{}, err
	}
	code := e.BreakpointType == breakpointExec
	if code {
		e.Config2 = codeLength
	}
	if hasLength {
		given, err := parseNumber(length)
		switch {
		case code && (err != nil || given != codeLength):
			return Event{}, fmt.Errorf("length %q: a breakpoint on code has none, leave it out", length)
		case err != nil || given != 1 && given != 2 && given != 4 && given != 8:
			return Event{}, fmt.Errorf("length %q: must be 1, 2, 4 or 8 bytes", length)
		}
		e.Config2 = given
	}
	if !code && e.Config1%e.Config2 != 0 {
		return Event{}, fmt.Errorf("address %#x is not a multiple of the length %d: try %s%#x/%d", e.Config1,
			e.Config2, breakpointPrefix, e.Config1, e.Config1&-e.Config1)
	}
	switch err := e.modify(mods); {
	case err != nil && access == "":
		return Event{}, fmt.Errorf("%w, and no access (w, rw or x)", err)
	case err != nil:
		return Event{}, err
	}
	if e.ExcludeKernel && e.Config1>>63 == 1 {
		return Event{}, fmt.Errorf("address %#x is in the kernel, which the modifiers exclude: leave them out",
			e.Config1)
	}
	return e, nil
}

// parseAddress reads the address of a breakpoint. A decimal number with zeros before it is refused: it is
// most likely what nm prints, in hexadecimal.
func parseAddress(s string) (uint64, error) {
	if s == "" {
		return 0, errors.New("the address is missing: give one as in mem:0x401136:x")
	}
	address, err := parseNumber(s)
	switch {
	case err == nil && address == 0:
		return 0, errors.New("address 0: nothing can be there")
	case err == nil && s[0] == '0' && !hexadecimal(s):
	case err == nil:
		return address, nil
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("address %q has more than 64 bits", s)
	}
	if _, err := strconv.ParseUint(s, 16, 64); err == nil {
		return 0, fmt.Errorf("address %q: a hexadecimal address begins with 0x, as in mem:0x%s", s,
			strings.TrimLeft(s, "0"))
	}
	return 0, fmt.Errorf("address %q is not a number, give one as in mem:0x401136:x", s)
}

// parseNumber reads a decimal number, or a hexadecimal one that begins with 0x.
func parseNumber(s string) (uint64, error) {
	if hexadecimal(s) {
		return strconv.ParseUint(s[2:], 16, 64)
	}
	return strconv.ParseUint(s, 10, 64)
}

func hexadecimal(s string) bool { return strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") }

// parseAccess reads the letters for the accesses that a breakpoint stops at. x86 has three kinds: writes,
// reads and writes, and execution.
func parseAccess(letters string) (uint32, error) {
	if letters == "" {
		return breakpointRead | breakpointWrite, nil
	}
	var access uint32
	for _, c := range letters {
		var bit uint32
		switch c {
		case 'r':
			bit = breakpointRead
		case 'w':
			bit = breakpointWrite
		case 'x':
			bit = breakpointExec
		default:
			return 0, fmt.Errorf("access %q: must be w, rw or x, and modifiers follow another colon, as in "+
				"mem:0x404010:rw:u", letters)
		}
		if access&bit != 0 {
			return 0, fmt.Errorf("access %q: %c is there twice", letters, c)
		}
		access |= bit
	}
	switch {
	case access == breakpointRead:
		return 0, fmt.Errorf("access %q: x86 cannot watch reads alone, use rw", letters)
	case access&breakpointExec != 0 && access != breakpointExec:
		return 0, fmt.Errorf("access %q: x cannot be combined, use x for code, and w or rw for data", letters)
	}
	return access, nil
}
