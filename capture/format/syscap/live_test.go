package syscap

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"unspool/capture/perfdata"
	"unspool/perfring"
	"unspool/vmas"
	procfs "unspool/vmas/process"
)

// TestSampledBeforeItIsWritten has a process end while its sample waits: what it maps was written before.
func TestSampledBeforeItIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "capture")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l, err := NewLive(LiveOptions{FD: int(file.Fd())})
	if err != nil {
		t.Fatal(err)
	}
	const parent, child = 1<<30 + 1, 1<<30 + 2 // no processes of this machine
	table := vmas.NewTable("")
	table.Comm(child, child, []byte("child"), true)
	table.Mmap(child, vmas.Map{Addr: 0x1000, Len: 0x1000, Prot: vmas.ProtExec | vmas.ProtRead,
		Name: []byte("/bin/child")})
	for _, step := range []func() error{
		l.Begin,
		func() error { return l.Sampled(child, table.Space(child)) },
		func() error {
			return l.fork(frameHeader{cpu: -1}, &perfring.Task{PID: child, PPID: parent, TID: child})
		},
		func() error {
			sample := perfring.Sample{PID: child, TID: child, IP: 0x1010, Time: 9}
			return l.WriteSample(&perfdata.Walked{Sample: &sample})
		},
		l.Round,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []uint32
	for rest := content[256:]; len(rest) > 0; rest = rest[le.Uint16(rest):] {
		kind, pid := le.Uint32(rest[frameTime+8:]), int32(le.Uint32(rest[4:]))
		if pid == child || kind == frameFork {
			got = append(got, kind)
		}
	}
	want := []uint32{frameProcess, frameMap, frameFork, frameSample}
	if !slices.Equal(got, want) {
		t.Errorf("kinds of frames %v, want %v", got, want)
	}
}

// asked counts the texts of processes that are asked for.
type asked struct {
	procfs.Texts
	texts int
}

func (a *asked) Text(pid, tid uint32, name procfs.Text, most int) (io.ReadCloser, error) {
	a.texts++
	return a.Texts.Text(pid, tid, name, most)
}

// TestProcessesThatHaveEndedAreNotRead shows processes of which the rings have the EXIT already, and others.
func TestProcessesThatHaveEndedAreNotRead(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "capture"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	texts := &asked{Texts: procfs.Direct("/proc")}
	l, err := NewLive(LiveOptions{FD: int(file.Fd()), Texts: texts})
	if err != nil {
		t.Fatal(err)
	}
	for _, ended := range []bool{false, true, false} {
		const pid = 1<<30 + 1 // of no process
		if ended {
			l.Ended(pid)
		}
		texts.texts = 0
		if err := l.show(frameHeader{pid: pid}, &liveProcess{mounts: noMounts}); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{false: 1}[ended]; texts.texts != want {
			t.Errorf("it has ended: %v; %d texts were asked for", ended, texts.texts)
		}
		l.Sweep(func(uint32) bool { return true })
	}
}
