package fileid

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unspool/dwarfcfi/elf/elftest"
	"unspool/testdata/programs"
	"unspool/vmas"
	"unspool/vmas/process"
)

func TestSameBuild(t *testing.T) {
	id := strings.Repeat("0123456789", 4)
	zeros := strings.Repeat("\x00", 20)
	for _, c := range []struct {
		name            string
		found, recorded string
		same            bool
	}{
		{"the same", id[:20], id[:20], true},
		{"another", id[:20], id[1:21], false},
		{"16 bytes", id[:16], id[:16], true},
		{"16 bytes with zeros behind them", id[:16], id[:16] + zeros[:4], true},
		{"8 bytes with zeros behind them", id[:8], id[:8] + zeros[:12], true},
		{"another of 8 bytes", id[:8], id[1:9] + zeros[:12], false},
		{"a zero too few", id[:8], id[:8] + zeros[:11], false},
		{"the beginning only", id[:8], id[:20], false},
		{"32 bytes, of which 20 are recorded", id[:32], id[:20], true},
		{"32 bytes, of which 16 are recorded", id[:32], id[:16], false},
		{"another of 32 bytes", id[1:33], id[:20], false},
		{"none found", "", zeros, false},
		{"none recorded", id[:20], "", false},
		{"neither", "", "", false},
	} {
		if got := SameBuild([]byte(c.found), []byte(c.recorded)); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestUnpadded(t *testing.T) {
	zeros := strings.Repeat("\x00", 20)
	for recorded, want := range map[string]string{
		"12345678" + zeros[:12]:         "12345678",
		"1234567812345678" + zeros[:4]:  "1234567812345678",
		"12345678123456781234":          "12345678123456781234",
		"1234567812345678123" + "\x00":  "1234567812345678123\x00",
		"12345678":                      "12345678",
		"1234" + zeros[:4] + "12345678": "1234" + zeros[:4] + "12345678",
	} {
		if got := Unpadded([]byte(recorded)); string(got) != want {
			t.Errorf("%q: %q, want %q", recorded, got, want)
		}
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// check is Check for a file that this process reads.
func check(f *os.File, id *vmas.FileID) error { return Check(&process.OpenFile{File: f}, id) }

// inodeOf is what the kernel tells about an open file besides its build ID.
func inodeOf(t *testing.T, f *os.File) vmas.FileID {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return vmas.FileID{
		Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: st.Ino, Generation: uint64(Generation(f)),
	}
}

// builds are two ELF files that differ in their build IDs, of eight bytes.
func builds() (files [2][]byte, ids [2]string) {
	ids = [2]string{"12345678", "87654321"}
	files[0] = elftest.Small(64, nil, 0)
	files[1] = bytes.Replace(files[0], []byte(ids[0]), []byte(ids[1]), 1)
	return files, ids
}

// TestTwoFilesOfOnePath has two builds at a path in turn, as after installations.
func TestTwoFilesOfOnePath(t *testing.T) {
	files, ids := builds()
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	var known [2][]vmas.FileID // what may be known of each
	var kept [2]string         // where each is while the other one is at the path
	for i, content := range files {
		kept[i] = filepath.Join(dir, ids[i])
		if err := os.WriteFile(kept[i], content, 0o777); err != nil {
			t.Fatal(err)
		}
		inode := inodeOf(t, open(t, kept[i]))
		number := vmas.FileID{Inode: inode.Inode}
		device := vmas.FileID{Major: inode.Major, Minor: inode.Minor, Inode: inode.Inode}
		build := vmas.FileID{BuildID: vmas.NewBuildID([]byte(ids[i]))}
		padded := vmas.FileID{BuildID: vmas.NewBuildID([]byte(ids[i] + strings.Repeat("\x00", 12)))}
		known[i] = []vmas.FileID{inode, number, device, build, padded}
	}
	for round := range 6 {
		there := round % 2
		if err := os.Rename(kept[there], path); err != nil {
			t.Fatal(err)
		}
		f := open(t, path)
		for j := range known[there] {
			if err := check(f, &known[there][j]); err != nil {
				t.Errorf("round %d: %+v: %v", round, known[there][j], err)
			}
			if err := check(f, &known[1-there][j]); err != ErrReplaced {
				t.Errorf("round %d: the other one's %+v: %v", round, known[1-there][j], err)
			}
		}
		if err := check(f, &vmas.FileID{}); err != ErrUnproven {
			t.Errorf("round %d: nothing known: %v", round, err)
		}
		if err := os.Rename(path, kept[there]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDeviceAndGenerationCount(t *testing.T) {
	f := open(t, "/proc/self/exe")
	own := inodeOf(t, f)
	otherDevice, otherGeneration := own, own
	otherDevice.Minor++
	otherGeneration.Generation++
	if isOverlay(f) {
		t.Skip("on overlayfs devices are not compared")
	}
	for range 2 {
		if err := check(f, &own); err != nil {
			t.Error(err)
		}
		if err := check(f, &otherDevice); err != ErrUnlike {
			t.Errorf("another device: %v", err)
		}
		if err := check(f, &otherGeneration); own.Generation != 0 && err != ErrReplaced {
			t.Errorf("another generation: %v", err)
		}
	}
}

// TestMappingOfAFileShowsItsInode has a file and the program itself, whose mapping is another line of maps.
func TestMappingOfAFileShowsItsInode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mapped")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, program} {
		f := open(t, path)
		id := mappedAs(t, f)
		if shown, known := mapped(f); !known || shown != id {
			t.Errorf("%s is %+v, not %+v", path, shown, id)
		}
	}
}

// mappedAs is what maps shows of a file that is mapped: on some file systems it is not what fstat shows.
func mappedAs(t *testing.T, f *os.File) (id vmas.FileID) {
	t.Helper()
	data, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(data)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, " "+f.Name()+"\n") {
			fields := strings.Fields(line) // the addresses, the access, the offset, and then these
			if _, err := fmt.Sscanf(fields[3]+" "+fields[4], "%x:%x %d", &id.Major, &id.Minor, &id.Inode); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return id
		}
	}
	t.Fatalf("%s is not in maps", f.Name())
	return id
}

// TestOverlay looks at two files through overlayfs, which records know by the layer's device or by
// its own.
func TestOverlay(t *testing.T) {
	programs.NeedMounts(t)
	// The thread ends with this goroutine, and with it the namespace that has the mounts.
	failed := make(chan error, 1)
	dir := t.TempDir()
	var layer, merged [2]*os.File
	go func() {
		runtime.LockOSThread()
		failed <- mountOverlay(dir, &layer, &merged)
	}()
	if err := <-failed; err != nil {
		t.Skip("no overlayfs: ", err)
	}
	for i := range 2 {
		defer layer[i].Close()
		defer merged[i].Close()
	}
	for round := range 4 {
		f := merged[round%2]
		for _, c := range []struct {
			what string
			own  bool
			id   vmas.FileID
		}{
			{"its inode", true, inodeOf(t, f)},
			{"its inode in the layer", true, inodeOf(t, layer[round%2])},
			{"the other one's", false, inodeOf(t, merged[1-round%2])},
			{"the other one's in the layer", false, inodeOf(t, layer[1-round%2])},
		} {
			if err := check(f, &c.id); (err == nil) != c.own {
				t.Errorf("round %d: %s: %v", round, c.what, err)
			}
		}
	}
}

// mountOverlay opens two files in a layer and through the overlay of it, which only this thread sees.
func mountOverlay(dir string, layer, merged *[2]*os.File) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(at(name), 0o777); err != nil {
			return err
		}
	}
	files, ids := builds()
	for i, content := range files {
		if err := os.WriteFile(filepath.Join(at("lower"), ids[i]), content, 0o777); err != nil {
			return err
		}
	}
	options := "lowerdir=" + at("lower") + ",upperdir=" + at("upper") + ",workdir=" + at("work")
	if err := unix.Mount("overlay", at("merged"), "overlay", 0, options); err != nil {
		return err
	}
	var err error
	for i, id := range ids {
		var inLayer, inMerged error
		layer[i], inLayer = os.Open(filepath.Join(at("lower"), id))
		merged[i], inMerged = os.Open(filepath.Join(at("merged"), id))
		err = errors.Join(err, inLayer, inMerged)
	}
	return err
}
