package session

import (
	"bufio"
	"os/exec"
	"testing"

	"unspool/capture/session/sessiontest"
	"unspool/perfring"
	"unspool/testdata/programs"
	"unspool/vmas"
)

// TestAfterALossMappingsAreReadAgain has a table that is wrong about a process: what a lost record said is
// read from /proc for the process's next sample.
func TestAfterALossMappingsAreReadAgain(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo; read x")
	cmd.StdinPipe()
	bufio.NewReader(programs.Telling(t, cmd)).ReadString('\n') // it is what it will be
	pid := uint32(cmd.Process.Pid)
	space, err := vmas.NewTable("/proc").Seed(pid)
	if err != nil {
		t.Fatal(err)
	}
	var is *vmas.Mapping
	for is = range space.Mappings() {
		break
	}

	format := sessiontest.Format()
	s := New(Config{Format: &format, Sink: sessiontest.Discard{}, Proc: "/proc", MaxStack: 2048})
	s.table.Comm(pid, pid, []byte("before"), true)
	s.table.Mmap(pid, vmas.Map{Addr: is.Start, Len: is.End - is.Start, Prot: vmas.ProtExec,
		Name: []byte("/before")})
	lost, err := perfring.AppendLost(nil, &format, &perfring.Lost{ID: 1, Lost: 5},
		&perfring.SampleID{PID: pid, TID: pid, Time: 5, ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"/before", is.File.Path} {
		if i > 0 {
			s.Record(lost)
		}
		s.Record(sessiontest.UserSample(pid, is.Start+1).Record())
		if m := s.table.Space(pid).Find(is.Start); m == nil || m.File.Path != want {
			t.Errorf("%d losses: %+v, want %s", i, m, want)
		}
	}
}
