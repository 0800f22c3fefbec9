package capture

import (
	"encoding/binary"
	"os/exec"
	"testing"
	"time"

	"unspool/perfring"
	"unspool/unwind"
)

// remnantProgram tells of the frames of outer, which has called inner, and of main, which has called outer:
// the PC, SP and BP of each. Told "remnant", outer then has the return address of another function in the
// place of its own, as if it had returned, and that function had been called. Told "cleared", it has 0 there,
// as where the stack of a thread began that has ended, and has called inner by way of middle.
const remnantProgram = `
#include <stdint.h>
#include <unistd.h>

static uint64_t told[6], another;

__attribute__((noipa)) static void other(void) { another = (uintptr_t)__builtin_return_address(0); }

static void tell(uint64_t *t, void *pc, uint64_t *frame)
{
	t[0] = (uintptr_t)pc;
	t[1] = (uintptr_t)(frame + 2);
	t[2] = frame[0];
}

__attribute__((noipa)) static void inner(void)
{
	tell(told, __builtin_return_address(0), __builtin_frame_address(0));
	if (write(1, told, sizeof told) == sizeof told)
		for (;;)
			pause();
}

__attribute__((noipa)) static void middle(void) { inner(); }

__attribute__((noipa)) static void outer(int first)
{
	uint64_t *frame = __builtin_frame_address(0);
	if (first == 'r')
		frame[1] = another;
	if (first == 'c')
		frame[1] = 0;
	tell(told + 3, (void *)frame[1], frame);
	if (first == 'c')
		middle();
	inner();
}

int main(int argc, char **argv)
{
	other();
	outer(argc > 1 ? argv[1][0] : 0);
	return argv[0] == 0;
}
`

// A frame that has been left is not taken for one that is there, although the word that tells of it is: its
// place has another caller now. The next frame is one.
func TestRemnantsOfFramesAreNotRead(t *testing.T) {
	t.Parallel()
	program := compiled(t, remnantProgram, "-O0")
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
