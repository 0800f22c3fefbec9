package process

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
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
