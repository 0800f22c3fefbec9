package recorded

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/capture/perfdata"
	"unspool/capture/session/sessiontest"
	"unspool/perfring"
)

// machineText is a feature that is a string, as perf writes it.
func machineText(s string) []byte {
	return append(append([]byte{64, 0, 0, 0}, s...), make([]byte, 64-len(s))...)
}

func TestConvertRefusesOtherArchitectures(t *testing.T) {
	const aarch64 = 1<<33 - 1 // X0 to X30, SP, PC
	const sse = sessiontest.UserRegs | 0xffffffff<<32
	plain := uint64(unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER)
	for _, c := range []struct {
		name, arch string
		without    uint64 // bits of sample_type
		regs       uint64
		want       string
	}{
		{"x86-64", "x86_64", 0, sessiontest.UserRegs, ""},
		{"i386", "i686", 0, sessiontest.UserRegs, ""},
		{"not told", "", 0, sessiontest.UserRegs, ""},
		{"not told, with vector registers", "", 0, sse, ""},
		{"aarch64", "aarch64", 0, sessiontest.UserRegs,
			"was recorded on aarch64: only x86-64 and i386 stacks can be unwound"},
		{"aarch64, callchains alone", "aarch64", plain, sessiontest.UserRegs, ""},
		{"registers of aarch64", "", 0, aarch64, "was recorded on another architecture: only x86-64"},
		{"riscv64", "riscv64", 0, sessiontest.UserRegs, "was recorded on riscv64"},
	} {
		for _, layout := range []string{"file", "pipe"} {
			t.Run(c.name+"/"+layout, func(t *testing.T) {
				events := rawEvents()[:1]
				events[0].PerfEventAttr.Sample_type &^= c.without
				events[0].PerfEventAttr.Sample_regs_user = c.regs
				features := map[perfdata.Feature][]byte{}
				if c.arch != "" {
					features[perfdata.Arch] = machineText(c.arch)
				}
				r := &rawRecording{events: events, features: features, records: []perfring.Record{
					sessiontest.RawRecord(perfring.RecordThrottle, 1000, 1, make([]byte, 24)...),
				}}
				in := filepath.Join(t.TempDir(), "in.data")
				data := r.file()
				if layout == "pipe" {
					data = r.pipe()
				}
				if err := os.WriteFile(in, data, 0o600); err != nil {
					t.Fatal(err)
				}
				o := Options{Input: in, Output: in + ".out", MaxStack: 2048}
				out, err := Convert(context.Background(), o)
				if c.want == "" {
					if err != nil || !out.Started {
						t.Errorf("started: %v, %v", out.Started, err)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(),
					"\n") {
					t.Errorf("%v, want %q in one line", err, c.want)
				}
				if _, serr := os.Stat(o.Output); out.Started || serr == nil {
					t.Errorf("started: %v; the output is there: %v", out.Started, serr == nil)
				}
			})
		}
	}
}
