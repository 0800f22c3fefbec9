package counts

import (
	"encoding/json"
	"io"

	"unspool/capture/output/human"
	"unspool/unwind"
	"unspool/unwind/link"
)

// unjoinedNames are the outcomes of stacks that were cut off and not completed.
var unjoinedNames = map[link.LookupOutcome]string{
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
		Start       float64 `json:"start_cpu_s"`
		End         float64 `json:"end_cpu_s"`
		CPUShare    float64 `json:"cpu_share"`
		PerSample   float64 `json:"us_per_sample"`
		MaxRSSBytes uint64  `json:"max_rss_bytes"`
		Priority    string  `json:"priority"`
	} `json:"cost"`
	Rings struct {
		Each  int     `json:"each_bytes"`
		Total int     `json:"total_bytes"`
		Stack int     `json:"stack_bytes"`
		Lasts float64 `json:"lasts_s"`
	} `json:"rings"`
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
	j.Cost.Start = s.Start.Seconds()
	j.Cost.End = s.End().Seconds()
	j.Cost.CPUShare = s.CPUShare()
	if s.Samples > 0 {
		j.Cost.PerSample = float64(s.Busy.Nanoseconds()) / 1e3 / float64(s.Samples)
	}
	j.Cost.MaxRSSBytes = s.MaxRSS
	j.Cost.Priority = s.Priority
	j.Rings.Each, j.Rings.Total, j.Rings.Stack = s.Rings.Each, s.Rings.Total, s.Rings.Stack
	j.Rings.Lasts = s.Rings.Lasts.Seconds()
	j.Bytes.StackCopied = s.StackCopied
	j.Bytes.Written = s.Written
	e := json.NewEncoder(human.JSON(w))
	e.SetEscapeHTML(false)
	return e.Encode(&j)
}
