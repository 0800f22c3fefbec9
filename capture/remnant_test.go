package capture

import (
	"encoding/binary"
	"os/exec"
	"testing"
	"time"

	"unspool/perfring"
	"unspool/testdata/programs"
	"unspool/unwind"
)

// A frame that has been left is not taken for one that is there, although the word that tells of it is: its
// place has another caller now. The next frame is one.
func TestRemnantsOfFramesAreNotRead(t *testing.T) {
	t.Parallel()
	program := programs.BuildFile(t, "testdata/remnant.c", "-O0", "-Wno-error")
	for _, c := range []struct {
		name string
		args []string
		want unwind.Reason
		root bool // one of the frames leads there
	}{
		{"there", nil, unwind.Root, true},
		{"left", []string{"remnant"}, unwind.BadCFI, true},
		{"cleared", []string{"cleared"}, unwind.Unmapped, false},
	} {
		cmd := exec.Command(program, c.args...)
		output := startTelling(t, cmd)
		var frames [2]unwind.OpenFrame
		for i := range frames {
			var told [3]uint64
			if err := binary.Read(output, binary.LittleEndian, &told); err != nil {
				t.Fatal(err)
			}
			frames[i] = unwind.OpenFrame{PC: told[0], SP: told[1], BP: told[2]}
		}

		pid := uint32(cmd.Process.Pid)
		s := NewSession(Config{Format: new(perfring.Format), Sink: discard{}, Proc: "/proc", MaxStack: 100,
			Live: true, Join: true, JoinAfter: time.Second})
		if err := s.Seed([]int{int(pid)}); err != nil {
			t.Fatal(err)
		}
		space := s.table.Space(pid)
		rd := &stackRead{pid: pid, tid: pid, space: space.ID(), time: 1}
		if !rd.read(&watchedStack{frames: frames[:], size: firstReadSize}) || len(rd.frames) != 2 {
			t.Fatalf("%s: the return addresses of %+v are not there", c.name, rd.frames)
		}
		if end := s.walkRead(space, rd, &rd.frames[0]).End; end != c.want {
			t.Errorf("%s: the walk from the inner frame ends with %v, want %v", c.name, end, c.want)
		}
		if root, _ := s.takeRead(rd); (root != 0) != c.root {
			t.Errorf("%s: the root is at %#x", c.name, root)
		}
	}
}
