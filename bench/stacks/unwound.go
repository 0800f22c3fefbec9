package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"unspool/bench/workloads"
	"unspool/capture/counts"
	"unspool/capture/perfdata"
	"unspool/capture/session"
	"unspool/capture/symbols"
	"unspool/capture/verdict/check"
	"unspool/perfring"
	"unspool/unwind"
	"unspool/unwind/image"
	"unspool/vmas"
)

// A result is what became of the samples of one program.
type result struct {
	program *workloads.Program
	version string
	stats   counts.Stats
	trouble *counts.Trouble
	perf    perfResult

	checker *check.Checker
	walks   check.Walks
	shown   strings.Builder // where stacks end early, and wrong edges

	whole map[sampleKey]bool // samples with a user stack: whether the copy holds all of it
	roots map[position]bool  // where complete stacks end
	ended map[ending]uint64  // incomplete stacks
}

// A sampleKey tells a sample from all others of a recording.
type sampleKey struct {
	tid  uint32
	time uint64
}

// A position is an instruction pointer as an offset in the mapped file. path is
// empty for one that is in no mapping.
type position struct {
	path   string
	offset uint64
}

// An ending is where stacks end before their root.
type ending struct {
	reason unwind.Reason
	at     position
	leaf   bool // it is the sampled PC itself
}

func (r *result) user() uint64 { return r.stats.User }

func (r *result) completeShare() string { return percent(r.stats.Complete(), r.stats.User) }

// recordedHere returns where the files of a recording are that was made on this machine: at their paths. Its
// processes are gone, and with them what they had in memory.
func recordedHere(rd *perfdata.Reader) *image.Offline {
	ids := rd.FileBuildIDs()
	return &image.Offline{
		BuildID:    func(path string) vmas.BuildID { return vmas.NewBuildID(ids[path]) },
		SameKernel: true,
	}
}

// unwindRecording unwinds a recording with raw stacks, and holds the stacks against the code.
func unwindRecording(data string) (*result, error) {
	rd, err := perfdata.Open(data)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	r := &result{
		whole: make(map[sampleKey]bool),
		roots: make(map[position]bool),
		ended: make(map[ending]uint64),
	}
	r.checker = check.New(symbols.New(symbols.Options{}))
	var s *session.Session
	out := outermost{checker: r.checker}
	err = rd.Ordered(func(rec perfring.Record, f *perfring.SampleFormat, _ uint64) error {
		if s == nil {
			s = session.New(session.Config{Format: f, Sink: &out, Offline: recordedHere(rd), MaxStack: 2048})
			out.format = f.Unwound()
			r.checker.Begin(s)
		}
		before, user := s.Stats.Ended, s.Stats.User
		if err := s.Record(rec); err != nil {
			return err
		}
		if s.Stats.User == user {
			return nil
		}
		for why := range unwind.Reason(unwind.NumReasons) {
			if s.Stats.Ended[why] != before[why] {
				r.note(why, &out, s.Table())
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s == nil || s.Stats.User == 0 {
		return nil, fmt.Errorf("no samples with a user stack")
	}
	r.stats, r.trouble, r.walks = s.Stats, s.Trouble(), r.checker.Walks()
	for _, c := range r.checker.CutSamples() {
		if c.Cut != check.NotCut {
			r.whole[sampleKey{c.TID, c.Time}] = false
		}
	}
	return r, nil
}

// note counts the sample that was unwound last: where its walk ended, and for which reason.
func (r *result) note(why unwind.Reason, out *outermost, table *vmas.Table) {
	r.whole[sampleKey{out.sample.TID, out.sample.Time}] = true
	var at position
	if space := table.Space(out.sample.PID); space != nil {
		if m := space.Find(out.ip); m != nil {
			at = position{m.File.Path, out.ip - m.Start + m.Offset}
		}
	}
	if why == unwind.Root {
		r.roots[at] = true
	} else {
		r.ended[ending{why, at, out.depth == 1}]++
	}
}

// outermost is a sink that keeps the last frame of the last sample.
type outermost struct {
	checker *check.Checker
	format  perfring.SampleFormat
	sample  perfring.Sample
	ip      uint64
	depth   int // of the user part
}

func (o *outermost) WriteSample(w *perfdata.Walked) error {
	if err := o.checker.WriteSample(w); err != nil {
		return err
	}
	return w.Records(o.Write)
}

func (o *outermost) Write(rec []byte) error {
	if perfring.Record(rec).Type() != perfring.RecordSample {
		return o.checker.Write(rec)
	}
	if err := o.format.Sample(rec, &o.sample); err != nil {
		return err
	}
	o.ip, o.depth = 0, 0
	first, _ := o.sample.UserPart()
	for i := first; i < o.sample.Callchain.Len(); i++ {
		if ip := o.sample.Callchain.At(i); ip < perfring.ContextMax {
			o.ip = ip
			o.depth++
		}
	}
	return nil
}

// showPlaces prints where most of the incomplete stacks end, those that are too
// deep included.
func (b *bench) showPlaces(r *result) {
	keys := slices.SortedFunc(maps.Keys(r.ended), func(x, y ending) int {
		return cmp.Or(cmp.Compare(r.ended[y], r.ended[x]), cmp.Compare(x.at.path, y.at.path),
			cmp.Compare(x.at.offset, y.at.offset))
	})
	// Addresses of one function count together.
	type spot struct {
		reason unwind.Reason
		text   string
	}
	counts, shown := make(map[spot]uint64), []spot{}
	files := make(map[string]*functions)
	for _, k := range keys {
		if files[k.at.path] == nil {
			files[k.at.path] = readFunctions(k.at.path)
		}
		text := files[k.at.path].name(k.at.offset)
		if k.leaf {
			text += " (sampled)"
		}
		s := spot{k.reason, filepath.Base(k.at.path) + " " + text}
		if counts[s] == 0 {
			shown = append(shown, s)
		}
		counts[s] += r.ended[k]
	}
	slices.SortStableFunc(shown, func(x, y spot) int { return cmp.Compare(counts[y], counts[x]) })
	for _, s := range shown[:min(b.places, len(shown))] {
		fmt.Fprintf(&r.shown, "    %6d  %-10s %s\n", counts[s], s.reason, s.text)
	}
}

// showWrong names the edges that cannot be.
func (b *bench) showWrong(r *result) {
	wrong := r.checker.Result("", 0, nil).Wrong
	for _, w := range wrong[:min(b.places, len(wrong))] {
		fmt.Fprintf(&r.shown, "    %6d  wrong, by %s: %s called by %s: %s\n", w.Samples, w.Source, w.Callee,
			w.Caller, w.Why)
	}
}

// functions are those of an ELF file by address.
type functions struct {
	segments []elf.ProgHeader
	list     []elf.Symbol
}

func readFunctions(path string) *functions {
	s := new(functions)
	f, err := elf.Open(path)
	if err != nil {
		return s
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			s.segments = append(s.segments, p.ProgHeader)
		}
	}
	static, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	for _, sym := range append(static, dynamic...) {
		if sym.Section != elf.SHN_UNDEF && sym.Value != 0 &&
			(elf.ST_TYPE(sym.Info) == elf.STT_FUNC || elf.ST_TYPE(sym.Info) == elf.STT_NOTYPE) {
			s.list = append(s.list, sym)
		}
	}
	slices.SortStableFunc(s.list, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	return s
}

// name is that of the function at an offset of the file, or, if there is none, of the 256 bytes around the offset.
func (s *functions) name(offset uint64) string {
	for _, p := range s.segments {
		if offset < p.Off || offset-p.Off >= p.Filesz {
			continue
		}
		addr := offset - p.Off + p.Vaddr
		i := sort.Search(len(s.list), func(i int) bool { return s.list[i].Value > addr }) - 1
		if i >= 0 && (s.list[i].Size == 0 && addr-s.list[i].Value < 4096 || addr < s.list[i].Value+s.list[i].Size) {
			return s.list[i].Name
		}
		return fmt.Sprintf("%#x", addr)
	}
	return ""
}
