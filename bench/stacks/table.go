package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"unspool/bench/workloads"
	"unspool/capture/verdict/check"
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
program. *Complete* is a share of all samples that ran user code; *CFI alone* those of them of whose frames
none was found otherwise. *Too deep* is longer than the copy; a *gap* is a page that is not there, as in a
large array that the program has not written to yet, at which the kernel ends the copy: both by what the
recording shows of the stack, and not by the walk. *Rest* says where the other stacks end: `+
		"`dump_too_short`"+` there
means that the copy seems to hold the whole stack, and that the walk left it, for another stack or by mistake.

*Wrong* are edges, pairs of a caller and its callee, that cannot be by the code (`+"`unspool check`"+`), of
those whose callers CFI found, and of all others; in brackets how many could be checked. *perf* is a share of
the samples whose copy holds the whole stack: a stack of perf's counts as complete when it ends where complete
ones of unspool's end, whatever is between.

%s

| program | samples | mean depth | complete | CFI alone | too deep | gap | wrong, CFI | wrong, others `+
		`| rest | perf |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|
`, t.bench.freq, t.bench.stackSize, t.bench.perfLimit, workloads.Machine())
	cut := false
	for _, r := range t.results {
		perf := r.perf.String()
		if !r.perf.all && r.perf.samples > 0 {
			perf += "*"
			cut = true
		}
		byCFI, others := r.edges()
		share := func(n uint64) string { return percent(n, r.stats.User) }
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s | %s | %s | %s | %s | %s | %s | %s |\n",
			strings.TrimSpace(r.program.Name+" "+r.version), thousands(r.stats.User),
			float64(r.stats.Frames)/float64(r.stats.User), r.completeShare(), share(r.walks.CFIAlone),
			share(r.walks.Cuts[check.TooDeep]), share(r.walks.Cuts[check.Gap]), wrong(&byCFI), wrong(&others),
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

// edges are those of callers that CFI found, and of all others.
func (r *result) edges() (byCFI, others check.Counts) {
	for source, counts := range r.checker.BySource {
		for verdict, n := range counts {
			if unwind.Source(source) == unwind.ByCFI {
				byCFI[verdict] += n
			} else {
				others[verdict] += n
			}
		}
	}
	return byCFI, others
}

// wrong is the share of edges that cannot be.
func wrong(c *check.Counts) string {
	switch {
	case c.Checked() == 0:
		return "–"
	case c.Wrong() == 0:
		return fmt.Sprintf("0 (%s)", thousands(c.Checked()))
	}
	return fmt.Sprintf("%d: %.3f %% (%s)", c.Wrong(), 100*c.Share(), thousands(c.Checked()))
}

// Limits on wrong edges, in percent.
const (
	mostByCFI  = 0.01
	mostOthers = 0.1
)

// tooWrong says of which programs more edges are wrong than may be.
func (t *table) tooWrong() (names []string) {
	for _, r := range t.results {
		byCFI, others := r.edges()
		if 100*byCFI.Share() > mostByCFI || 100*others.Share() > mostOthers {
			names = append(names, r.program.Name)
		}
	}
	return names
}

// rest names the reasons for which stacks ended early, and the files.
func (r *result) rest() string {
	reasons := []unwind.Reason{unwind.NoCFI, unwind.NoImage, unwind.BadCFI, unwind.Unmapped, unwind.DepthLimit,
		unwind.UnknownRegister, unwind.NotCopied}
	var parts []string
	if n := r.walks.Cuts[check.NotCut]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s %s", unwind.DumpTooShort, percent(n, r.stats.User)))
	}
	slices.SortStableFunc(reasons, func(x, y unwind.Reason) int {
		return cmp.Compare(r.stats.Ended[y], r.stats.Ended[x])
	})
	for _, why := range reasons {
		n := r.stats.Ended[why]
		if n == 0 {
			continue
		}
		part := fmt.Sprintf("%s %s", why, percent(n, r.stats.User))
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
