package vmas

// This file is about how much memory a table takes. A recording can have records of any number of processes, and a
// user any number of mappings.

const (
	// MaxSpaces is how many address spaces are kept. Few machines run a tenth of that many processes at a time: more
	// are left of a recording that lacks their ends, or that was made to fill the memory.
	MaxSpaces = 1 << 18
	// MaxThreads bounds the threads of all address spaces.
	MaxThreads = 1 << 20
	// maxWeight bounds the bytes of the mappings of all address spaces, and of the names of their files: it is
	// enough for more than 3 million mappings.
	maxWeight = 256 << 20
)

// Forgotten counts what there was no room for.
type Forgotten struct {
	Processes uint64 // that were not used for longest
	Threads   uint64 // whose names are not kept
	Mappings  uint64 // the older ones of the processes with most of them
}

// Forgotten returns what the table had no room for so far.
func (t *Table) Forgotten() Forgotten { return t.forgotten }

// append makes a space the youngest.
func (t *Table) append(s *Space) {
	s.older, s.younger = t.youngest, nil
	if t.youngest == nil {
		t.oldest = s
	} else {
		t.youngest.younger = s
	}
	t.youngest = s
}

// unlink takes a space out of the order.
func (t *Table) unlink(s *Space) {
	if s.older == nil {
		t.oldest = s.younger
	} else {
		s.older.younger = s.younger
	}
	if s.younger == nil {
		t.youngest = s.older
	} else {
		s.younger.older = s.older
	}
	s.older, s.younger = nil, nil
}

// forgetOldest drops the oldest space that was not used since it was the oldest before.
func (t *Table) forgetOldest() {
	for t.oldest.used {
		s := t.oldest
		s.used = false
		t.unlink(s)
		t.append(s)
	}
	t.remove(t.oldest.PID)
	t.forgotten.Processes++
}

// name adds a thread to a space, or gives it another name.
func (t *Table) name(s *Space, tid uint32, comm string) {
	if _, known := s.threads.get(tid); !known {
		if t.threads >= MaxThreads {
			s.threadsIncomplete = true
			t.forgotten.Threads++
			return
		}
		t.threads++
	}
	s.threads.set(tid, comm)
}

// unname removes a thread, if it is known.
func (t *Table) unname(s *Space, tid uint32) {
	if _, known := s.threads.get(tid); known {
		s.threads.remove(tid)
		t.threads--
	}
}

func (t *Table) unnameAll(s *Space) {
	t.threads -= s.threads.len()
	s.threads = threads{}
}

// thin drops the older half of the mappings of the spaces whose mappings take most memory, until a quarter of
// what there may be is free.
func (t *Table) thin() {
	for t.files.weight > t.maxWeight/4*3 {
		weights := make(map[*layout]int)
		most := 0
		for _, s := range t.spaces {
			if _, known := weights[s.layout]; !known {
				weights[s.layout] = s.layout.weight()
				most = max(most, weights[s.layout])
			}
		}
		if most == 0 {
			return
		}
		thinned := make(map[*layout]bool)
		for l, weight := range weights {
			if weight > most/2 {
				before := l.n
				l.keepYoungest(&t.files, t.seq)
				t.forgotten.Mappings += uint64(before - l.n)
				thinned[l] = true
			}
		}
		for _, s := range t.spaces {
			if thinned[s.layout] {
				s.changed()
			}
		}
	}
}

// weight is about the bytes of the mappings, as far as they are not those of others.
func (l *layout) weight() (bytes int) {
	for m := range l.from(0) {
		bytes += mappingWeight + (fileWeight+len(m.File.Name()))/max(m.File.refs, 1)
	}
	return bytes
}
