package counts

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"unspool/capture/output/human"
	"unspool/capture/perfdata/replay"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/link"
)

// remedies say what a user can do about stacks that ended for a reason. A test looks for each but Root.
var remedies = [unwind.NumReasons]string{
	unwind.DumpTooShort: "copy more of the stack: --stack-size %d",
	unwind.NoCFI:        "no unwind tables for this code",
	unwind.NoImage:      "the file could not be read",
	unwind.BadCFI:       "the unwind tables do not fit the stack",
	unwind.Unmapped:     "the return address is in no mapping that can be executed",
	unwind.DepthLimit:   "allow more frames: --max-stack %d",

	unwind.UnknownRegister: "the unwind tables need a register that the kernel had not saved, or that is lost",
	unwind.NotCopied: "the unwind tables lead to memory that was not copied: below SP, on another stack, or " +
		"above a frame of more than 64 KiB",
}

// Settings are the settings to which the summary's advice refers.
type Settings struct {
	StackSize int // bytes asked of the kernel
	MaxStack  int // frames

	ReadsRest bool // what copies cut off is read when stacks are sampled
	RealTime  bool // it had real-time priority

	// Converted means that the recording was made by another tool: StackSize is unknown, and advice on how to
	// record names perf's options.
	Converted bool
	Copied    bool // it had no raw stacks: nothing was unwound
}

// plural is a number of things with the verb behind it.
func plural(n uint64, what, one, many string) string {
	if n == 1 {
		many = one
	}
	return human.Plural(n, what) + " " + many
}

// WriteSummary writes what a person wants to know after a recording: how
// many samples, how many stacks are complete, why the others are not and what
// to do about it, what was lost, and what it cost.
func WriteSummary(w io.Writer, s *Stats, t *Trouble, limits Settings, output string) {
	did := ""
	if limits.Converted {
		did = " converted"
	}
	if limits.Copied {
		did = " copied"
	}
	fmt.Fprintf(w, "%s%s in %.1f s", human.Plural(s.Samples, "sample"), did, s.Duration.Seconds())
	switch {
	case limits.Copied:
	case s.User == 0 && s.Samples > 0:
		fmt.Fprint(w, ", none with a user stack")
	case s.User < s.Samples:
		fmt.Fprintf(w, ", %s with a user stack, %s in the kernel only", human.Number(s.User),
			human.Number(s.Samples-s.User))
		if s.Exec > 0 {
			fmt.Fprintf(w, ", %s of them inside execve", human.Number(s.Exec))
		}
	case s.Samples > 0:
		fmt.Fprint(w, ", all with a user stack")
	}
	fmt.Fprintln(w)

	if s.User > 0 {
		writeComplete(w, s)
	}
	for r := range unwind.Reason(unwind.NumReasons) {
		n := s.Ended[r]
		if r == unwind.DumpTooShort {
			n = s.Cut[TooDeep]
			writeShare(w, s.Cut[Gap]+s.Cut[NoCopy], s.User, "gap in the copy",
				"it ends at a page of the stack that was never touched: more bytes do not help")
		}
		if r != unwind.Root {
			writeShare(w, n, s.User, r.Words(), advice(r, t, limits))
		}
	}
	t.Generated.write(w, s.User)
	if s.Denied > 0 {
		fmt.Fprintf(w, "%s of processes whose mappings (/proc/PID/maps) you may not read: as root, "+
			"or with CAP_SYS_PTRACE, they have stacks\n", plural(s.Denied, "sample", "is", "are"))
	}
	if n := s.Excluded[Outside]; n > 0 {
		fmt.Fprintf(w, "%s left out, of processes outside of this PID namespace (this container): "+
			"record on the host, or with the host's namespace (docker run --pid=host)\n",
			plural(n, "sample", "is", "are"))
	}
	if n := s.Excluded[Guest]; n > 0 {
		fmt.Fprintf(w, "%s left out, of virtual machines that run here\n", plural(n, "sample", "is", "are"))
	}
	writeLost(w, s, limits)
	if s.LeftOut > 0 {
		fmt.Fprintf(w, "idle processes that were not read, as they or their users have too many mappings and threads: %s\n",
			human.Number(s.LeftOut))
	}
	if s.Early > 0 {
		fmt.Fprintf(w, "%s taken while the mappings of the process were still being read: its stack may be incomplete\n",
			plural(s.Early, "sample", "was", "were"))
	}
	if n := s.CommandLines.LeftOut; n > 0 {
		fmt.Fprintf(w, "%s no command line: more than %d programs a second were executed\n",
			plural(n, "sampled program", "has", "have"), ProgramsPerSecond)
	}
	for _, note := range replay.ForgottenNotes(s.Forgotten) {
		fmt.Fprintln(w, note)
	}
	if len(s.OfflineCPUs) > 0 {
		fmt.Fprintf(w, "offline for a part of the time: CPU %s\n", strings.Trim(fmt.Sprint(s.OfflineCPUs), "[]"))
	}
	if s.Throttled > 0 {
		fmt.Fprintf(w, "the kernel throttled sampling %s times: a lower rate (-F) avoids it\n",
			human.Number(s.Throttled))
	}
	if s.Malformed > 0 {
		fmt.Fprintf(w, "%s records could not be decoded\n", human.Number(s.Malformed))
	}
	if limits.Converted {
		fmt.Fprintf(w, "unspool took %.2f s of CPU time", s.Busy.Seconds())
	} else {
		fmt.Fprintf(w, "unspool took %.1f %% of one CPU", 100*s.CPUShare())
	}
	if s.Samples > 0 && !limits.Copied {
		fmt.Fprintf(w, ", %.1f µs a sample", float64(s.Busy.Nanoseconds())/1e3/float64(s.Samples))
	}
	if !limits.Converted {
		fmt.Fprintf(w, ", and %.2f s of CPU time to start and to end", (s.Start + s.End()).Seconds())
	}
	fmt.Fprint(w, "; ")
	if !limits.Copied {
		fmt.Fprintf(w, "%s of stack unwound into ", human.Bytes(s.StackCopied))
	}
	fmt.Fprint(w, human.Bytes(s.Written))
	if output != "" {
		fmt.Fprintf(w, " in %s", printed(output))
	}
	fmt.Fprintln(w)
}

// writeLost writes how many records were lost, if any were, and how to avoid it.
func writeLost(w io.Writer, s *Stats, limits Settings) {
	if s.Lost == 0 {
		return
	}
	remedy := "a larger ring (-m) or a lower rate (-F) avoids it"
	if s.Priority == "ordinary" {
		remedy += ", and so does priority over what is recorded: run as root, or with CAP_SYS_NICE"
	}
	if limits.Converted {
		remedy = "the rings were full while it was recorded"
	}
	fmt.Fprintf(w, "%s lost: %s\n", plural(s.Lost, "record", "was", "were"), remedy)
}

// WriteLosses is the part of a summary that is no less true with --quiet: what was lost.
func WriteLosses(w io.Writer, s *Stats, limits Settings) {
	var b strings.Builder
	writeLost(&b, s, limits)
	if b.Len() > 0 {
		fmt.Fprintf(w, "unspool: %s", &b)
	}
}

// writeComplete writes the share of all user stacks that are complete, and how they were found.
func writeComplete(w io.Writer, s *Stats) {
	complete := s.Complete()
	fmt.Fprintf(w, "%s of the user stacks are complete (%s of %s)", human.Percent(complete, s.User),
		human.Number(complete), human.Number(s.User))
	switch {
	case complete == 0:
	case s.Guessed == 0 && s.Joined() == 0:
		fmt.Fprint(w, ", by CFI alone")
	default:
		fmt.Fprintf(w, ": %s by CFI alone", human.Percent(s.ByCFI(), s.User))
		if s.Guessed > 0 {
			fmt.Fprintf(w, ", %s with guessed frames", human.Percent(s.Guessed, s.User))
		}
		read := s.Links[link.Read]
		if read > 0 {
			fmt.Fprintf(w, ", %s with the rest read when they were sampled", human.Percent(read, s.User))
		}
		if joined := s.Joined() - read; joined > 0 {
			fmt.Fprintf(w, ", %s joined with callers seen before and after the sample",
				human.Percent(joined, s.User))
		}
	}
	fmt.Fprintf(w, "; %.1f frames deep on average\n", float64(s.Frames)/float64(s.User))
}

// writeShare writes how many of all user stacks ended in one way, if any did.
func writeShare(w io.Writer, n, all uint64, words, advice string) {
	if n > 0 {
		fmt.Fprintf(w, "  %7s  %-17s  %s\n", human.Percent(n, all), words, advice)
	}
}

// advice names the files behind a reason and what can be done.
func advice(r unwind.Reason, t *Trouble, limits Settings) string {
	switch r {
	case unwind.DumpTooShort:
		if limits.Converted {
			return fmt.Sprintf("record with more of the stack: --call-graph dwarf,%d at most",
				perfring.MaxStackSize)
		}
		return deeper(limits)
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
		names = append(names, fmt.Sprintf("%s (%s)", printed(name), human.Number(p.Samples)))
	}
	if len(places) > 3 {
		names = append(names, fmt.Sprintf("%d more", len(places)-3))
	}
	if len(names) == 0 {
		return remedies[r]
	}
	return remedies[r] + ": " + strings.Join(names, ", ")
}

// deeper is what to do about stacks that are deeper than the copy.
func deeper(limits Settings) string {
	next := min(2*limits.StackSize, perfring.MaxStackSize)
	switch {
	case limits.ReadsRest && !limits.RealTime:
		return "the rest could not be read when they were sampled: real-time priority reads more of them (as root, with " +
			"CAP_SYS_NICE, or `ulimit -r 1`)"
	case limits.ReadsRest:
		return "the rest could not be read when they were sampled"
	case next > limits.StackSize:
		return fmt.Sprintf(remedies[unwind.DumpTooShort], next)
	}
	return "deeper than the kernel can copy"
}

// mostPrinted is how many columns of a path or an error are printed: paths have up to 4,096 bytes.
const mostPrinted = 160

// printed makes text of the recorded system safe to print and not too long.
func printed(s string) string { return human.Shorten(human.Clean(s), mostPrinted) }

func placeName(path string) string {
	switch {
	case path == "":
		return "sampled outside of any mapping"
	case path == GeneratedCode:
		return "code generated at run time"
	case path == DeniedPlace:
		return "a process whose mappings may not be read"
	case path == OutsidePlace:
		return "a process outside of the PID namespace"
	case strings.HasPrefix(path, "/"):
		return filepath.Base(path)
	}
	return path
}

// WriteFiles names every mapped file that could not be used, and memory that was not read, and why.
func WriteFiles(w io.Writer, t *Trouble) {
	for _, err := range t.memory {
		fmt.Fprintf(w, "not used: %s\n", printed(err.Error()))
	}
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		fmt.Fprintf(w, "not used: %s\n", printed(t.files[path].Error()))
	}
}
