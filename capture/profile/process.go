package profile

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"

	"unspool/vmas"
)

// program is what a process is called now: the name of its main thread. Without a record of that, it is the name of
// the file of its program, which the kernel gives to the main thread at an exec, or :PID.
func (l *loader) program(pid uint32) string {
	if name := l.comms[threadKey(pid, pid)]; name != "" {
		return name
	}
	if name, ok := l.guessed[pid]; ok {
		return name
	}
	name := fmt.Sprintf(":%d", pid)
	if space := l.table.Space(pid); space != nil {
		if main := space.Comm(pid); main != "" {
			return main // its main thread has ended before others
		}
		if file := programFile(space); file != "" {
			name = file
		}
	}
	l.guessed[pid] = name
	l.guesses++
	return name
}

const (
	mostLooked  = 64 // mappings, for the file of a program
	longestName = 15 // bytes of what the kernel keeps of a name (TASK_COMM_LEN)
)

// programFile is the name of the file of a process's program, as far as it is a thread's name; "" if it is not known.
// Programs lie below their libraries.
func programFile(space *vmas.Space) string {
	looked := 0
	for m := range space.Mappings() {
		if m.File != nil && m.File.Kind == vmas.Regular {
			name := path.Base(m.File.Path)
			return name[:min(len(name), longestName)]
		}
		if looked++; looked == mostLooked {
			break
		}
	}
	return ""
}

// Processes returns one name for each PID of a thread: the one under which the process has most samples. A program that
// another one has started has the name of that until it is executed: nice, setpriv or a shell.
func (p *Profile) Processes() map[uint32]string {
	samples := make([]uint64, len(p.Threads))
	for i := range p.Samples {
		samples[p.Samples[i].Thread] += p.Samples[i].Count
	}
	by := make(map[uint32]map[string]uint64)
	for i := range p.Threads {
		t := &p.Threads[i]
		if by[t.PID] == nil {
			by[t.PID] = make(map[string]uint64)
		}
		by[t.PID][t.Program] += samples[i]
	}
	names := make(map[uint32]string)
	for pid, samples := range by {
		names[pid] = MostSampled(samples)
	}
	return names
}

// MostSampled returns the name with the most samples, and of several such names the first by alphabet; "" if there is
// none.
func MostSampled(samples map[string]uint64) string {
	if len(samples) == 0 {
		return ""
	}
	return slices.MaxFunc(slices.Sorted(maps.Keys(samples)), func(a, b string) int {
		return cmp.Compare(samples[a], samples[b])
	})
}

// root is the frame above the stacks of a thread: of its process, if that is asked for, otherwise -1.
// Processes of the same name share a frame, such as all compilers of a build.
func (l *loader) root(thread int32) int32 {
	if !l.options.Processes {
		return -1
	}
	return l.process(l.p.Threads[thread].Program)
}

// process is the frame of the processes of a name.
func (b *builder) process(name string) int32 {
	f, ok := b.programs[name]
	if !ok {
		f = b.frame(Frame{Name: name, Image: b.image(Image{Path: processes}), Kind: Process, Known: true})
		b.programs[name] = f
	}
	return f
}

// processes is the path of the image, which has no name, that the frames of processes are in.
const processes = "[process]"

// dropProcess removes the only frame of a process, and returns the new node for each old node.
func (p *Profile) dropProcess() (now []int32) {
	now = make([]int32, len(p.Nodes))
	nodes := p.Nodes[:1]
	var dropped int32
	for i, n := range p.Nodes[1:] {
		if p.Frames[n.Frame].Kind == Process {
			dropped = n.Frame
			continue // it becomes the root
		}
		n.Parent = now[n.Parent]
		nodes = append(nodes, n)
		now[i+1] = int32(len(nodes) - 1)
	}
	p.Nodes = nodes
	for i := range p.Samples {
		p.Samples[i].Node = now[p.Samples[i].Node]
	}
	last := int32(len(p.Frames) - 1) // takes the place of the frame
	for i := range p.Nodes {
		if p.Nodes[i].Frame == last {
			p.Nodes[i].Frame = dropped
		}
	}
	p.Frames[dropped] = p.Frames[last]
	p.Frames = p.Frames[:last]
	return now
}
