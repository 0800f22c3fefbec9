package capture

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"time"

	"unspool/capture/output/human"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/unwind/link"
	"unspool/vmas"
)

// Stats are the counts of a recording. Samples counts every sample, User those with a user stack, even if
// that is only the sampled PC.
type Stats struct {
	Samples   uint64
	User      uint64
	Exec      uint64 // of the others: inside execve, with the registers of the replaced program
	Lost      uint64 // samples and other records for which a ring had no room
	Throttled uint64
	Malformed uint64 // records that could not be decoded
	Denied    uint64 // of User: the mappings of the process may not be read

	LeftOut uint64 // processes that were not sampled, nor read, as they or those of their user have too many mappings
	Early   uint64 // samples of processes that have so many that they were not all read

	Forgotten vmas.Forgotten // of the processes, what there was no room for

	CommandLines CommandLines

	OfflineCPUs []int // CPUs that went offline meanwhile, in that order

	Excluded [numExclusions]uint64 // samples that are left out, and not in the counts above

	Frames  uint64 // of user stacks
	Ended   [unwind.NumReasons]uint64
	Cut     [numCuts]uint64 // of the user stacks that ended with DumpTooShort
	Guessed uint64          // complete ones with a frame that was not found by CFI
	// Links counts the stacks that the copy cut off by the outcome of completing them. The joined ones are in
	// Complete, and not in Guessed.
	Links    [link.NumOutcomes]uint64
	FramesBy [unwind.NumSources]uint64

	StackCopied uint64 // bytes of stack that the kernel copied into the rings
	Written     uint64 // bytes of the recording

	Command  []string
	Duration time.Duration // with the events enabled
	CPU      time.Duration // of the whole process, user and system
	Busy     time.Duration // of that, from enabling the events to the last sample written
	MaxRSS   uint64        // bytes
	Priority string        // of this process while it recorded, "" for a conversion: see package priority
}

// CommandLines counts the programs that were sampled by what became of their command lines.
type CommandLines struct {
	Kept    uint64 // they are recorded
	Unread  uint64 // it had ended before
	LeftOut uint64 // too many programs were executed
}

// A cut says why the copy of a stack ends before the stack does.
type cut uint8

const (
	// tooDeep: the copy has the size that was asked for.
	tooDeep cut = iota
	// gap: the copy ends at a page that is not in memory. The kernel faults none in.
	gap
	// noCopy: SP itself is on such a page, and the copy is empty.
	noCopy

	numCuts = iota
)

var cutNames = [numCuts]string{"too_deep", "gap", "no_copy"}

// cutOf returns why the copy of a sample's stack ends.
func cutOf(sm *perfring.Sample) cut {
	switch {
	case sm.DynSize == 0:
		return noCopy
	case sm.DynSize < sm.StackSize:
		return gap
	}
	return tooDeep
}

// Complete is the number of user stacks that reached their root.
func (s *Stats) Complete() uint64 { return s.Ended[unwind.Root] }

// Joined is the number of complete stacks that were cut off and completed: those that were joined, and those
// whose rest was read.
func (s *Stats) Joined() uint64 {
	return s.Links[link.Joined] + s.Links[link.Read]
}

// ByCFI is the number of complete stacks that were found by CFI alone.
func (s *Stats) ByCFI() uint64 { return s.Complete() - s.Guessed - s.Joined() }

// CPUShare is the share of one CPU that unspool took while it recorded.
func (s *Stats) CPUShare() float64 {
	if s.Duration <= 0 {
		return 0
	}
	return s.Busy.Seconds() / s.Duration.Seconds()
}

// unjoinedNames are the outcomes of stacks that were cut off and not completed.
var unjoinedNames = map[link.Outcome]string{
	link.Unseen: "unseen", link.OneSided: "one_sided", link.Disagree: "disagree", link.Doubtful: "doubtful",
}

// unjoined counts the stacks that ended with DumpTooShort by why they were not completed.
func (s *Stats) unjoined() map[string]uint64 {
	left := s.Ended[unwind.DumpTooShort]
	counts := make(map[string]uint64)
	for outcome, name := range unjoinedNames {
		counts[name] = s.Links[outcome]
		left -= min(left, s.Links[outcome])
	}
	counts["not_sought"] = left
	return counts
}

func (s *Stats) count(sm *perfring.Sample, r *unwind.Result, joined bool) {
	s.Ended[r.End]++
	if r.End == unwind.DumpTooShort {
		s.Cut[cutOf(sm)]++
	}
	s.Frames += uint64(len(r.IPs))
	guessed := s.countSources(r.Frames)
	if guessed && !joined && r.End == unwind.Root {
		s.Guessed++
	}
}

// countSources counts how the frames of a stack were found, and reports whether some were not found by CFI. As
// nearly all are, only the others are counted one by one.
func (s *Stats) countSources(frames []unwind.Frame) (guessed bool) {
	others, before := 0, s.FramesBy[unwind.BySample]
	for i := range frames {
		if by := frames[i].Source; by != unwind.ByCFI {
			others++
			s.FramesBy[by]++
		}
	}
	s.FramesBy[unwind.ByCFI] += uint64(len(frames) - others)
	return uint64(others) > s.FramesBy[unwind.BySample]-before
}

// sum adds up what several sessions have counted.
func sum(all []Stats) (total Stats) {
	for i := range all {
		s := &all[i]
		total.Samples += s.Samples
		total.User += s.User
		total.Exec += s.Exec
		total.Lost += s.Lost
		total.Throttled += s.Throttled
		total.Malformed += s.Malformed
		total.Denied += s.Denied
		total.Frames += s.Frames
		total.Guessed += s.Guessed
		total.StackCopied += s.StackCopied
		total.Early += s.Early
		for e, n := range s.Excluded {
			total.Excluded[e] += n
		}
		for o, n := range s.Links {
			total.Links[o] += n
		}
		for r, n := range s.Ended {
			total.Ended[r] += n
		}
		for c, n := range s.Cut {
			total.Cut[c] += n
		}
		for by, n := range s.FramesBy {
			total.FramesBy[by] += n
		}
	}
	return total
}

// completeBy counts complete stacks by how they were found.
type completeBy struct {
	CFI      uint64 `json:"cfi"`      // by CFI alone
	Fallback uint64 `json:"fallback"` // with a frame by other means
	Joined   uint64 `json:"joined"`   // with what was seen of the stack before and after, or read then
}

// statsJSON is the form of --stats, documented by 'unspool help json'. Keys
// may be added, never renamed.
type statsJSON struct {
	Version  int      `json:"version"`
	Duration float64  `json:"duration_s"`
	Command  []string `json:"command"`
	Samples  struct {
		Total      uint64 `json:"total"`
		User       uint64 `json:"user"`
		KernelOnly uint64 `json:"kernel_only"`
		Exec       uint64 `json:"exec"`
		Lost       uint64 `json:"lost"`
		Throttled  uint64 `json:"throttled"`
		Malformed  uint64 `json:"malformed"`
		Denied     uint64 `json:"denied"`
		Excluded   uint64 `json:"excluded"`

		ExcludedBy map[string]uint64 `json:"excluded_by"`
	} `json:"samples"`
	Unread struct {
		Processes uint64 `json:"processes"`
		Samples   uint64 `json:"samples"`
	} `json:"unread"`
	Forgotten struct {
		Processes uint64 `json:"processes"`
		Threads   uint64 `json:"threads"`
		Mappings  uint64 `json:"mappings"`
	} `json:"forgotten"`
	CommandLines struct {
		Kept    uint64 `json:"kept"`
		Unread  uint64 `json:"unread"`
		LeftOut uint64 `json:"left_out"`
	} `json:"command_lines"`
	OfflineCPUs []int `json:"offline_cpus"`
	Unwind      struct {
		Complete uint64            `json:"complete"`
		By       completeBy        `json:"complete_by"`
		Read     uint64            `json:"read"`
		Frames   uint64            `json:"frames"`
		Ended    map[string]uint64 `json:"ended"`
		Cut      map[string]uint64 `json:"cut"`
		Unjoined map[string]uint64 `json:"unjoined"`
		FramesBy map[string]uint64 `json:"frames_by"`
	} `json:"unwind"`
	Cost struct {
		CPU         float64 `json:"cpu_s"`
		CPUShare    float64 `json:"cpu_share"`
		PerSample   float64 `json:"us_per_sample"`
		MaxRSSBytes uint64  `json:"max_rss_bytes"`
		Priority    string  `json:"priority"`
	} `json:"cost"`
	Bytes struct {
		StackCopied uint64 `json:"stack_copied"`
		Written     uint64 `json:"written"`
	} `json:"bytes"`
}

// WriteJSON writes the statistics as one JSON object and a newline.
func (s *Stats) WriteJSON(w io.Writer) error {
	var j statsJSON
	j.Version = 1
	j.Duration = s.Duration.Seconds()
	j.Command = s.Command
	if j.Command == nil {
		j.Command = []string{}
	}
	j.Samples.Total = s.Samples
	j.Samples.User = s.User
	j.Samples.KernelOnly = s.Samples - s.User
	j.Samples.Exec = s.Exec
	j.Samples.Lost = s.Lost
	j.Samples.Throttled = s.Throttled
	j.Samples.Malformed = s.Malformed
	j.Samples.Denied = s.Denied
	j.Samples.ExcludedBy = make(map[string]uint64)
	for e, n := range s.Excluded {
		j.Samples.Excluded += n
		j.Samples.ExcludedBy[exclusionNames[e]] = n
	}
	j.Unread.Processes, j.Unread.Samples = s.LeftOut, s.Early
	j.Forgotten.Processes = s.Forgotten.Processes
	j.Forgotten.Threads = s.Forgotten.Threads
	j.Forgotten.Mappings = s.Forgotten.Mappings
	j.CommandLines.Kept, j.CommandLines.Unread = s.CommandLines.Kept, s.CommandLines.Unread
	j.CommandLines.LeftOut = s.CommandLines.LeftOut
	j.OfflineCPUs = append([]int{}, s.OfflineCPUs...) // [], not null
	j.Unwind.Complete = s.Complete()
	j.Unwind.By = completeBy{CFI: s.ByCFI(), Fallback: s.Guessed, Joined: s.Joined()}
	j.Unwind.Read = s.Links[link.Read]
	j.Unwind.Frames = s.Frames
	j.Unwind.Ended = make(map[string]uint64)
	for i, n := range s.Ended {
		j.Unwind.Ended[unwind.Reason(i).String()] = n
	}
	j.Unwind.Cut = make(map[string]uint64)
	for i, n := range s.Cut {
		j.Unwind.Cut[cutNames[i]] = n
	}
	j.Unwind.Unjoined = s.unjoined()
	j.Unwind.FramesBy = make(map[string]uint64)
	for i, n := range s.FramesBy {
		j.Unwind.FramesBy[unwind.Source(i).String()] = n
	}
	j.Cost.CPU = s.CPU.Seconds()
	j.Cost.CPUShare = s.CPUShare()
	if s.Samples > 0 {
		j.Cost.PerSample = float64(s.Busy.Nanoseconds()) / 1e3 / float64(s.Samples)
	}
	j.Cost.MaxRSSBytes = s.MaxRSS
	j.Cost.Priority = s.Priority
	j.Bytes.StackCopied = s.StackCopied
	j.Bytes.Written = s.Written
	e := json.NewEncoder(human.JSON(w))
	e.SetEscapeHTML(false)
	return e.Encode(&j)
}

// Trouble is where stacks ended before their root, which files could not be used, and what memory was not read.
type Trouble struct {
	places map[place]uint64
	files  map[string]error
	memory []error // each once

	generated *generatedNotes // nil where nothing is known of it
}

type place struct {
	reason unwind.Reason
	path   string
}

// maxTrouble bounds how many places and files are remembered.
const maxTrouble = 1024

func newTrouble() *Trouble {
	return &Trouble{places: make(map[place]uint64), files: make(map[string]error)}
}

// add adds what another session has noted.
func (t *Trouble) add(other *Trouble) {
	for p, n := range other.places {
		t.places[p] += n
	}
	for path, err := range other.files {
		t.file(path, err)
	}
	for _, err := range other.memory {
		t.unread(err)
	}
}

// ended notes a stack that ended before its root, at a path as in [Place].
func (t *Trouble) ended(why unwind.Reason, path string) {
	if why == unwind.Root {
		return
	}
	p := place{why, path}
	if _, ok := t.places[p]; ok || len(t.places) < maxTrouble {
		t.places[p]++
	}
}

// generatedCode stands for the path of code that was generated at run time. Its memory has several names: it
// may have no file, be shared with another process (/dev/zero), or be a file without a path (memfd).
const generatedCode = "//anon"

// codePath gives the path of the code in a mapping. A file that a process maps for itself has had its code
// before, even if it is no ELF file: Windows' programs, and images of Lisp, are none.
func codePath(m *vmas.Mapping) string {
	switch m.File.Kind {
	case vmas.Anonymous, vmas.Shared, vmas.Heap, vmas.Stack:
		return generatedCode
	case vmas.Regular:
		if m.Flags&vmas.FlagPrivate != 0 {
			return m.File.Path
		}
	}
	if im, ok := m.File.Image.(*image.Image); ok && im.IsGenerated() {
		return generatedCode
	}
	return m.File.Path
}

func (t *Trouble) file(path string, err error) {
	if _, ok := t.files[path]; !ok && len(t.files) < maxTrouble {
		t.files[path] = err
	}
}

// unread notes why memory of processes is not read. err is one of the package's own errors.
func (t *Trouble) unread(err error) {
	if !slices.Contains(t.memory, err) {
		t.memory = append(t.memory, err)
	}
}

// A Place is a file in which walks ended for one reason. Path is empty if the sampled PC was in no mapping,
// "//anon" for code that was generated at run time, and deniedPlace or outsidePlace for processes whose
// mappings are not known.
type Place struct {
	Path    string
	Samples uint64
}

// Places of samples in processes whose mappings are not known.
const (
	deniedPlace  = "//denied"  // which may not be read
	outsidePlace = "//outside" // outside of the recorded PID namespace
)

// Places gives the files in which walks ended for a reason, most samples
// first.
func (t *Trouble) Places(reason unwind.Reason) []Place {
	var ps []Place
	for p, n := range t.places {
		if p.reason == reason {
			ps = append(ps, Place{p.path, n})
		}
	}
	slices.SortFunc(ps, func(a, b Place) int {
		return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Path, b.Path))
	})
	return ps
}

// File is why a mapped file could not be used, nil when it could.
func (t *Trouble) File(path string) error { return t.files[path] }
