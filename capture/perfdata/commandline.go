package perfdata

import (
	"strings"

	"unspool/perfring"
)

// A CommandLine is how a process was started, or what it calls itself. perf has no record for that, and no place for
// more features in a pipe. So it is an EVENT_UPDATE record with a type of its own, which perf reads and skips, as
// perf_event__process_event_update knows other types than these: u64 type, u64 ID of an event (0: the first one), and
// then u64 time, u32 PID, and the text, to the end of the record or a zero.
type CommandLine struct {
	PID uint32
	// Time is that of a sample of the program: the process may execute several. A later record with the same time
	// replaces an earlier one.
	Time uint64
	Text string
}

// updateCommandLine is "unspool" and a 1: perf's own types are small numbers.
const updateCommandLine = 0x01_6c6f6f70736e75

// MostCommandLine bounds the text of a CommandLine, in bytes.
const MostCommandLine = 4096

// commandLineText is where the text begins.
const commandLineText = recordHeader + 8 + 8 + 8 + 4

// AppendCommandLine appends a record with a command line. A text that is too long is cut.
func AppendCommandLine(b []byte, c *CommandLine) []byte {
	text := c.Text[:min(len(c.Text), MostCommandLine)]
	size := align(commandLineText+len(text)+1, 8)
	end := len(b) + size
	b = appendHeader(b, perfring.RecordEventUpdate, 0, size)
	b = le.AppendUint64(b, updateCommandLine)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint64(b, c.Time)
	b = le.AppendUint32(b, c.PID)
	b = append(b, text...)
	return append(b, make([]byte, end-len(b))...)
}

// IsCommandLine reports whether a record has a command line.
func IsCommandLine(rec perfring.Record) bool {
	return rec.Type() == perfring.RecordEventUpdate && len(rec) >= commandLineText &&
		le.Uint64(rec[recordHeader:]) == updateCommandLine
}

// DecodeCommandLine decodes a record of AppendCommandLine. ok is false for all others.
func DecodeCommandLine(rec perfring.Record) (c CommandLine, ok bool) {
	if !IsCommandLine(rec) {
		return c, false
	}
	s := text(rec[commandLineText:])
	return CommandLine{
		Time: le.Uint64(rec[recordHeader+16:]), PID: le.Uint32(rec[recordHeader+24:]),
		Text: strings.Clone(s[:min(len(s), MostCommandLine)]),
	}, true
}
