package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// A perfResult is how far perf script got with the samples whose copy holds
// the whole stack.
type perfResult struct {
	samples, complete uint64
	all               bool // it got to the end of the recording in time
}

func (p perfResult) String() string {
	if p.samples == 0 {
		return "none in time"
	}
	return percent(p.complete, p.samples)
}

// perfScript lets perf script unwind a recording. It is asked for addresses
// only: names take it many times as long.
func perfScript(data string, r *result, limit time.Duration) (p perfResult, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, "perf", "script", "-i", data, "-F", "pid,tid,time,ip,dso",
		"--ns", "--no-inline", "--max-stack", "2048")
	out, err := c.StdoutPipe()
	if err != nil {
		return p, err
	}
	if err := c.Start(); err != nil {
		return p, err
	}
	var key sampleKey
	var last position // of the outermost frame so far of the user part
	var frames int
	end := func() {
		if whole := r.whole[key]; whole {
			p.samples++
			// perf script lessens return addresses by one.
			if r.roots[position{last.path, last.offset + 1}] || frames == 1 && r.roots[last] {
				p.complete++
			}
		}
		key, last, frames = sampleKey{}, position{}, 0
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0:
			end()
		case strings.Contains(fields[0], "/"):
			key, err = parseHead(fields)
		default:
			// Addresses in files are printed as offsets in these.
			ip, e := strconv.ParseUint(fields[0], 16, 64)
			if e == nil && ip>>63 == 0 && len(fields) > 1 {
				last = position{strings.Trim(fields[1], "()"), ip}
				frames++
			}
		}
		if err != nil {
			cancel()
			break
		}
	}
	waitErr := c.Wait()
	p.all = waitErr == nil
	return p, err
}

// parseHead reads the line before a stack: "PID/TID SECONDS.NANOSECONDS:".
func parseHead(fields []string) (key sampleKey, err error) {
	if len(fields) < 2 {
		return key, fmt.Errorf("perf script: %q instead of a sample", fields)
	}
	_, tid, _ := strings.Cut(fields[0], "/")
	seconds, nanos, _ := strings.Cut(strings.TrimSuffix(fields[1], ":"), ".")
	var n [3]uint64
	for i, s := range []string{tid, seconds, nanos} {
		if n[i], err = strconv.ParseUint(s, 10, 64); err != nil {
			return key, fmt.Errorf("perf script: %q instead of a sample: %w", fields, err)
		}
	}
	return sampleKey{uint32(n[0]), n[1]*1e9 + n[2]}, nil
}
