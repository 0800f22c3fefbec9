package check

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/capture/counts"
	"unspool/capture/live"
	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/capture/symbols"
	"unspool/perfring"
	"unspool/testdata/programs"
	"unspool/unwind"
)

// built is the path of a program in testdata.
func built(t *testing.T, name string, flags ...string) string {
	t.Helper()
	return programs.BuildFile(t, "testdata/"+name+".c", flags...)
}

// TestSourcesOfLiveRecordings checks frames that nothing but a live recording has: those that the kernel
// found by frame pointers, and those that were read from the process.
func TestSourcesOfLiveRecordings(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	stays, err := filepath.Abs("../../live/testdata/stays.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		command []string
		source  unwind.Source
	}{
		{"interrupted, with frame pointers", []string{programs.Build(t, "signal", "-fno-omit-frame-pointer",
			"-include", stays), programs.Times(60), "other"}, unwind.ByKernel},
		{"interrupted by a handler that waits", []string{built(t, "waits")}, unwind.ByLive},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checker := New(symbols.New(symbols.Options{}))
			ctx, enough := context.WithTimeout(t.Context(), time.Minute)
			defer enough()
			null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			_, err = live.Record(ctx, live.Options{
				Command: c.command, CommandStdout: null, Period: 1, StackSize: 16384, MaxStack: 256,
				Watcher: &identities{Checker: checker, t: t},
				Events: []perfring.Event{{Name: "page-faults", Type: unix.PERF_TYPE_SOFTWARE,
					Config: unix.PERF_COUNT_SW_PAGE_FAULTS, ExcludeKernel: true, ExcludeHV: true}},
				Output: filepath.Join(t.TempDir(), "perf.data"),
				Progress: func(st *counts.Stats) { // they do not end by themselves, so that they can be read
					if st.FramesBy[c.source] > 100 {
						enough()
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			r := checker.Result(c.name, 0, nil)
			all := r.All()
			if n := r.BySource[c.source]; n.Checked() == 0 || all.Wrong() > 0 {
				r.WriteText(os.Stderr)
				t.Errorf("%d edges by %v, %d of all wrong", n.Checked(), c.source, all.Wrong())
			}
		})
	}
}

// identities is a Checker whose mappings are compared with those of the session: of the same path, they are of the
// same file.
type identities struct {
	*Checker
	t       *testing.T
	session *session.Session
}

// Begin is for [session.Watcher].
func (i *identities) Begin(s *session.Session) {
	i.session = s
	i.Checker.Begin(s)
}

// WriteSample is for [session.Watcher].
func (i *identities) WriteSample(w *perfdata.Walked) error {
	space, followed := i.table.Space(w.Sample.PID), i.session.Table().Space(w.Sample.PID)
	if space == nil || followed == nil {
		return i.Checker.WriteSample(w)
	}
	for m := range space.Mappings() {
		of := followed.Find(m.Start)
		if of != nil && of.File.Path == m.File.Path && m.File.BuildID.IsZero() && m.File.Inode != of.File.Inode {
			i.t.Errorf("%s is %v, and %v in the session", m.File.Path, m.File.FileID, of.File.FileID)
		}
	}
	return i.Checker.WriteSample(w)
}
