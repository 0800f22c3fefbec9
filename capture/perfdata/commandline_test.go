package perfdata

import (
	"strings"
	"testing"

	"unspool/perfring"
)

// A command line is read as it was written, also where it is too long. No other record is taken for one.
func TestCommandLineRecord(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "cc1plus -O2 dfa.cc", "\xff\x1b[31m", strings.Repeat("x", MostCommandLine),
		strings.Repeat("x", 1<<21)} {
		rec := perfring.Record(AppendCommandLine([]byte{1}, &CommandLine{PID: 7, Time: 1 << 40, Text: text})[1:])
		if checked, err := perfring.CheckRecord(rec); err != nil || len(checked) != len(rec) || len(rec)%8 != 0 {
			t.Fatalf("%.20q: %d of %d bytes, %v", text, len(checked), len(rec), err)
		}
		got, ok := DecodeCommandLine(rec)
		want := CommandLine{PID: 7, Time: 1 << 40, Text: text[:min(len(text), MostCommandLine)]}
		if !ok || got != want {
			t.Errorf("%.20q: %.20q, %d, %d, %v", text, got.Text, got.PID, got.Time, ok)
		}
		for n := range rec[:min(len(rec), 100)] { // a recording may hold anything
			DecodeCommandLine(rec[:min(n+8, len(rec))])
		}
	}
	name := appendHeader(nil, perfring.RecordEventUpdate, 0, 40)
	name = le.AppendUint64(name, updateName)
	for _, rec := range [][]byte{name, append(name, make([]byte, 24)...),
		appendHeader(nil, perfring.RecordEventUpdate, 0, 8), appendHeader(nil, perfring.RecordComm, 0, 8)} {
		if _, ok := DecodeCommandLine(rec); ok {
			t.Errorf("%x has a command line", rec)
		}
	}
}
