package perfdata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// layouts are the ways in which the same records are written.
var layouts = []struct {
	name     string
	pipe     bool
	compress int
}{
	{"file", false, 0},
	{"compressed file", false, 3},
	{"pipe", true, 0},
	{"compressed pipe", true, 3},
}

func TestReadsBackWhatWasWritten(t *testing.T) {
	events := twoEvents()
	records := recording(t, events, 5, 3000)
	// A record that compression makes longer, so that it is written uncompressed among the others.
	noise := appendHeader(nil, perfring.RecordSample, miscUser, 65528)
	x := uint32(1)
	for len(noise) < 65528 {
		x = x*1664525 + 1013904223
		noise = append(noise, byte(x>>24))
	}
	records = append(records, [][]byte{noise, noise, noise, records[1][0], noise})
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "perf.data")
			o := Options{Path: path, Events: events, Compress: l.compress,
				CommandLine: []string{"unspool", "record", "-a"}, Version: "unspool 1.0"}
			var out bytes.Buffer
			if l.pipe {
				o.Path, o.Out = "-", &out
			}
			w := write(t, o, records, nil)
			for range 2 {
				w.BuildID("/opt/app/hello", bytes.Repeat([]byte{0xab}, 20), false)
			}
			w.BuildID(kernelName, []byte{1, 2, 3, 4}, true)
			closeWriter(t, w)
			if l.pipe {
				if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if st, err := os.Stat(path); err != nil || st.Size() != w.Written() {
				t.Errorf("Written says %d, %v, %v", w.Written(), st.Size(), err)
			}

			r := openFile(t, path)
			got, err := readAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if want := slices.Concat(records...); !reflect.DeepEqual(got, want) {
				t.Errorf("%d records that differ from the %d written", len(got), len(want))
			}
			if want := []perfring.Attr{events[0].Unwound(), events[1].Unwound()}; len(r.Events()) == 2 {
				for i := range want {
					want[i].PerfEventAttr.Size = 112 // which perf before 5.13 reads
					if l.pipe {
						want[i].PerfEventAttr.Size = 128
					}
				}
				if !reflect.DeepEqual(r.Events(), want) {
					t.Errorf("events\n%+v, want\n%+v", r.Events(), want)
				}
			} else {
				t.Errorf("%d events", len(r.Events()))
			}
			if args := r.CommandLine(); !slices.Equal(args, o.CommandLine) {
				t.Errorf("command line %q", args)
			}
			host, _ := os.Hostname()
			if r.Text(Hostname) != host || r.Text(Version) != "unspool 1.0" || r.Text(Arch) == "" {
				t.Errorf("host %q, version %q, arch %q", r.Text(Hostname), r.Text(Version), r.Text(Arch))
			}
			want := []FileBuildID{{"/opt/app/hello", bytes.Repeat([]byte{0xab}, 20), false},
				{kernelName, []byte{1, 2, 3, 4}, true}}
			if ids := r.BuildIDs(); !reflect.DeepEqual(ids, want) {
				t.Errorf("build IDs %v", ids)
			}
		})
	}
}

// ofHello begins the lines that perf script prints of the samples that recording makes.
var ofHello = regexp.MustCompile(`(?m)^hello +77 `)

func TestPerfReadsWhatWasWritten(t *testing.T) {
	events := twoEvents()
	records := recording(t, events, 5, 100)
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "perf.data")
			o := Options{Path: path, Events: events, Compress: l.compress,
				CommandLine: []string{"unspool", "record", "-a"}, Version: "unspool 1.0"}
			var out bytes.Buffer
			if l.pipe {
				o.Path, o.Out, path = "-", &out, "-"
			}
			w := write(t, o, records, nil)
			w.BuildID("/opt/app/hello", bytes.Repeat([]byte{0xab}, 20), false)
			w.BuildID(kernelName, bytes.Repeat([]byte{0xcd}, 20), true)
			closeWriter(t, w)

			contains := func(text string, want ...string) {
				t.Helper()
				for _, s := range want {
					if !strings.Contains(text, s) {
						t.Errorf("no %q in\n%.3000s", s, text)
					}
				}
			}
			script := perf(t, out.Bytes(), "script", "-i", path)
			if n := len(ofHello.FindAllString(script, -1)); n != 500 {
				t.Errorf("perf script prints %d samples", n)
			}
			contains(script, "task-clock:u:", "[unknown] (/opt/app/hello)")
			contains(perf(t, out.Bytes(), "report", "--stdio", "-i", path), "Samples: 250  of event 'cpu-clock'",
				"Samples: 250  of event 'task-clock:u'", "---0x403000")
			contains(perf(t, out.Bytes(), "evlist", "-v", "-i", path), "cpu-clock:", "task-clock:",
				"IP|TID|TIME|CALLCHAIN|CPU|PERIOD|IDENTIFIER,")
			if l.pipe {
				return
			}
			contains(perf(t, nil, "buildid-list", "-i", path), strings.Repeat("ab", 20)+" /opt/app/hello",
				strings.Repeat("cd", 20)+" "+kernelName)
			header := perf(t, nil, "report", "--header-only", "-i", path)
			contains(header, "perf version : unspool 1.0", "cmdline : unspool record -a", "id = { 13, 14 }",
				"clockid: monotonic", "sample duration :    499.000 ms",
				"nrcpus online", "cpudesc", "total memory", "hostname", "os release", "arch :")
			if l.compress > 0 {
				contains(header, "compressed : Zstd, level = 3, ratio = ")
			}
		})
	}
}

// What perf recorded, copied by way of Reader and Writer, must look the same to perf.
func TestPerfSeesNoDifferenceInACopy(t *testing.T) {
	for _, args := range []string{"-g", "-g -e page-faults,minor-faults",
		"-g -e sched:sched_process_exit,sched:sched_process_fork -c 1"} {
		in := recordWithPerf(t, strings.Fields(args)...)
		fields := []string{"script", "--kallsyms", os.DevNull, "-F", "comm,pid,tid,time,event,ip,sym,dso,trace",
			"--show-task-events", "--show-mmap-events"}
		want := perf(t, nil, append(fields, "-i", in)...)
		if strings.Count(want, "\n") < 5 {
			t.Fatalf("perf script %s: %s", args, want)
		}
		for _, l := range layouts {
			t.Run(args+" "+l.name, func(t *testing.T) {
				r := openFile(t, in)
				path := filepath.Join(t.TempDir(), "perf.data")
				o := Options{Path: path, Events: r.Events(), Compress: l.compress}
				var out bytes.Buffer
				if l.pipe {
					o.Path, o.Out, path = "-", &out, "-"
				}
				w, err := Create(o)
				if err != nil {
					t.Fatal(err)
				}
				for {
					rec, err := r.Next()
					if err == io.EOF {
						break
					}
					if err == nil && rec.Type() == perfring.RecordFinishedRound {
						err = w.Round()
					} else if err == nil {
						err = w.Write(rec)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				for _, id := range r.BuildIDs() {
					w.BuildID(id.Path, id.ID, id.Kernel)
				}
				closeWriter(t, w)
				if got := perf(t, out.Bytes(), append(fields, "-i", path)...); got != want {
					t.Errorf("got\n%.2000s\nwant\n%.2000s", got, want)
				}
			})
		}
	}
}

func TestHotspotReadsWhatWasWritten(t *testing.T) {
	perfparser, err := exec.LookPath("hotspot-perfparser")
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/*/libexec/hotspot-perfparser")
		if len(found) == 0 {
			t.Skip("hotspot-perfparser is not installed (Debian package hotspot)")
		}
		perfparser = found[0]
	}
	events := twoEvents()
	path := filepath.Join(t.TempDir(), "perf.data")
	w := write(t, Options{Path: path, Events: events, CommandLine: []string{"unspool"}},
		recording(t, events, 5, 100), nil)
	w.BuildID("/opt/app/hello", bytes.Repeat([]byte{0xab}, 20), false)
	closeWriter(t, w)
	out := path + ".out"
	cmd := exec.Command(perfparser, "--input", path, "--output", out)
	cmd.Env = append(os.Environ(), "QT_QPA_PLATFORM=offscreen")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.Contains(line, "FINISHED_ROUND detected"), strings.Contains(line, "MissingElfFile"):
		case strings.Contains(line, "PerfHeader::SAMPLE_TIME 16"), strings.Contains(line, "PerfHeader::CLOCKID 8"):
			// It skips these features in perf's own files as well.
		default:
			t.Errorf("perfparser says: %s", line)
		}
	}
	data, err := os.ReadFile(out)
	if err != nil || !bytes.Contains(data, []byte("hello")) || len(data) < 500*8 {
		t.Errorf("perfparser made %d bytes, %v", len(data), err)
	}
}

func TestKilledRecordingIsReadUpToTheLastFlush(t *testing.T) {
	for _, name := range []string{"plain", "compressed", "tracepoint"} {
		t.Run(name, func(t *testing.T) {
			events := []perfring.Attr{liveEvent("cpu-clock", 0, 11)}
			compress := 0
			switch name {
			case "compressed":
				compress = 1
			case "tracepoint":
				text, err := readTracefs("events/sched/sched_switch/id")
				if err != nil {
					t.Skip("tracefs is not mounted")
				}
				var id uint64
				for _, c := range bytes.TrimSpace(text) {
					id = 10*id + uint64(c-'0')
				}
				events[0].Name, events[0].PerfEventAttr.Type, events[0].PerfEventAttr.Config = "sched:sched_switch",
					unix.PERF_TYPE_TRACEPOINT, id
			}
			records := recording(t, events, 4, 50)
			dir := t.TempDir()
			path := filepath.Join(dir, "perf.data")
			w := write(t, Options{Path: path, Events: events, Compress: compress}, records,
				func(w *Writer, round int) {
					data, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					copied := filepath.Join(dir, "copy")
					// The part of its data that a flush had written when the process was killed.
					for _, half := range []string{"", "half a flush"} {
						if err := os.WriteFile(copied, append(data, half...), 0o600); err != nil {
							t.Fatal(err)
						}
						if n := len(ofHello.FindAllString(perf(t, nil, "script", "-i", copied), -1)); n != 50*(round+1) {
							t.Errorf("perf reads %d samples after round %d", n, round)
						}
						r := openFile(t, copied)
						got, err := readAll(r)
						if want := slices.Concat(records[:round+1]...); !reflect.DeepEqual(got, want) || err != nil {
							t.Errorf("%d records after round %d, %v", len(got), round, err)
						}
					}
				})
			closeWriter(t, w)
		})
	}
}

func TestExistingFileIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.data")
	for i, want := range []string{"", "first", "first"} {
		w, err := Create(Options{Path: path, Events: twoEvents()})
		if err != nil {
			t.Fatal(err)
		}
		closeWriter(t, w)
		if old, _ := os.ReadFile(path + ".old"); string(old[:min(5, len(old))]) != want && i < 2 {
			t.Errorf("%d: perf.data.old holds %.5q", i, old)
		}
		if i == 0 {
			if err := os.WriteFile(path, []byte("first"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := Create(Options{Path: filepath.Dir(path), Events: twoEvents()}); !errors.Is(err, unix.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
}

func TestStreamsGetThePipeFormat(t *testing.T) {
	events := twoEvents()
	records := recording(t, events, 2, 10)
	closeWriter(t, write(t, Options{Path: "/dev/null", Events: events}, records, nil))

	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	done := make(chan int)
	go func() {
		n := 0
		r, err := Open(fmt.Sprintf("/proc/self/fd/%d", in.Fd()))
		if err == nil {
			defer r.Close()
			var got [][]byte
			got, err = readAll(r)
			n = len(got)
		}
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	closeWriter(t, write(t, Options{Path: fmt.Sprintf("/dev/fd/%d", out.Fd()), Events: events}, records, nil))
	if _, err := out.Stat(); err != nil {
		t.Errorf("the descriptor that was handed over is closed: %v", err)
	}
	out.Close()
	if n := <-done; n != len(slices.Concat(records...)) {
		t.Errorf("%d records came through the pipe", n)
	}
}

// A path that cannot become a recording is refused before the first record, and stays as it is.
func TestWhatIsInTheWayStays(t *testing.T) {
	for _, c := range []struct {
		name, at string
		put      func(path string) error
	}{
		{"FIFO", "", func(path string) error { return unix.Mkfifo(path, 0o600) }},
		{"directory", "", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"dangling link to a link", "", func(path string) error {
			return errors.Join(os.Symlink("missing", path+".link"), os.Symlink(filepath.Base(path)+".link", path))
		}},
		{"FIFO as .old", ".old", func(path string) error { return unix.Mkfifo(path, 0o600) }},
		{"directory as .old", ".old", func(path string) error { return os.Mkdir(path, 0o700) }},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "perf.data")
		if c.at != "" {
			if err := os.WriteFile(path, []byte("first"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.put(path + c.at); err != nil {
			t.Fatal(err)
		}
		before := listing(t, dir)
		if _, err := Create(Options{Path: path, Events: twoEvents()}); err == nil ||
			!strings.Contains(err.Error(), path+c.at) {
			t.Errorf("%s: %v", c.name, err)
		}
		if after := listing(t, dir); after != before {
			t.Errorf("%s: there were\n%sand are\n%s", c.name, before, after)
		}
	}
}

// listing lists a directory, with the properties that must not change.
func listing(t *testing.T, dir string) (text string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintln(st.Mode(), st.Size(), st.ModTime(), st.Name())
	}
	return text
}

// A recording gets its name as soon as its header is written. Until then the older file has it.
func TestRecordingTakesItsNameWithItsHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.data")
	for _, c := range []struct{ before, old string }{{"", ""}, {"first", "first"}} {
		if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := Create(Options{Path: path, Events: twoEvents()})
		if err != nil {
			t.Fatal(err)
		}
		r := openFile(t, path)
		if len(r.Events()) != 2 {
			t.Errorf("%d events", len(r.Events()))
		}
		if old, _ := os.ReadFile(path + ".old"); string(old) != c.old {
			t.Errorf("%q was kept, not %q", old, c.old)
		}
		closeWriter(t, w)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); left != nil {
		t.Errorf("left: %v", left)
	}
}

func TestErrorsAreToldOnceWithTheirPlace(t *testing.T) {
	if _, err := Create(Options{Path: "/dev/full", Events: twoEvents()}); !errors.Is(err, unix.ENOSPC) ||
		!strings.Contains(err.Error(), "/dev/full") {
		t.Errorf("full device: %v", err)
	}
	_, err := Create(Options{Path: "/nonexistent/perf.data", Events: twoEvents()})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	for _, level := range []int{-1, 23} {
		if _, err := Create(Options{Path: "-", Out: io.Discard, Events: twoEvents(), Compress: level}); err == nil {
			t.Errorf("level %d is accepted", level)
		}
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := Create(Options{Path: "-", Out: out, Events: twoEvents()})
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := w.Write(sample(11, 1, 1, 2)); err != nil {
		t.Error(err)
	}
	if err := w.Write(sample(11, 1, 1, 2)[:40]); err == nil {
		t.Error("half a record is accepted")
	}
	if err := w.Round(); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("closed pipe: %v", err)
	}
	if err := w.Write(sample(11, 1, 1, 2)); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("after that: %v", err)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Errorf("Close says it again: %v", err)
		}
	}
}

func TestManyIDsGoThroughAPipe(t *testing.T) {
	var ids []uint64
	for i := range 20000 {
		ids = append(ids, uint64(100+i))
	}
	for n, want := range map[int]int{1: maxPipeIDs, 2: 20000} {
		events := []perfring.Attr{liveEvent("cpu-clock", 0, ids...), liveEvent("task-clock", 1, 1, 2)}[:n]
		var out bytes.Buffer
		w := write(t, Options{Path: "-", Out: &out, Events: events}, recording(t, events, 1, 10), nil)
		closeWriter(t, w)
		r, err := newReader("pipe", &out, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readAll(r); err != nil {
			t.Error(err)
		}
		if len(r.Events()) != n || len(r.Events()[0].IDs) != want {
			t.Errorf("%d events, the first with %d IDs", len(r.Events()), len(r.Events()[0].IDs))
		}
	}
}

// TestRecordsOfAPipeAreWholeWords looks at where the records of a pipe end, as perf 7.2 does. Compressed data
// and the head of tracing data have other lengths in perf's own pipes, too.
func TestRecordsOfAPipeAreWholeWords(t *testing.T) {
	events := twoEvents()
	for n := range 9 {
		var out bytes.Buffer
		w := write(t, Options{Path: "-", Out: &out, Events: events}, recording(t, events, 1, 10), nil)
		w.BuildID("/opt/app/hello"[:6+n], bytes.Repeat([]byte{0xab}, 20), false)
		closeWriter(t, w)
		const header = 16 // struct perf_pipe_file_header
		ids := 0
		for rec := out.Bytes()[header:]; len(rec) > 0; {
			size := int(le.Uint16(rec[6:]))
			typ := perfring.RecordType(le.Uint32(rec))
			if typ == perfring.RecordBuildID {
				ids++
			}
			if size < recordHeader || size%8 != 0 {
				t.Fatalf("record %d has %d bytes", typ, size)
			}
			rec = rec[size:]
		}
		if ids != 1 {
			t.Errorf("%d build IDs", ids)
		}
	}
}

func TestWriteDoesNotAllocate(t *testing.T) {
	for _, compress := range []int{0, 1} {
		w, err := Create(Options{Path: "/dev/null", Events: twoEvents(), Compress: compress})
		if err != nil {
			t.Fatal(err)
		}
		rec := sample(11, 1, 1, make([]uint64, 100)...)
		for range 2000 {
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(5000, func() { _ = w.Write(rec) }); n > 0 {
			t.Errorf("compression %d: %v allocations a record", compress, n)
		}
		closeWriter(t, w)
	}
}

// TestPathOfTwoFiles notes the build IDs of files that samples lie in, of which two have the same path:
// there, only what its record says is known of a mapping.
func TestPathOfTwoFiles(t *testing.T) {
	one, other := bytes.Repeat([]byte{1}, 20), bytes.Repeat([]byte{2}, 20)
	for _, c := range []struct {
		name string
		at   [2][]byte // the build IDs of the two, nil for none
	}{
		{"two build IDs", [2][]byte{one, other}},
		{"the first has none", [2][]byte{nil, one}},
		{"the second has none", [2][]byte{one, nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "perf.data")
			w := write(t, Options{Path: path, Events: twoEvents()}, nil, nil)
			for _, id := range c.at {
				w.BuildID("/opt/app/hello", id, false)
			}
			w.BuildID("/opt/app/other", one, false)
			closeWriter(t, w)
			r, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if got := r.FileBuildIDs(); len(got) != 1 || !bytes.Equal(got["/opt/app/other"], one) {
				t.Errorf("%x", got)
			}
		})
	}
}

// TestBuildIDsAreBounded: a file that comes when there is no room for more keeps its path from being listed, as its
// build ID is not that of the file that was there before.
func TestBuildIDsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.data")
	events := twoEvents()
	w := write(t, Options{Path: path, Events: events}, recording(t, events, 1, 10), nil)
	id := func(i int) []byte { return le.AppendUint64(nil, uint64(i)) }
	for i := range 2 * MostBuildIDs {
		w.BuildID(fmt.Sprint("/", i), id(i), false)
	}
	w.BuildID("/7", id(-7), false)
	if n := len(w.known); n > MostBuildIDs+1 {
		t.Errorf("%d are kept", n)
	}
	closeWriter(t, w)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := readAll(r); err != nil {
		t.Fatal(err)
	}
	ids := r.FileBuildIDs()
	if len(ids) != MostBuildIDs-1 || !bytes.Equal(ids["/8"], id(8)) || ids["/7"] != nil {
		t.Errorf("%d are listed, of /8 %x, of /7 %x", len(ids), ids["/8"], ids["/7"])
	}
}
