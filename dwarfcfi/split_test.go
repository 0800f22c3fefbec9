package dwarfcfi

import (
	"os/exec"
	"testing"
)

// A separate debug file keeps the program headers of the stripped file, whose offsets are
// meaningless in it.
func TestSeparateDebugFile(t *testing.T) {
	for name, flags := range map[string][]string{
		".eh_frame": {"-O2", "-g", "-nostdlib", "-static"},
		".debug_frame": {"-O2", "-g", "-nostdlib", "-static", "-fno-asynchronous-unwind-tables",
			"-fno-unwind-tables"},
	} {
		path := build(t, freestanding, flags...)
		for _, only := range []string{"--only-keep-debug", "--strip-debug"} {
			part := path + only
			if text, err := exec.Command("objcopy", only, path, part).CombinedOutput(); err != nil {
				t.Skipf("objcopy: %v: %s", err, text)
			}
			_, _, s := openTable(t, part)
			stripped := only == "--strip-debug"
			if got, want := s.EhFrame.Data != nil, name == ".eh_frame" && stripped; got != want {
				t.Errorf("%s, %s: .eh_frame: %v", name, only, got)
			}
			if got, want := s.DebugFrame.Data != nil, name == ".debug_frame" && !stripped; got != want {
				t.Errorf("%s, %s: .debug_frame: %v", name, only, got)
			}
		}
	}
}
