package image

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"unspool/vmas"
)

// TestRewrittenFiles maps a file that two builds take turns in, by its inode alone, as a new process does.
func TestRewrittenFiles(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	from := []string{libc(t), "/bin/sh"}
	ids := []vmas.BuildID{copyELF(t, from[0], path), copyELF(t, from[1], path)}
	pid := uint32(os.Getpid())
	table, images := vmas.NewTable(""), NewStore("/proc")
	table.Forget = images.Forget
	mapped := vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec, Name: []byte(path), ID: identity(t, path)}
	var last *Image
	for i := range 6 {
		copyELF(t, from[i%2], path)
		m := table.Mmap(pid, mapped)
		if id := images.Open(pid, m); vmas.NewBuildID(id) != ids[i%2] {
			t.Fatalf("round %d: build ID %x, want %v", i, id, ids[i%2])
		}
		im := images.Lookup(pid, m)
		if im == last || !im.opened || im.file == nil {
			t.Fatalf("round %d: %+v", i, im)
		}
		if id := images.Open(pid, m); images.Lookup(pid, m) != im || !bytes.Equal(id, im.BuildID) {
			t.Fatalf("round %d: an unchanged file became another image", i)
		}
		last = im
	}

	// What is only removed, or given another mode, is there to be read.
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	m := table.Mmap(pid, mapped)
	if id := images.Open(pid, m); vmas.NewBuildID(id) != ids[1] || images.Lookup(pid, m).err != nil || images.Lookup(pid, m).file == nil {
		t.Errorf("removed: build ID %x, %v", id, images.Lookup(pid, m).err)
	}

	// A file with two names is one image; when it is rewritten, each name notices by itself.
	copyELF(t, own, path)
	other := path + "-too"
	if err := os.Link(path, other); err != nil {
		t.Skip(err)
	}
	copyELF(t, from[0], path)
	two := [2]vmas.Map{mapped, mapped}
	two[0].ID, two[1].ID = identity(t, path), identity(t, path)
	two[1].Name, two[1].Addr = []byte(other), 0x8000
	for i := range 4 {
		copyELF(t, from[i%2], path)
		for _, which := range two {
			m := table.Mmap(pid, which)
			if id := images.Open(pid, m); vmas.NewBuildID(id) != ids[i%2] {
				t.Errorf("round %d, %s: build ID %x, want %v", i, which.Name, id, ids[i%2])
			}
		}
	}
	if len(images.byID) > 2 {
		t.Errorf("%d images are kept", len(images.byID))
	}
}
