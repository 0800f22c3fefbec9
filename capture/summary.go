package capture

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unspool/capture/human"
	"unspool/perfring"
	"unspool/unwind"
)

// remedies say what a user can do about stacks that ended for a reason.
var remedies = [unwind.NumReasons]string{
	unwind.DumpTooShort: "copy more of the stack: --stack-size %d",
	unwind.NoCFI:        "no unwind tables for this code",
	unwind.NoImage:      "the file could not be read",
	unwind.BadCFI:       "the unwind tables do not fit the stack",
	unwind.Unmapped:     "the return address is in no mapping that can be executed",
	unwind.DepthLimit:   "allow more frames: --max-stack %d",
}

// Limits are the settings that the summary's advice refers to.
type Limits struct {
	StackSize int // bytes asked of the kernel
	MaxStack  int // frames

	// Converted says that the recording was made by another tool: StackSize is
	// not asked for, and advice on how to record is in perf's words.
	Converted bool
}

// WriteSummary writes what a person wants to know after a recording: how
// many samples, how many stacks are complete, why the others are not and what
// to do about it, what was lost, and what it cost.
func WriteSummary(w io.Writer, s *Stats, t *Trouble, limits Limits, output string) {
	did := ""
	if limits.Converted {
		did = " converted"
	}
	fmt.Fprintf(w, "%s samples%s in %.1f s", human.Number(s.Samples), did, s.Duration.Seconds())
	switch {
	case s.User == 0 && s.Samples > 0:
		fmt.Fprint(w, ", none with a user stack")
	case s.User < s.Samples:
		fmt.Fprintf(w, ", %s with a user stack, %s in the kernel only", human.Number(s.User), human.Number(s.Samples-s.User))
		if s.Exec > 0 {
			fmt.Fprintf(w, ", %s of them inside execve", human.Number(s.Exec))
		}
	case s.Samples > 0:
		fmt.Fprint(w, ", all with a user stack")
	}
	fmt.Fprintln(w)

	if s.User > 0 {
		fmt.Fprintf(w, "%s of the user stacks are complete (%s of %s), %.1f frames deep on average\n",
			human.Percent(s.Complete(), s.User), human.Number(s.Complete()), human.Number(s.User), float64(s.Frames)/float64(s.User))
	}
	for r := range unwind.Reason(unwind.NumReasons) {
		if n := s.Ended[r]; r != unwind.Root && n > 0 {
			fmt.Fprintf(w, "  %7s  %-17s  %s\n", human.Percent(n, s.User), r.Words(), advice(r, t, limits))
		}
	}
	if s.Lost > 0 {
		keeps := "a larger ring (-m) or a lower rate (-F) keeps them"
		if limits.Converted {
			keeps = "while they were recorded"
		}
		fmt.Fprintf(w, "%s records were lost: %s\n", human.Number(s.Lost), keeps)
	}
	if s.Throttled > 0 {
		fmt.Fprintf(w, "the kernel throttled sampling %s times: a lower rate (-F) avoids it\n", human.Number(s.Throttled))
	}
	if s.Malformed > 0 {
		fmt.Fprintf(w, "%s records could not be decoded\n", human.Number(s.Malformed))
	}
	const short = 100 * time.Millisecond // the start alone takes a share of this
	if limits.Converted || s.Duration < short {
		fmt.Fprintf(w, "unspool took %.2f s of CPU time", s.CPU.Seconds())
	} else {
		fmt.Fprintf(w, "unspool took %.1f %% of one CPU", 100*s.CPUShare())
	}
	if s.Samples > 0 {
		fmt.Fprintf(w, ", %.1f µs a sample", float64(s.Busy.Nanoseconds())/1e3/float64(s.Samples))
	}
	fmt.Fprintf(w, "; %s of stack unwound into %s", size(s.StackCopied), size(s.Written))
	if output != "" {
		fmt.Fprintf(w, " in %s", output)
	}
	fmt.Fprintln(w)
}

// advice names the files behind a reason and what can be done.
func advice(r unwind.Reason, t *Trouble, limits Limits) string {
	switch r {
	case unwind.DumpTooShort:
		if limits.Converted {
			return fmt.Sprintf("record with more of the stack: --call-graph dwarf,%d at most",
				perfring.MaxStackSize)
		}
		if next := min(2*limits.StackSize, perfring.MaxStackSize); next > limits.StackSize {
			return fmt.Sprintf(remedies[r], next)
		}
		return "deeper than the kernel can copy"
	case unwind.DepthLimit:
		return fmt.Sprintf(remedies[r], 2*limits.MaxStack)
	}
	var names []string
	places := t.Places(r)
	for _, p := range places[:min(3, len(places))] {
		name := placeName(p.Path)
		if err := t.File(p.Path); err != nil {
			name = err.Error()
		}
		names = append(names, fmt.Sprintf("%s (%s)", name, human.Number(p.Samples)))
	}
	if len(places) > 3 {
		names = append(names, fmt.Sprintf("%d more", len(places)-3))
	}
	if len(names) == 0 {
		return remedies[r]
	}
	return remedies[r] + ": " + strings.Join(names, ", ")
}

func placeName(path string) string {
	switch {
	case path == "":
		return "sampled outside of any mapping"
	case path == "//anon":
		return "code generated at run time"
	case strings.HasPrefix(path, "/"):
		return filepath.Base(path)
	}
	return path
}

func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

// WriteFiles names every mapped file that could not be used, and why.
func WriteFiles(w io.Writer, t *Trouble) {
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		fmt.Fprintf(w, "not used: %v\n", t.files[path])
	}
}
