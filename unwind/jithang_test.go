package unwind

import (
	"os"
	"path/filepath"
	"testing"

	"unspool/dwarfcfi"
	"unspool/testdata/lane"
	"unspool/unwind/image"
	"unspool/unwind/image/fusetest"
	"unspool/unwind/jit"
	"unspool/unwind/jit/jittest"
	"unspool/vmas"
)

// TestJitdumpThatHangs looks up generated code whose jitdump is on a file system that does not answer: the
// look-up waits no longer than for any other file, and later has what is in the jitdump.
func TestJitdumpThatHangs(t *testing.T) {
	const code = 0x5000_0000_0000
	for _, mode := range []fusetest.Mode{fusetest.HangOpen, fusetest.HangRead} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			file := newJitdump(t)
			file.load(code, 11, jittest.Trampoline)
			server := fusetest.Show(t, filepath.Dir(file.Name()))
			server.Be(t, mode)
			defer server.Be(t, fusetest.Answer)

			table := vmas.NewTable("")
			pid := uint32(os.Getpid())
			table.Comm(pid, pid, []byte("test"), true)
			waits := 0
			images := image.New(image.Config{Proc: "/proc", Hurried: true, Waits: func() { waits++ }})
			images.Open(pid, table.Mmap(pid, vmas.Map{Addr: code + 0x20000, Len: 4096, Prot: vmas.ProtExec,
				Name: []byte(filepath.Join(server.Dir, filepath.Base(file.Name())))}))
			space := table.Space(pid)
			generated := jit.NewReader(images, jit.Live)
			row := func() bool { return generated.Lookup(space).Row(code+1, new(dwarfcfi.Row)) == nil }
			waits = 0
			for range 100 {
				if row() {
					t.Fatal("a row of a file that was not read")
				}
				look(space)
			}
			if waits > 50 { // a file has 30 ms, which are a few waits
				t.Errorf("100 questions waited %d times", waits)
			}
			server.Be(t, fusetest.Answer)
			lane.Eventually(t, "rows of the file that is there", func() bool { look(space); return row() })
		})
	}
}
