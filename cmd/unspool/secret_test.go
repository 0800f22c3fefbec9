package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
	"unspool/testdata/programs"
)

// A secret is 32 random bytes that a program keeps on its stack.
type secret struct{ bytes []byte }

func newSecret() secret {
	s := secret{make([]byte, 32)}
	rand.Read(s.bytes)
	return s
}

func (s secret) digits() string { return hex.EncodeToString(s.bytes) }

// in returns which part of the secret is in b: eight bytes of it are enough, one
// word of a stack.
func (s secret) in(b []byte) string {
	for at := 0; at+8 <= len(s.bytes); at++ {
		if i := bytes.Index(b, s.bytes[at:at+8]); i >= 0 {
			return fmt.Sprintf("bytes from %d on at offset %d", at, i)
		}
	}
	if i := bytes.Index(b, []byte(s.digits()[:16])); i >= 0 {
		return fmt.Sprintf("its digits at offset %d", i)
	}
	return ""
}

// inFiles looks for secrets in every file below dir that was changed after a time, but for the directories of tests
// that run at the same time, some of which have perf copy the stacks of all processes, and for other file systems that
// are mounted below, as a container's /proc and /sys are.
func inFiles(secrets []secret, dir string, since time.Time) (found []string, files int) {
	buf, device := make([]byte, 1<<20), uint64(0)
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return nil // somebody else's, or gone
		}
		st, err := e.Info()
		if err != nil {
			return nil
		}
		if on := st.Sys().(*syscall.Stat_t).Dev; path == dir {
			device = on
		} else if e.IsDir() && (strings.HasPrefix(e.Name(), "Test") || on != device) {
			return fs.SkipDir
		}
		if e.IsDir() || st.ModTime().Before(since) {
			return nil
		}
		where, err := inFile(secrets, path, buf)
		if err != nil {
			return nil
		}
		files++
		if where != "" {
			found = append(found, path+": "+where)
		}
		return nil
	})
	return found, files
}

// inFile looks into a file a piece of buf's size at a time: other tests have files that are larger than the memory,
// most of them holes.
func inFile(secrets []secret, path string, buf []byte) (string, error) {
	const overlap = 64
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for at := int64(0); ; {
		if at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); err == unix.ENXIO {
			return "", nil // there is no more
		} else if err != nil {
			return "", err
		}
		n, err := f.ReadAt(buf, at)
		for _, s := range secrets {
			if where := s.in(buf[:n]); where != "" {
				return fmt.Sprintf("%s from %d on", where, at), nil
			}
		}
		if n < len(buf) {
			if err == io.EOF {
				err = nil
			}
			return "", err
		}
		at += int64(len(buf)) - overlap
	}
}

// confined points everything that names a directory at one.
func confined(dir string) []string {
	env := append(os.Environ(), noPerfConfig)
	for _, name := range []string{"TMPDIR", "TMP", "TEMP", "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
		"XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"} {
		env = append(env, name+"="+dir)
	}
	return env
}

// TestSecretOnAStackIsNeverWritten records a program that keeps a secret on its
// stack, and looks for the secret in all that was written meanwhile.
func TestSecretOnAStackIsNeverWritten(t *testing.T) {
	t.Parallel()
	needRoot(t)
	program := programs.Build(t, "secret")
	began := time.Now().Add(-time.Second)
	var secrets []secret
	for _, c := range []struct {
		name string
		args []string
	}{
		{"file", []string{"-o", "perf.data"}},
		{"compressed", []string{"-z", "-o", "perf.data"}},
		{"pipe", []string{"-o", "-"}},
		{"verbose", []string{"-v", "-o", "perf.data", "--stack-size", "65528"}},
	} {
		s := newSecret()
		secrets = append(secrets, s)
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			const times = 60
			args := slices.Concat([]string{"record", "--stats", "stats.json"}, programs.Faults(), c.args)
			told := filepath.Join(t.TempDir(), "pid")
			r := start(t, dir, func(cmd *exec.Cmd) {
				cmd.Env = confined(dir)
				cmd.Stdin = strings.NewReader(s.digits())
			}, append(args, "--", "sh", "-c", `echo $$ >"$0" && exec "$@"`, told, program,
				fmt.Sprintf("@%d", times))...)
			pid := pidIn(t, told)
			for range 2 { // with its chain printed, and at its end
				untilStopped(t, pid)
				for _, file := range openForWriting(r.Process.Pid) {
					if filepath.Base(file) != "perf.data" {
						t.Errorf("unspool has %s open", file)
					}
				}
				unix.Kill(pid, unix.SIGCONT)
			}
			e := r.finish(t, time.Minute)
			if e.status != 0 {
				t.Fatalf("status %d\n%s", e.status, e.stderr)
			}
			content, err := os.ReadFile(filepath.Join(dir, "stats.json"))
			if err != nil {
				t.Fatal(err)
			}
			// Below the frame that holds the secret: the copy of each has it.
			if st := readStatistics(t, content); st.Samples.Lost > 0 {
				t.Fatalf("%+v: this shows nothing", st.Samples)
			}

			path := filepath.Join(dir, "perf.data")
			if c.name == "pipe" {
				// What came through the pipe, as a file; the program's own line is before it.
				_, data, ok := strings.Cut(e.stdout, "PERFILE2")
				if !ok {
					t.Fatal("nothing came through the pipe")
				}
				if err := os.WriteFile(path, []byte("PERFILE2"+data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if where := s.in([]byte(e.stdout + e.stderr)); where != "" {
				t.Errorf("the secret is in the output: %s", where)
			}
			found, files := inFiles([]secret{s}, dir, time.Time{})
			if files < 2 {
				t.Errorf("only %d files in %s", files, dir)
			}
			for _, f := range found {
				t.Errorf("the secret is in %s", f)
			}
			records, held := 0, 0
			forEachRecord(t, path, func(rec []byte) {
				records++
				if where := s.in(rec); where != "" {
					t.Errorf("the secret is in record %d: %s", records, where)
				}
			})
			p := ownProfile(t, path)
			for _, sample := range p.Samples {
				if strings.Contains(strings.Join(userStack(p, sample.Node), " "), "secret_hold") {
					held += int(sample.Count)
				}
			}
			if records == 0 || held < times {
				t.Errorf("%d records, %d samples below the secret, of %d", records, held, times)
			}
		})
	}
	t.Cleanup(func() { // once, when all have been recorded
		for _, tmp := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
			found, _ := inFiles(secrets, tmp, began)
			for _, f := range found {
				t.Errorf("a secret is in %s", f)
			}
		}
	})
}

// TestPerfLeaksTheSecret shows that the search finds what it looks for, and
// that it is worth looking for.
func TestPerfLeaksTheSecret(t *testing.T) {
	t.Parallel()
	needRoot(t)
	need(t, "perf")
	s, dir := newSecret(), t.TempDir()
	cmd := lane.UserPerf("record", "-q", "--call-graph", "dwarf", "-e", "page-faults:u", "-c", "1",
		"-o", "perf.data", "--", programs.Build(t, "secret"), programs.Times(counted))
	cmd.Dir, cmd.Env, cmd.Stdin = dir, confined(dir), strings.NewReader(s.digits())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	if found, _ := inFiles([]secret{s}, dir, time.Time{}); len(found) == 0 {
		t.Error("perf record --call-graph dwarf did not write the secret: the test looks in the wrong place")
	}
}

// openForWriting lists the files on disk or in memory that a process could write.
func openForWriting(pid int) (files []string) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	fds, _ := os.ReadDir(dir + "fd")
	for _, fd := range fds {
		link, err := os.Readlink(dir + "fd/" + fd.Name())
		if err != nil || !strings.HasPrefix(link, "/") || strings.HasPrefix(link, "/dev/null") {
			continue
		}
		info, _ := os.ReadFile(dir + "fdinfo/" + fd.Name())
		_, flags, _ := strings.Cut(string(info), "flags:")
		fields := strings.Fields(flags)
		if len(fields) == 0 {
			continue
		}
		if mode, err := strconv.ParseUint(fields[0], 8, 32); err == nil && mode&3 != 0 {
			files = append(files, link)
		}
	}
	return files
}
