package profile

// program notes the name of a thread's process if the thread is a new one.
func (l *loader) program(thread int32) {
	if int(thread) < len(l.p.Programs) {
		return
	}
	t := &l.p.Threads[thread]
	name := t.Comm
	if t.TID != t.PID {
		if main, ok := l.comms[threadKey(t.PID, t.PID)]; ok {
			name = main
		}
	}
	l.p.Programs = append(l.p.Programs, name)
}

// root is the frame above the stacks of a thread: of its process, if that is asked for, otherwise -1.
// Processes of the same name share a frame, such as all compilers of a build.
func (l *loader) root(thread int32) int32 {
	if !l.options.Processes {
		return -1
	}
	return l.process(l.p.Program(thread))
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
