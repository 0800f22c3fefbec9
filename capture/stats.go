package capture

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"time"

	"unspool/unwind"
)

// Stats counts what a recording has seen. Every sample is in Samples; User
// are those with user registers and a stack.
type Stats struct {
	Samples   uint64
	User      uint64
	Exec      uint64 // of the others: inside execve, with the registers of the program that is replaced
	Lost      uint64 // samples and other records that found no room in a ring
	Throttled uint64
	Malformed uint64 // records that could not be decoded

	Frames   uint64 // of user stacks
	Ended    [unwind.NumReasons]uint64
	FramesBy [unwind.NumSources]uint64

	StackCopied uint64 // bytes of stack that the kernel copied into the rings
	Written     uint64 // bytes of the recording

	Command  []string
	Duration time.Duration // with the events enabled
	CPU      time.Duration // of the whole process, user and system
	Busy     time.Duration // of that, from enabling the events to the last sample written
	MaxRSS   uint64        // bytes
}

// Complete is the number of user stacks that reached their root.
func (s *Stats) Complete() uint64 { return s.Ended[unwind.Root] }

// CPUShare is the share of one CPU that the recording took.
func (s *Stats) CPUShare() float64 {
	if s.Duration <= 0 {
		return 0
	}
	return s.CPU.Seconds() / s.Duration.Seconds()
}

func (s *Stats) count(r *unwind.Result) {
	s.Ended[r.End]++
	s.Frames += uint64(len(r.IPs))
	for i := range r.Frames {
		s.FramesBy[r.Frames[i].Source]++
	}
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
		total.Frames += s.Frames
		total.StackCopied += s.StackCopied
		for r, n := range s.Ended {
			total.Ended[r] += n
		}
		for by, n := range s.FramesBy {
			total.FramesBy[by] += n
		}
	}
	return total
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
	} `json:"samples"`
	Unwind struct {
		Complete uint64            `json:"complete"`
		Frames   uint64            `json:"frames"`
		Ended    map[string]uint64 `json:"ended"`
		FramesBy map[string]uint64 `json:"frames_by"`
	} `json:"unwind"`
	Cost struct {
		CPU         float64 `json:"cpu_s"`
		CPUShare    float64 `json:"cpu_share"`
		PerSample   float64 `json:"us_per_sample"`
		MaxRSSBytes uint64  `json:"max_rss_bytes"`
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
	j.Unwind.Complete = s.Complete()
	j.Unwind.Frames = s.Frames
	j.Unwind.Ended = make(map[string]uint64)
	for i, n := range s.Ended {
		j.Unwind.Ended[unwind.Reason(i).String()] = n
	}
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
	j.Bytes.StackCopied = s.StackCopied
	j.Bytes.Written = s.Written
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(&j)
}

// Trouble says where stacks ended before their root, and which files could
// not be used.
type Trouble struct {
	places map[place]uint64
	files  map[string]error
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

// add takes in what another session has noted.
func (t *Trouble) add(other *Trouble) {
	for p, n := range other.places {
		t.places[p] += n
	}
	for path, err := range other.files {
		t.file(path, err)
	}
}

func (t *Trouble) ended(r *unwind.Result) {
	p := place{reason: r.End}
	if r.At != nil {
		p.path = r.At.File.Path
	}
	if _, ok := t.places[p]; ok || len(t.places) < maxTrouble {
		t.places[p]++
	}
}

func (t *Trouble) file(path string, err error) {
	if _, ok := t.files[path]; !ok && len(t.files) < maxTrouble {
		t.files[path] = err
	}
}

// A Place is a file in which walks ended for one reason. Path is empty when
// the sampled PC was in no mapping, and "//anon" or the like for code that
// was generated at run time.
type Place struct {
	Path    string
	Samples uint64
}

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
