package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/vmas"
)

// A file is looked at once for each mapping, though that is met twice. What is written to the file after that
// is seen with the next mapping.
func TestFileIsLookedAtOnceForEachMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	copyELF(t, libc(t), path)
	pid := uint32(os.Getpid())
	images := NewStore("/proc")
	table := vmas.NewTableOf(nil, images.Forget)
	mapped := vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path), ID: identity(t, path)}
	mapNow := func() *vmas.Mapping {
		time.Sleep(10 * time.Millisecond) // a file's times are those of the last tick
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		mapped.Time = uint64(ts.Nano())
		return table.Mmap(pid, mapped)
	}
	first := *mapNow()
	openAndWait(images, pid, &first)
	second := *mapNow()
	openAndWait(images, pid, &second)
	im := images.Lookup(pid, &second)
	if im == nil || !im.opened {
		t.Fatalf("not opened: %+v", im)
	}

	id := copyELF(t, "/bin/sh", path)
	for _, m := range []*vmas.Mapping{&second, &first} {
		if openAndWait(images, pid, m); images.Lookup(pid, m) != im {
			t.Errorf("the file was looked at again for the mapping at %d", m.Time)
		}
	}
	third := *mapNow()
	if got := openAndWait(images, pid, &third); vmas.NewBuildID(got) != id {
		t.Errorf("build ID %x of a file that was rewritten, want %v", got, id)
	}
	if im := images.Lookup(pid, &second); im == nil || im.err == nil {
		t.Error("what was mapped before has rules still")
	}

	timeless, before := first, third.File.Image
	timeless.Time = 0
	copyELF(t, libc(t), path)
	if openAndWait(images, pid, &timeless); timeless.File.Image == before {
		t.Error("the file was not looked at for a mapping without a time")
	}
}
