package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"unspool/bench/section"
)

const (
	// sizeSeconds is how long the recordings take that are measured, in CPU time of the program at 999 Hz.
	sizeSeconds = 3
	// pepSamples is how many samples the PEP's recordings have.
	pepSamples = 38_000
	// scriptLimit is how long perf script may take for one recording.
	scriptLimit = 90 * time.Second
)

const sizesIntro = `Debian's python3, without frame pointers, and the C program, which has them, for %d s of CPU
time at 999 Hz. MB are for 38,000 samples, by those of each sample here. *Flat* is a script whose Python calls share one
native frame; *deep* goes through trees of up to 60 levels by 'sum(map(…))', which are calls from C. *Reaches the
start* are stacks that end in '_start': for perf, by the last line of 'perf script -F ip,sym --no-inline'; for
unspool, complete by its own count ('--stats'). By its default, unspool completes stacks that the copy has cut with
reads of the rest at the sample, and with samples before and after.

`

// sizes measures recordings of python3 with copies of each size.
func (b *bench) sizes() (string, error) {
	head := []string{"recorded", "perf, MB"}
	for _, p := range b.perfs {
		head = append(head, p.version+": reaches the start")
	}
	t := section.NewTable(append(head, "frames", "unspool, MB", "`--no-join`: reaches the start",
		"default: reaches the start", "frames")...)
	tasks, err := b.tasks("python3, flat", "python3, deep", "C, 64 frames")
	if err != nil {
		return "", err
	}
	for i := range tasks {
		rows := make(map[string]sizeRow)
		for _, graph := range []string{"fp", "8192", "16384", "32768", "65528"} {
			if i == 2 && (graph == "16384" || graph == "32768") {
				continue // its stacks fit into 8 KiB
			}
			r, err := b.size(&tasks[i], graph)
			if err != nil {
				return "", err
			}
			rows[graph] = r
			row := slices.Concat([]string{r.name, r.perfMB}, r.whole, []string{r.perfFrames, r.unspoolMB, r.alone, r.joined,
				r.frames})
			t.Add(row...)
			b.say("sizes: %s", strings.Join(row, ", "))
		}
		if i == 2 {
			break // the PEP is about python3
		}
		fp, small, large := rows["fp"], rows["8192"], rows["65528"]
		size, pep := "frame pointers "+fp.perfMB+" MB, DWARF "+small.perfMB+" MB", "\"silently truncates\""
		if i == 0 {
			b.claim(tasks[i].name+": file of 38,000 samples", "5.6 MB, DWARF 306.5 MB",
				slices.Repeat([]string{size}, len(b.perfs)), large.unspoolMB+" MB")
			pep = "frame pointers of a python3 without them: \"broken or incomplete\""
			b.claim(tasks[i].name+": stacks to the start, by frame pointers", pep, fp.whole, "–")
			pep = "DWARF \"silently truncates\""
		}
		b.claim(tasks[i].name+": stacks to the start, by DWARF and 8 KiB", pep, small.whole,
			small.joined+" ("+large.joined+" by default)")
	}
	return fmt.Sprintf(sizesIntro, sizeSeconds) + t.String(), nil
}

// A sizeRow is a row of the table.
type sizeRow struct {
	name, perfMB string
	whole        []string // by each perf
	perfFrames   string

	// by unspool: without joins, and with them
	unspoolMB, alone, joined, frames string
}

// size is the row for a task and a size of copies, or for frame pointers.
func (b *bench) size(t *task, size string) (row sizeRow, err error) {
	graph := "dwarf," + size
	row.name = fmt.Sprintf("%s, %s bytes", t.name, size)
	if size == "fp" {
		graph, row.name = "fp", t.name+", frame pointers"
	}
	megabytes := func(r *recording) string {
		return fmt.Sprintf("%.1f", float64(r.bytes)/1e6*pepSamples/float64(max(1, r.samples)))
	}
	rounds := t.rounds(sizeSeconds)
	r, err := b.record(b.byPerf("", 999, graph), t, rounds)
	if err != nil {
		return row, err
	}
	row.perfMB = megabytes(r)
	for _, p := range b.perfs {
		s, err := script(p.path, r.path)
		if err != nil {
			return row, err
		}
		row.whole = append(row.whole, s.share())
		row.perfFrames = fmt.Sprintf("%.1f", float64(s.frames)/float64(max(1, s.stacks)))
	}
	if size == "fp" {
		return row, nil
	}
	alone, err := b.record(b.byUnspool("", 999, "--stack-size", size, "--no-join"), t, rounds)
	if err != nil {
		return row, err
	}
	joined, err := b.record(b.byUnspool("", 999, "--stack-size", size), t, rounds)
	if err != nil {
		return row, err
	}
	row.unspoolMB = megabytes(joined)
	row.alone, row.joined = percent(alone.complete, alone.user), percent(joined.complete, joined.user)
	row.frames = fmt.Sprintf("%.1f", float64(joined.frames)/float64(max(1, joined.user)))
	return row, nil
}

// percent is a share that does not round up to a whole.
func percent(part, whole int) string {
	switch share := 100 * float64(part) / float64(max(1, whole)); {
	case part < whole && share > 99.99:
		return "> 99.99 %"
	case share > 99 && part < whole:
		return fmt.Sprintf("%.2f %%", share)
	default:
		return fmt.Sprintf("%.3g %%", share)
	}
}

// scripted is what perf script finds in a recording.
type scripted struct {
	stacks, frames, whole int
	cut                   bool // its time was over before the end
}

func (s *scripted) share() string {
	if s.cut {
		return fmt.Sprintf("%s of the first %d", percent(s.whole, s.stacks), s.stacks)
	}
	return percent(s.whole, s.stacks)
}

// script has perf script unwind a recording.
func script(perf, path string) (*scripted, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptLimit)
	defer cancel()
	c := exec.CommandContext(ctx, perf, "script", "-i", path, "-F", "ip,sym", "--no-inline", "--max-stack", "2048")
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	s, err := readScript(out)
	if e := c.Wait(); e != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%s script: %w", perf, e)
	}
	s.cut = ctx.Err() != nil
	return s, err
}

// readScript counts stacks: lines with an address and a name each, and an empty line behind them. The frames of the
// kernel do not count.
func readScript(r io.Reader) (*scripted, error) {
	s := new(scripted)
	var last string
	frames := 0
	end := func() {
		if frames > 0 {
			s.stacks++
			s.frames += frames
			if last == "_start" {
				s.whole++
			}
		}
		frames = 0
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 0 {
			end()
			continue
		}
		if ip, err := strconv.ParseUint(f[0], 16, 64); err != nil || ip>>63 != 0 {
			continue
		}
		last = ""
		if len(f) > 1 {
			last = f[1]
		}
		frames++
	}
	end()
	err := lines.Err()
	if err != nil && strings.Contains(err.Error(), os.ErrClosed.Error()) {
		err = nil // it was killed
	}
	return s, err
}
