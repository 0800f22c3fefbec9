package gotab

// A Growth says where the caller of runtime.morestack is found. That is a function of a goroutine that needs
// more stack. morestack gets it on the stack of the scheduler, and moves the goroutine to it:
//
//	R14 ─▶ g of the scheduler ─M─▶ m ─CurG─▶ g of the goroutine ─Sched─▶ SP, PC
//
// R14 has the g whose stack is in use. In a g, the first two words are the bounds of its stack, and at Sched
// are its SP, its PC and its own address; what a g runs goes on there when it has the CPU again.
type Growth struct {
	Return         uint64 // what is on the scheduler's stack then: where morestack's last call returns to
	M, CurG, Sched uint16 // offsets in a g, in an m, and in a g
}

const (
	// maxAssembly is how many functions in assembly may lie between an address and morestack.
	maxAssembly = 512
	// maxTries is how often morestack is looked for in a file, as a part of the file may come late.
	maxTries = 64

	nameOfMorestack = "runtime.morestack"
)

// Growth reads that from the code of the runtime. addr is any address in its functions in assembly, which all
// lie together; nearly all stacks of Go end in one of them. ok is false if addr is elsewhere.
func (t *Table) Growth(addr uint64) (g Growth, ok bool) {
	if t.growth.Return != 0 {
		return t.growth, true
	}
	index, ok := t.index(addr)
	if !ok || t.tries >= maxTries {
		return g, false
	}
	t.tries++
	from, more := t.switchesNear(index)
	if from < 0 || more < 0 || !g.readSwitch(t.codeOf(from)) {
		return g, false
	}
	if g.Return, ok = callOnOtherStack(t.codeOf(more)); ok {
		g.Return += t.text + t.start(uint32(more))
		t.growth = g
	}
	return g, ok
}

func (t *Table) codeOf(index int) []byte {
	start := t.start(uint32(index))
	return t.code.at(t.text+start, t.start(uint32(index)+1)-start)
}

// switchesNear are the indexes of systemstack and morestack among the functions in assembly around another
// one, -1 where there is none.
func (t *Table) switchesNear(index uint32) (system, more int) {
	system, more = -1, -1
	for _, step := range [...]int{1, -1} {
		for i, n := int(index), 0; i >= 0 && uint64(i) < t.count && n < maxAssembly; i, n = i+step, n+1 {
			f, ok := t.entry(uint32(i))
			if !ok || f.flag&flagAsm == 0 && t.version == go120 {
				break
			}
			switch t.code.name(f.name) {
			case "runtime.systemstack":
				system = i
			case nameOfMorestack:
				more = i
			}
			if system >= 0 && more >= 0 {
				return system, more
			}
		}
	}
	return system, more
}
