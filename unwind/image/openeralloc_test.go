package image

import (
	"testing"

	"unspool/vmas"
)

// A storm of mappings of files that are known notes a place for each of them.
func TestNotingWhereAFileIsMappedAllocatesNothing(t *testing.T) {
	find := &finder{files: newDescriptors(leastOpen)}
	d := &descriptor{of: find.files}
	m := &vmas.Mapping{File: &vmas.File{Path: "/lib/a.so"}}
	pid := uint32(0)
	allocs := testing.AllocsPerRun(100, func() {
		pid++
		m.Start += 4096
		d.foundAt(find.opener(pid, m))
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a mapping, want 0", allocs)
	}
	if last := &d.places[1]; last.isEmpty() || last.pid != pid || last.at != *m {
		t.Errorf("noted PID %d and %+v, want PID %d and %+v", last.pid, last.at, pid, *m)
	}
	if !d.places[0].isEmpty() {
		t.Error("the first place changed")
	}
}
