package process

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// TestIsExecutable holds the answers for our own mappings against our maps file, by the kernel's
// query where it has one, and by reading.
func TestIsExecutable(t *testing.T) {
	content, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	pid := uint32(os.Getpid())
	found := make(map[bool]int)
	for lines := bufio.NewScanner(strings.NewReader(string(content))); lines.Scan(); {
		var start, end uint64
		var access string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &start, &end, &access); n < 3 ||
			strings.HasSuffix(lines.Text(), "]") {
			continue // stacks and the heap grow
		}
		want := access[2] == 'x'
		if got := scanExecutable(strings.NewReader(string(content)), start, end); got != want {
			t.Errorf("read: %s: %v", lines.Text(), got)
		}
		if strings.Contains(lines.Text(), " 00:00 0") {
			continue // the runtime's memory changes
		}
		found[want]++
		if got := Direct("/proc").IsExecutable(pid, start, end); got != want {
			t.Errorf("%s: %v", lines.Text(), got)
		}
		if Direct("/proc").IsExecutable(pid, start, end+0x1000) {
			t.Errorf("%s: another end", lines.Text())
		}
	}
	if found[true] == 0 || found[false] == 0 {
		t.Errorf("looked at %v", found)
	}
}

// FuzzScanExecutable asks any text for a mapping. It is executable if a line of it says so.
func FuzzScanExecutable(f *testing.F) {
	const libc = "7f1c2a400000-7f1c2a426000 r-xp 00026000 fe:01 1048601        /usr/lib/libc.so.6\n"
	f.Add([]byte(libc), uint64(0x7f1c2a400000), uint64(0x7f1c2a426000))
	f.Add([]byte("00400000-00401000 --xp 00000000 00:00 0 \n"), uint64(0x400000), uint64(0x401000))
	f.Add([]byte(strings.Repeat("name", 2000)+libc), uint64(0x7f1c2a400000), uint64(0x7f1c2a426000))
	for _, text := range inputs.Lines(20, 8<<10, "/proc/[0-9]*/maps") {
		f.Add(text, uint64(0x7f1c2a400000), uint64(0x7f1c2a426000))
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, text []byte, start, end uint64) {
		defer costs.For(len(text)).Check(t)()
		whole := regexp.MustCompile(fmt.Sprintf(`^0*(?i:%x)-0*(?i:%x) [^ ]{2}([^ ])[^ ] [^ ]* [^ ]* [0-9]{1,19}( .*)?\n$`,
			start, end))
		want := false
		for line := range bytes.Lines(text) {
			if is := whole.FindSubmatch(line); is != nil && start < end && len(line) <= longestLine {
				want = string(is[1]) == "x"
				break
			}
		}
		if got := scanExecutable(bytes.NewReader(text), start, end); got != want {
			t.Errorf("%x-%x is executable: %v, want %v", start, end, got, want)
		}
	}))
}
