package live

import (
	"cmp"
	"os"
	"time"

	"unspool/capture/counts"
	"unspool/capture/live/control"
	"unspool/capture/output"
	"unspool/capture/rights/opener"
	"unspool/capture/session"
	"unspool/perfring"
	"unspool/unwind/image"
	"unspool/vmas/process"
)

// Options are the settings of [Record].
type Options struct {
	AllCPUs bool
	PIDs    []int
	// PIDsMayEnd means that processes of PIDs that have ended before they are recorded are no error, but for all.
	PIDsMayEnd bool

	TIDs    []int    // of PIDs, only these threads; nil: all
	CPUs    []int    // only what runs on these CPUs; nil: on all
	Cgroup  *os.File // of AllCPUs, only what is in the cgroup of this directory
	Command []string // run while recording; recorded itself unless AllCPUs or PIDs are set

	Events        []perfring.Event // none: cycles, or cpu-clock
	Freq, Period  uint64           // samples a second, or events a sample; 0, 0: the default
	RingPages     int              // 0: see perfring.Options
	StackSize     int              // bytes of stack to copy; 0: see perfring.Options
	MaxStack      int              // frames of a user stack
	Strict        bool             // CFI only
	NoJoin        bool             // stacks that the copy cuts off are not completed: see package unwind/link
	Pairs         bool             // for package compare: each stack is followed by that of frame pointers
	ChainsOnly    bool             // callchains by the kernel alone: no stacks are copied, and none unwound
	RaisePriority bool             // with priority over the recorded processes, if that is permitted
	Delay         time.Duration    // until samples are taken; below 0: until Control says so
	Duration      time.Duration    // 0: until the command or the processes end, or until stopped

	CommandStdout *os.File // nil: our own

	// Opener, by StartOpener, starts the command, reads the processes, and does everything else that needs rights once
	// the events are open; nil for one that lives as long as the recording. Confine, if set, is called then to give up the
	// rights of this process; unfiltered says why the opener has kept more rights than it needs, nil if it has not. Before
	// that, Grant, if set, tells the opener what else it is to do later.
	Opener  *opener.Client
	Grant   func() error
	Confine func(unfiltered error)

	// Sampled, if set, is given the files in which frames were, which it closes: when the recording ends, which is
	// last, and, of one that is written to several files, whenever one is complete. Files that no process maps any more
	// are kept for that, of KeepFiles bytes at most.
	Sampled   func(files []SampledFile, last bool)
	KeepFiles int64

	// CommandLines has those of sampled processes be recorded, without secrets.
	CommandLines bool

	// Control, if set, says when samples are taken, and when the recording ends. It belongs to the caller.
	Control *control.Control

	// Watcher, if set, is given all that is written, with how each frame was found.
	Watcher session.Watcher

	// Adopted, if set, has the events: somebody else has opened them on all CPUs, and enables and disables them.
	// The recording closes it. To is where it goes then, instead of a file.
	Adopted *perfring.Source
	To      StreamOutput

	// Source, if set, has the events of a machine that is simulated, Processes are its processes, and Rest reads their
	// stacks.
	Source    *perfring.Source
	Processes process.Access
	Rest      session.RingReader

	Output      string        // file, "-" for stdout
	Place       *output.Place // what Output leads to, if it has been resolved already
	Rotation    *Rotation     // instead of Output and Place
	Compress    int           // zstd level, 0 for none
	CommandLine []string      // of unspool, for the file's header
	Version     string        // likewise

	// Note is called with a line for the user about what was done otherwise than asked. Warn is the same for what
	// has failed, while the recording goes on; it may be nil.
	Note, Warn func(string)
	// Progress is called twice a second with the counts so far.
	Progress func(*counts.Stats)
}

// StartOpener starts an opener for the recording. The caller closes it.
func (o *Options) StartOpener() (*opener.Client, error) {
	if len(o.Command) == 0 {
		return opener.Start()
	}
	return opener.StartWithCommand(cmp.Or(o.CommandStdout, os.Stdout))
}

// A SampledFile is an open file in which frames were.
type SampledFile = image.SampledFile

// An Outcome is the result of a recording.
type Outcome struct {
	counts.Result
	StackSize int // bytes of a stack that were copied at most
	// ReadsRest means that the rest of stacks that are cut off is read when they are sampled.
	ReadsRest bool
	// TargetsEnded means that all processes or threads that were to be recorded have ended, not counting a command.
	TargetsEnded bool
	// ExitStatus is the command's own, 0 when there was none.
	ExitStatus int
}
