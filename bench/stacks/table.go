package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unspool/bench/workloads"
	"unspool/unwind"
)

// A table is what the run is for.
type table struct {
	bench   *bench
	results []*result
	leftOut []string
}

// percent is a share that never rounds up to a whole.
func percent(part, whole uint64) string {
	switch {
	case whole == 0:
		return "–"
	case part == whole:
		return "100 %"
	case part == 0:
		return "0 %"
	}
	share := 100 * float64(part) / float64(whole)
	switch {
	case share < 0.01:
		return "< 0.01 %"
	case share > 99.99:
		return "> 99.99 %"
	case share < 10 || share > 90:
		return fmt.Sprintf("%.2f %%", share)
	}
	return fmt.Sprintf("%.1f %%", share)
}

func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Stacks that reach their root

Made by `+"`make bench-stacks`"+`, which installs the programs, records each for a few seconds with

    perf record -e cpu-clock -F %d --call-graph dwarf,%d

and unwinds the very same samples with unspool and with `+"`perf script`"+`, which gets %v for each
program. *Complete* and *perf* are shares of the samples whose copy holds the whole stack. The others
are *too deep*, or their copy has a *gap*: the kernel ends it at a page that is not there, as in a large
array that the program has not written to yet; stacks of Go's that went on on another stack count there,
too. perf's stack counts as complete when it ends where complete ones of
unspool's end, whatever is between. *Rest* says where unspool's other stacks end.

%s

| program | samples | mean depth | complete | too deep | gap | rest | perf |
|---|---:|---:|---:|---:|---:|---|---:|
`, t.bench.freq, t.bench.stackSize, t.bench.perfLimit, workloads.Machine())
	cut := false
	for _, r := range t.results {
		perf := r.perf.String()
		if !r.perf.all && r.perf.samples > 0 {
			perf += "*"
			cut = true
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s | %s | %s | %s | %s |\n",
			strings.TrimSpace(r.program.Name+" "+r.version), thousands(r.stats.User),
			float64(r.stats.Frames)/float64(r.stats.User), r.completeShare(),
			percent(r.stats.Ended[unwind.DumpTooShort]-r.absent, r.stats.User), percent(r.absent, r.stats.User),
			r.rest(), perf)
	}
	if cut {
		b.WriteString("\n\\* of the samples that perf script got to in its time\n")
	}
	if len(t.leftOut) > 0 {
		fmt.Fprintf(&b, "\nLeft out: %s.\n", strings.Join(t.leftOut, ", "))
	}
	return b.String()
}

// rest names the reasons for which stacks ended early, and the files.
func (r *result) rest() string {
	reasons := []unwind.Reason{unwind.NoCFI, unwind.NoImage, unwind.BadCFI, unwind.Unmapped, unwind.DepthLimit}
	slices.SortStableFunc(reasons, func(x, y unwind.Reason) int {
		return cmp.Compare(r.stats.Ended[y], r.stats.Ended[x])
	})
	var parts []string
	for _, why := range reasons {
		n := r.stats.Ended[why]
		if n == 0 {
			continue
		}
		part := fmt.Sprintf("%s %s", why, percent(n, r.holding()))
		var files []string
		for i, p := range r.trouble.Places(why) {
			if i == 2 {
				files = append(files, "…")
				break
			}
			name := "?"
			if p.Path != "" {
				name = filepath.Base(p.Path)
			}
			files = append(files, fmt.Sprintf("%s %d", name, p.Samples))
		}
		parts = append(parts, part+" ("+strings.Join(files, ", ")+")")
	}
	return strings.Join(parts, "; ")
}

func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
