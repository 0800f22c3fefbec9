package profile

import (
	"fmt"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/symbols"
	"unspool/unwind"
	"unspool/vmas"
)

// Kind is what sort of code a frame is.
type Kind uint8

const (
	User     Kind = iota // code of a file or of the vDSO
	Kernel               // the kernel or a module
	JIT                  // user code in memory without a file: made at run time
	Guest                // inside a virtual machine or below a hypervisor
	Unmapped             // an address that no mapping held
	Process              // no code: a program, above the stacks of its processes (see Options.Processes)
	Other                // the rest of stacks that are too many to tell apart
)

var kinds = [...]string{User: "user", Kernel: "kernel", JIT: "jit", Guest: "guest", Unmapped: "unmapped",
	Process: "process", Other: "other"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// IsCode reports whether such frames lie in an image that is known.
func (k Kind) IsCode() bool { return k == User || k == Kernel || k == JIT }

// Image is an object that frames lie in: a file, the vDSO, the kernel, a kernel module, memory without a
// file.
type Image struct {
	Name    string // short: "libc.so.6", "[kernel]"
	Path    string // as recorded
	BuildID []byte // nil when unknown
	// File identifies the file without its build ID, for comparison with the file that is opened.
	File vmas.FileID

	Code []symbols.CodeSegment // nil if its file was not found: then addresses are offsets in the file
}

// Frame is a place in the code. The name of a function without a symbol is its image and address in brackets,
// "[libfoo.so+0x1230]"; if its extent is unknown as well, it is the image, "[libfoo.so]". An inlined function
// without a name is "[inlined]".
type Frame struct {
	Name    string // demangled
	Symbol  string // as the symbol table or the compiler has it, mangled; "" when the function is not known
	Image   int32  // index in Profile.Images
	Kind    Kind
	Known   bool // the name is a function's
	Inlined bool // into the frame above it in every stack, which has the same PC
	// Addr is the function's address: a virtual address of the image, for the kernel an address in memory; 0 if
	// its extent is unknown, or it was generated or inlined.
	Addr uint64
	// PC is the instruction's address, of the same kind; for a frame that has called another one, an address
	// inside the call. 0 if it is unknown, and in Profile.ByFunction.
	PC uint64

	File         string // source file, "" when unknown
	Line, Column int32  // 0 when unknown
	Start        int32  // the line where the function begins, 0 when unknown
}

// Plain is the name without the marks of a compiler's copies of the function.
func (f *Frame) Plain() string { return symbols.WithoutClones(f.Name) }

// Node is a frame called by its parent. A parent comes before its children in Profile.Nodes.
type Node struct {
	Parent int32 // index in Profile.Nodes, -1 for the root
	Frame  int32 // index in Profile.Frames, -1 for the root
}

// Thread is a thread under one name, in a process under one name: one that renames itself or execs, or whose main
// thread does, is several.
type Thread struct {
	PID, TID uint32
	Comm     string
	// Program is the name of the process: what its main thread is called meanwhile, as ps names it. A server's
	// workers belong to the server, whatever they call themselves.
	Program string
}

// End is why the user part of a stack ends where it does.
type End uint8

// Unsaid is the End of stacks without a user part, and in recordings that do not say. The others are unwind's
// reasons, plus one.
const Unsaid End = 0

// Ended is the End for a reason.
func Ended(r unwind.Reason) End { return End(r) + 1 }

// Complete is the End of a user stack that reaches its root.
const Complete = End(unwind.Root) + 1

// Joined is the End of one that the copy had cut off, and that was completed with what was seen of it before
// and after: see package link.
const Joined = End(unwind.NumReasons) + 1

// NumEnds is how many there are.
const NumEnds = Joined + 1

// EndOf is the End of a sample whose record has misc in its header.
func EndOf(misc uint16) End {
	r, ok := perfdata.End(misc)
	switch {
	case !ok:
		return Unsaid
	case perfdata.IsJoined(misc):
		return Joined
	}
	return Ended(r)
}

// String is "complete", "joined", "" for Unsaid, or the name of the reason: "dump_too_short".
func (e End) String() string {
	switch e {
	case Unsaid:
		return ""
	case Complete:
		return "complete"
	case Joined:
		return "joined"
	}
	return unwind.Reason(e - 1).String()
}

// Words says it for people, as the summary of a recording does: "dump too short".
func (e End) Words() string {
	switch e {
	case Unsaid, Complete, Joined:
		return e.String()
	}
	return unwind.Reason(e - 1).Words()
}

// Event is what was sampled.
type Event struct {
	Name   string // as perf prints it
	Clock  bool   // periods are nanoseconds of CPU time
	Cycles bool   // of the CPU: Frequency samples are taken in a second of CPU time

	Frequency uint64 // samples a second that were asked for; 0 when a period was
	Recorded  uint64 // samples, also those that a filter has left out; 0 when it is not known
}

// Sample is the weight of one stack in one thread for one event.
type Sample struct {
	Thread int32 // index in Profile.Threads
	Node   int32 // the leaf: index in Profile.Nodes
	Event  int32 // index in Profile.Events
	CPU    int32 // -1 when unknown or not asked for
	End    End
	Count  uint64
	// Period is the sum of the samples' periods, in units of the event; equal to Count if the recording does
	// not have periods.
	Period uint64
}

// Loss is a gap in the recording.
type Loss struct {
	Time  uint64 // ns; of the record that reports it: the end of the gap
	Count uint64 // records or samples; 0 if the kernel throttled an event
	CPU   int32  // -1 when unknown
}

// Profile is a recording's samples. Index 0 of Nodes is the root.
type Profile struct {
	Images  []Image
	Frames  []Frame
	Nodes   []Node
	Threads []Thread
	Events  []Event
	Samples []Sample

	LostRecords uint64        // records of any type for which the ring had no room (LOST)
	LostSamples uint64        // samples that the kernel or the recorder counted as lost (LOST_SAMPLES)
	Throttled   uint64        // how often the kernel throttled an event
	Losses      []Loss        // the first maxLosses of all these, in the order of the recording
	First       uint64        // time of the first sample, in ns of the recording's clock
	Duration    time.Duration // from the first sample to the last
	Began       time.Time     // the first sample by the wall clock; zero when the recording does not say
	Changed     time.Time     // when the recording's file was written; zero where there is none
	CPUs        int           // of the recorded machine that were online; 0 when the recording does not say

	Hostname, OSRelease, Arch string   // "" when the recording does not say
	Command                   []string // command line of the recorder

	Generators map[uint32]Generator // by PID, the last one that had it
	// CommandLines has those of processes, by PID, as far as they are recorded, without secrets. Exports leave them out
	// unless they are asked for.
	CommandLines map[uint32]string

	Problems []string // in words: why names or frames are missing
	// Kinds has the kind of each problem of which there may be many, one for each file: see Notes.
	Kinds  map[string]string
	Damage error // where the recording could not be read any more; also in Problems

	byFunction bool // its frames are whole functions already
}

// maxLosses bounds Profile.Losses.
const maxLosses = 10000

// Count is the number of samples.
func (p *Profile) Count() uint64 {
	var n uint64
	for _, s := range p.Samples {
		n += s.Count
	}
	return n
}

// Sampled returns the events that have samples. Others, such as the dummy that perf opens for side-band
// records, have none.
func (p *Profile) Sampled() (events []int32) {
	have := make([]bool, len(p.Events))
	for _, s := range p.Samples {
		have[s.Event] = true
	}
	for i, yes := range have {
		if yes {
			events = append(events, int32(i))
		}
	}
	return events
}

// Totals returns, for each node, the number of samples of all events that end in it or below it.
func (p *Profile) Totals() []uint64 {
	total := make([]uint64, len(p.Nodes))
	for _, s := range p.Samples {
		total[s.Node] += s.Count
	}
	for i := len(total) - 1; i > 0; i-- { // children come after their parents
		total[p.Nodes[i].Parent] += total[i]
	}
	return total
}

// Lost is the number of samples or records known to be lost. The kernel may count the same loss in both ways.
func (p *Profile) Lost() uint64 { return max(p.LostRecords, p.LostSamples) }

// CheckValid reports the first index or weight that breaks the model.
func (p *Profile) CheckValid() error {
	if err := p.CheckIndices(); err != nil {
		return err
	}
	seen := newIndex(len(p.Nodes), func(i int32) edge { return p.Nodes[i+1].edge() })
	for i, n := range p.Nodes[1:] {
		e := n.edge()
		if _, twice := seen.find(e); twice {
			return fmt.Errorf("node %d: its parent %d has frame %d twice", i+1, n.Parent, n.Frame)
		}
		seen.add(e)
	}
	keys := newIndex(len(p.Samples), func(i int32) weightKey { return p.Samples[i].key() })
	for i, s := range p.Samples {
		k := s.key()
		if _, twice := keys.find(k); twice || s.Count == 0 {
			return fmt.Errorf("sample %d: no weight, or the same thread, node and event as another", i)
		}
		keys.add(k)
	}
	return nil
}

// CheckIndices returns an error for the first index that is out of bounds, and for a node before its parent or
// inlined into code at another address. If it returns nil, readers of the profile need no other checks. CheckValid
// takes several times longer.
func (p *Profile) CheckIndices() error {
	in := func(i int32, n int) bool { return i >= 0 && int(i) < n }
	if len(p.Nodes) == 0 || p.Nodes[0] != (Node{-1, -1}) {
		return fmt.Errorf("node 0 is not the root")
	}
	for i, f := range p.Frames {
		if !in(f.Image, len(p.Images)) {
			return fmt.Errorf("frame %d (%s): image %d of %d", i, f.Name, f.Image, len(p.Images))
		}
	}
	for i, n := range p.Nodes[1:] {
		if !in(n.Parent, i+1) {
			return fmt.Errorf("node %d: parent %d does not come before it", i+1, n.Parent)
		}
		if !in(n.Frame, len(p.Frames)) {
			return fmt.Errorf("node %d: frame %d of %d", i+1, n.Frame, len(p.Frames))
		}
		if f := &p.Frames[n.Frame]; f.Inlined && (n.Parent == 0 || p.Frames[p.Nodes[n.Parent].Frame].PC != f.PC) {
			return fmt.Errorf("node %d: inlined into nothing, or into code elsewhere", i+1)
		}
	}
	for i := range p.Samples {
		s := &p.Samples[i]
		if !in(s.Thread, len(p.Threads)) || !in(s.Node, len(p.Nodes)) || !in(s.Event, len(p.Events)) {
			return fmt.Errorf("sample %d: thread %d of %d, node %d of %d, event %d of %d", i, s.Thread, len(p.Threads),
				s.Node, len(p.Nodes), s.Event, len(p.Events))
		}
	}
	return nil
}
