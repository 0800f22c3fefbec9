package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"unspool/bench/section"
	"unspool/bench/workloads"
)

// The requirements for convert.
const (
	readLimit   = limit(1.5) // times the time to read the file
	scriptTimes = 20         // times less user time than perf script
	injectTimes = 10         // times less user time than perf inject
	convertRuns = 3          // number of runs, of which the best counts
)

// convert compares unspool convert with reading the recording and with perf.
func (b *bench) convert() (string, error) {
	unspool, err := b.executable()
	if err != nil {
		return "", err
	}
	if err := exec.Command(unspool, "convert", "--help").Run(); err != nil {
		return "", fmt.Errorf("%s has no convert", unspool)
	}
	large, err := b.large()
	if err != nil {
		return "", err
	}
	read, err := b.convertAndRead(unspool, large)
	if err != nil {
		return "", err
	}
	table := section.NewTable("recording", "", "user frames", "elapsed, s", "user, s", "asked, × convert's",
		"× convert's", "resident, MiB")
	if err := b.convertAndPerf(table, unspool, large, fmt.Sprintf("%.1f GB", b.gigabytes)); err != nil {
		return "", err
	}
	if b.recordings == b.dir {
		os.Remove(large)
	}
	path, err := b.recorded(compared)
	if err != nil {
		b.leaveOut(compared, err)
	} else if err := b.convertAndPerf(table, unspool, path, b.title(compared)); err != nil {
		return "", err
	}
	return "## Convert\n\n" + read + "\n" + table.String(), nil
}

// convertAndRead converts a large recording.
func (b *bench) convertAndRead(unspool, path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	out := filepath.Join(b.dir, "converted.data")
	t := section.NewTable(fmt.Sprintf("%.2f GB", float64(st.Size())/1e9), "elapsed, s", "user, s", "system, s",
		"asked, × reading", "× reading", "resident, MiB")
	read, err := readOnly(convertRuns+1, path, blockSize)
	if err != nil {
		return "", err
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
	t.Add(fmt.Sprintf("reading blocks of %d KiB", blockSize>>10), seconds(read.elapsed), seconds(read.user),
		seconds(read.system), "", "1.00", "–")
	for jobs := 1; ; jobs = workloads.CPUs() {
		c, err := fastest(convertRuns, unspool, "convert", "-q", "-j", strconv.Itoa(jobs), "-o", out, path)
		if err != nil {
			return "", err
		}
		ratio := float64(c.elapsed) / float64(read.elapsed)
		asked := readLimit
		if jobs > 1 {
			asked = 0
		}
		t.Add(fmt.Sprintf("unspool convert -j %d", jobs), seconds(c.elapsed), seconds(c.user), seconds(c.system),
			asked.String(), asked.mark(ratio, "%.2f"), fmt.Sprintf("%.0f", c.memory))
		b.say("convert -j %d: %.2f × reading", jobs, ratio)
		if jobs == workloads.CPUs() {
			break
		}
	}
	result, err := os.Stat(out)
	if err != nil {
		return "", err
	}
	return t.String() + fmt.Sprintf("\nThe output has %.1f MB.\n", float64(result.Size())/1e6), nil
}

// compared is the program whose recording perf also reads, besides the large one. In a recording
// of several processes perf loses frames, which makes it faster.
const compared = "cc1plus"

// convertAndPerf converts a recording with unspool and with perf.
func (b *bench) convertAndPerf(t *section.Table, unspool, path, name string) error {
	// The kernel divides time into user and system time by its ticks only, so a short run has to be
	// repeated many times.
	const least = 500 * time.Millisecond
	stats := filepath.Join(b.dir, "converted.json")
	var ours cost
	runs := 0
	for ; ours.user+ours.system < least || runs < convertRuns; runs++ {
		c, err := execute(0, exec.Command(unspool, "convert", "-q", "-o", filepath.Join(b.dir, "converted.data"),
			"--stats", stats, path))
		if err != nil {
			return err
		}
		ours.elapsed, ours.user, ours.system = ours.elapsed+c.elapsed, ours.user+c.user, ours.system+c.system
		ours.memory = max(ours.memory, c.memory)
	}
	user := max(ours.user/time.Duration(runs), time.Microsecond)
	var st struct{ Unwind struct{ Frames int } }
	if err := json.Unmarshal([]byte(readText(stats)), &st); err != nil {
		return err
	}
	t.Add(name, "unspool convert", thousands(st.Unwind.Frames),
		fmt.Sprintf("%.3f", ours.elapsed.Seconds()/float64(runs)), fmt.Sprintf("%.3f", user.Seconds()), "", "1.0",
		fmt.Sprintf("%.0f", ours.memory))
	compare := func(what string, asked float64, args ...string) {
		cmd := exec.Command("perf", args...)
		var frames userFrames
		cmd.Stdout = &frames
		c, err := execute(b.perfLimit, cmd)
		if err != nil {
			b.leaveOut(what, err)
			return
		}
		times := float64(c.user) / float64(user)
		shown := fmt.Sprintf("%.1f", times)
		if c.cut {
			shown = "> " + shown
			what += fmt.Sprintf(", not done after %v", b.perfLimit)
		} else if times < asked {
			shown = "**" + shown + "**"
		}
		found := "–"
		if frames.n > 0 {
			found = thousands(frames.n)
		}
		t.Add(name, what, found, fmt.Sprintf("%.2f", c.elapsed.Seconds()), fmt.Sprintf("%.2f", c.user.Seconds()),
			fmt.Sprintf("≥ %.0f", asked), shown, fmt.Sprintf("%.0f", c.memory))
		b.say("%s, %s: %s × convert's user time", name, what, shown)
	}
	compare("perf script -F ip,sym --no-inline", scriptTimes, "script", "-i", path, "-F", "ip,sym",
		"--no-inline")
	help, _ := exec.Command("perf", "inject", "-h").CombinedOutput()
	if bytes.Contains(help, []byte("convert-callchain")) {
		compare("perf inject --convert-callchain", injectTimes, "inject", "--convert-callchain", "-i", path,
			"-o", filepath.Join(b.dir, "injected.data"))
	}
	return nil
}

// userFrames counts the user frames that perf script prints, in lines of an address and a name.
type userFrames struct {
	n    int
	rest []byte // the beginning of a line that is not complete yet
}

func (u *userFrames) Write(p []byte) (int, error) {
	u.rest = append(u.rest, p...)
	for {
		line, rest, ok := bytes.Cut(u.rest, []byte("\n"))
		if !ok {
			u.rest = append(u.rest[:0], u.rest...)
			return len(p), nil
		}
		u.rest = rest
		ip, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if len(ip) > 0 && !(len(ip) == 16 && ip[0] == 'f') { // the kernel has the upper half
			u.n++
		}
	}
}

// largeName is the file of the recording of the whole system.
const largeName = "large.data"

// large makes a recording of the whole system, busy with several programs, of as many
// gigabytes as were asked for.
func (b *bench) large() (string, error) {
	path := filepath.Join(b.recordings, largeName)
	size := int64(b.gigabytes * 1e9)
	if st, err := os.Stat(path); err == nil && st.Size() >= size*9/10 {
		return path, nil
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(b.recordings, &fs); err != nil {
		return "", err
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < 2*size {
		return "", fmt.Errorf("%d MB free in %s are too few", free>>20, b.recordings)
	}
	var loads []*workloads.Workload
	for _, name := range []string{"python3", "cc1plus", "perl", "git log"} {
		w, err := b.prepared(name)
		if err != nil {
			b.leaveOut(name, err)
			continue
		}
		loads = append(loads, w)
	}
	if len(loads) == 0 {
		return "", errors.New("nothing to record")
	}
	for _, w := range loads {
		stop, err := w.Loop(-1)
		if err != nil {
			return "", err
		}
		defer stop()
	}
	b.say("recording %.1f GB", b.gigabytes)
	c := exec.Command("perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", "1999", "-m", "4M", "-r", "1",
		"--call-graph", "dwarf,32768", "-o", path, "--", "sleep", "60")
	stderr := new(tail)
	c.Stderr = stderr
	if err := c.Start(); err != nil {
		return "", err
	}
	over := make(chan error, 1)
	go func() { over <- c.Wait() }()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case err := <-over:
			if st, serr := os.Stat(path); serr == nil && st.Size() > size/2 {
				return path, nil // perf's status only says that it was interrupted
			}
			return "", fmt.Errorf("perf record: %w\n%s", err, stderr.text)
		case <-tick.C:
			if st, err := os.Stat(path); err == nil && st.Size() >= size {
				_ = c.Process.Signal(syscall.SIGINT)
			}
		}
	}
}
