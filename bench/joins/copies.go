package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"unspool/bench/workloads"
	"unspool/capture/verdict/compare"
)

// copied are the programs that are recorded with copies of several sizes.
var copied = []string{"clang", "rustc", "cc1plus", "go build", "python3", "perl", "git log", "node",
	"sqlite3",
	"ffmpeg (libx264)", "x265", "rav1e", "aomenc", "SVT-AV1", "OpenBLAS", "gnat", "imagemagick", "memcached", "chromium"}

// copySizes are the sizes of the copies.
var copySizes = []int{8 << 10, 16 << 10, 32 << 10, 65528}

// recorded is what unspool record says of a recording.
type recorded struct {
	Samples struct{ User, Lost uint64 }
	Unwind  struct {
		Complete   uint64
		CompleteBy struct{ Joined uint64 } `json:"complete_by"`
		Ended      struct {
			DumpTooShort uint64 `json:"dump_too_short"`
		}
	}
	Cost struct {
		CPU float64 `json:"cpu_s"`
	}
}

// add adds another recording of the same program.
func (r *recorded) add(o *recorded) {
	r.Samples.User += o.Samples.User
	r.Samples.Lost += o.Samples.Lost
	r.Unwind.Complete += o.Unwind.Complete
	r.Unwind.CompleteBy.Joined += o.Unwind.CompleteBy.Joined
	r.Unwind.Ended.DumpTooShort += o.Unwind.Ended.DumpTooShort
	r.Cost.CPU += o.Cost.CPU
}

// copies records programs with copies of each size, as a user does.
func (b *bench) copies(chosen []workloads.Program) (string, error) {
	unspool := filepath.Join(b.dir, "unspool")
	build := exec.Command("go", "build", "-o", unspool, "unspool/cmd/unspool")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	kernel := make(map[int]float64)
	var s strings.Builder
	s.WriteString(copiesIntro)
	fmt.Fprintf(&s, "%s, %d Hz, %d recordings of each.\n\n"+
		"    go run ./bench/joins -copies -runs %d -o bench/COPIES.md\n\n",
		time.Now().UTC().Format(time.DateOnly), b.freq, b.runs, b.runs)
	for _, size := range copySizes {
		for range 5 { // the least, as other programs can only add to it
			costs, err := compare.Measure(size)
			if err != nil {
				return "", err
			}
			if us := float64(costs.Stack.Kernel.Nanoseconds()) / 1e3; kernel[size] == 0 || us < kernel[size] {
				kernel[size] = us
			}
		}
	}
	s.WriteString("| program | copy | samples | lost | complete by the copy | joined | in all | cut | " +
		"unspool, µs/sample | kernel, µs/sample | both |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	var sums [9]float64
	var leftOut []string
	for i := range chosen {
		p := &chosen[i]
		rows, err := b.copiesOf(unspool, p)
		if err != nil {
			line, _, _ := strings.Cut(err.Error(), "\n")
			leftOut = append(leftOut, fmt.Sprintf("%s (%s)", p.Name, line))
			continue
		}
		for k, r := range rows {
			all, user := float64(r.Unwind.Complete), max(1, float64(r.Samples.User))
			joined, size := float64(r.Unwind.CompleteBy.Joined), copySizes[k]
			own := 1e6 * r.Cost.CPU / user
			fmt.Fprintf(&s, "| %s | %d KiB | %d | %d | %.1f %% | %.1f %% | %.2f %% | %.2f %% | %.1f | %.1f | %.1f |\n",
				p.Name, (size+1023)>>10, r.Samples.User, r.Samples.Lost, 100*(all-joined)/user, 100*joined/user,
				100*all/user,
				100*float64(r.Unwind.Ended.DumpTooShort)/user, own, kernel[size], own+kernel[size])
			sums[2*k] += 100 * all / user
			sums[2*k+1] += own
		}
		sums[8]++
	}
	for k, size := range copySizes {
		own := sums[2*k+1] / max(1, sums[8])
		fmt.Fprintf(&s, "| mean of all | %d KiB | | | | | %.2f %% | | %.1f | %.1f | %.1f |\n", (size+1023)>>10,
			sums[2*k]/max(1, sums[8]), own, kernel[size], own+kernel[size])
	}
	load, _ := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(load), " ")
	fmt.Fprintf(&s, "\nThe load was %s at the end.\n", minute)
	if len(leftOut) > 0 {
		fmt.Fprintf(&s, "\nLeft out: %s.\n", strings.Join(leftOut, ", "))
	}
	return s.String(), nil
}

const copiesIntro = `# How much of a stack to copy

Programs are recorded with 'unspool record' with copies of each size, one after the other. Stacks that the
copy cuts off are completed with what is read of them when they are sampled, and with what is seen of them
before and after; both are joined here. Shares are of the samples with a user stack. Cut are those that the
copy cuts off and that were not completed; what is neither complete nor cut has ended for another reason, as
where Go's code is on another stack. unspool's time is its CPU time for each sample, its start and end included. The
kernel's is what 'unspool compare' measures before it records: the time that a sample takes from a program
that does nothing else, at that size of the copy. The default is the largest size.

`

// copiesOf records a program with each size.
func (b *bench) copiesOf(unspool string, p *workloads.Program) (rows []recorded, err error) {
	if m := p.Missing(); m != "" {
		return nil, fmt.Errorf("no %s", m)
	}
	for _, size := range copySizes {
		var all recorded
		for range b.runs {
			r, err := b.copiesOnce(unspool, p, size)
			if err != nil {
				return nil, err
			}
			all.add(r)
		}
		fmt.Fprintf(os.Stderr, "%-14s %2d KiB: %d of %d complete\n", p.Name, size>>10, all.Unwind.Complete,
			all.Samples.User)
		rows = append(rows, all)
	}
	return rows, nil
}

// copiesOnce records a program with copies of a size.
func (b *bench) copiesOnce(unspool string, p *workloads.Program, size int) (*recorded, error) {
	// A folder for each, as a program may find there what it has made before.
	dir, err := os.MkdirTemp(b.dir, strings.ReplaceAll(p.Name, " ", "-"))
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w := workloads.Workload{Program: p, Root: b.root, Dir: dir, Freq: b.freq}
	if err := w.Prepare(); err != nil {
		return nil, err
	}
	stats := filepath.Join(dir, "stats.json")
	record, err := b.recordAs(unspool, dir)
	if err != nil {
		return nil, err
	}
	if err := w.RecordBy(append(record, "record", "-q", "-F", strconv.Itoa(b.freq),
		"--stack-size", strconv.Itoa(size),
		"-o", filepath.Join(dir, "recorded.data"), "--stats", stats)...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(stats)
	if err != nil {
		return nil, err
	}
	var r recorded
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if r.Samples.User == 0 {
		return nil, fmt.Errorf("no samples")
	}
	return &r, nil
}

// recordAs is the command that runs unspool as the user who records, to whom the folder of the program is given.
func (b *bench) recordAs(unspool, dir string) ([]string, error) {
	if b.as == "" {
		return []string{unspool}, nil
	}
	if out, err := exec.Command("chown", "-R", b.as, dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("chown: %w: %s", err, out)
	}
	return []string{"setpriv", "--reuid=" + b.as, "--clear-groups", "--inh-caps=-all", "env", "HOME=" + dir, unspool}, nil
}
