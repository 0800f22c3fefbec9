// Package profile is the model that every report and every converted format is made from: the samples of a recording as a
// tree of stacks whose frames have names.
//
// A frame is one function of one image. Stacks share their outer frames: a Node is a frame below a parent, the tree's root stands
// for the bottom of every stack, and a stack is the path from the root to a leaf node. So memory grows with the distinct
// stacks of a recording, not with its samples. Samples that agree in thread, stack and event are one Sample with a weight.
//
// Load makes a Profile from a recording; CheckValid states what holds of one.
package profile

import (
	"fmt"
	"time"
)

// Kind says what sort of code a frame is.
type Kind uint8

const (
	User     Kind = iota // code of a file or of the vDSO
	Kernel               // the kernel or a module
	JIT                  // user code in memory without a file: made at run time
	Guest                // inside a virtual machine or below a hypervisor
	Unmapped             // an address that no mapping held
)

var kinds = [...]string{User: "user", Kernel: "kernel", JIT: "jit", Guest: "guest", Unmapped: "unmapped"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Image is what frames lie in: a file, the vDSO, the kernel, a kernel module, memory without a file.
type Image struct {
	Name    string // short: "libc.so.6", "[kernel]"
	Path    string // as recorded
	BuildID []byte // nil when unknown
}

// Frame is one function of one image. A function without a name is called by its image and address in brackets,
// "[libfoo.so+0x1230]"; all of an image whose extent is unknown too are one frame, "[libfoo.so]".
type Frame struct {
	Name  string // demangled
	Image int32  // index in Profile.Images
	Kind  Kind
	Known bool   // the name is a function's
	Addr  uint64 // of the function: a virtual address of the image, for the kernel an address in memory; 0 when its extent is unknown, or it was generated
}

// Node is a frame called by its parent. A parent comes before its children in Profile.Nodes.
type Node struct {
	Parent int32 // index in Profile.Nodes, -1 for the root
	Frame  int32 // index in Profile.Frames, -1 for the root
}

// Thread is a thread under one name: one that renames itself or execs is several.
type Thread struct {
	PID, TID uint32
	Comm     string
}

// Sample is the weight of one stack in one thread for one event.
type Sample struct {
	Thread int32 // index in Profile.Threads
	Node   int32 // the leaf: index in Profile.Nodes
	Event  int32 // index in Profile.Events
	Count  uint64
	Period uint64 // sum of what each sample stands for, in units of the event; Count where the recording does not say
}

// Profile is a recording's samples. Index 0 of Nodes is the root.
type Profile struct {
	Images  []Image
	Frames  []Frame
	Nodes   []Node
	Threads []Thread
	Events  []string // names, as perf prints them
	Samples []Sample

	LostRecords uint64        // that the kernel had no room for, samples or not (LOST)
	LostSamples uint64        // that the kernel or the recorder counted as lost (LOST_SAMPLES)
	Throttled   uint64        // times that the kernel held an event back
	Duration    time.Duration // from the first sample to the last

	Hostname, OSRelease, Arch string   // "" when the recording does not say
	Command                   []string // command line of the recorder

	Problems []string // in words: why names or frames are missing
}

// Count is the number of samples.
func (p *Profile) Count() uint64 {
	var n uint64
	for _, s := range p.Samples {
		n += s.Count
	}
	return n
}

// Lost is the number of samples or records known to be lost. The kernel may count the same loss in both ways.
func (p *Profile) Lost() uint64 { return max(p.LostRecords, p.LostSamples) }

// CheckValid reports the first index or weight that breaks the model.
func (p *Profile) CheckValid() error {
	in := func(i int32, n int) bool { return i >= 0 && int(i) < n }
	if len(p.Nodes) == 0 || p.Nodes[0] != (Node{-1, -1}) {
		return fmt.Errorf("node 0 is not the root")
	}
	for i, f := range p.Frames {
		if !in(f.Image, len(p.Images)) {
			return fmt.Errorf("frame %d (%s): image %d of %d", i, f.Name, f.Image, len(p.Images))
		}
	}
	seen := make(map[edge]bool, len(p.Nodes))
	for i, n := range p.Nodes[1:] {
		if !in(n.Parent, i+1) {
			return fmt.Errorf("node %d: parent %d does not come before it", i+1, n.Parent)
		}
		if !in(n.Frame, len(p.Frames)) {
			return fmt.Errorf("node %d: frame %d of %d", i+1, n.Frame, len(p.Frames))
		}
		e := edge{n.Parent, n.Frame}
		if seen[e] {
			return fmt.Errorf("node %d: its parent %d has frame %d twice", i+1, n.Parent, n.Frame)
		}
		seen[e] = true
	}
	type key struct{ thread, node, event int32 }
	keys := make(map[key]bool, len(p.Samples))
	for i, s := range p.Samples {
		k := key{s.Thread, s.Node, s.Event}
		if !in(s.Thread, len(p.Threads)) || !in(s.Node, len(p.Nodes)) || !in(s.Event, len(p.Events)) {
			return fmt.Errorf("sample %d: thread %d of %d, node %d of %d, event %d of %d", i, s.Thread, len(p.Threads), s.Node, len(p.Nodes), s.Event, len(p.Events))
		}
		if keys[k] || s.Count == 0 {
			return fmt.Errorf("sample %d: no weight, or the same thread, node and event as another", i)
		}
		keys[k] = true
	}
	return nil
}
