package unwind

// Reason says why a walk ended.
type Reason uint8

const (
	// Root: the CFI says that the return address is undefined, as it does
	// in _start and clone. The only end that makes a stack complete.
	Root Reason = iota
	// DumpTooShort: the next frame lies beyond the copied stack.
	DumpTooShort
	// NoCFI: no rule for the PC, and nothing else gave a credible frame.
	NoCFI
	// NoImage: the file behind the PC could not be opened or read.
	NoImage
	// BadCFI: the CFI is malformed, or gave a frame that cannot be.
	BadCFI
	// Unmapped: the PC, sampled or returned to, is in no mapping.
	Unmapped
	// DepthLimit: the walk reached its maximum number of frames.
	DepthLimit

	NumReasons = iota
)

var reasonNames = [NumReasons]string{"root", "dump_too_short", "no_cfi", "no_image", "bad_cfi", "unmapped", "depth_limit"}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

var reasonWords = [NumReasons]string{"complete", "dump too short", "no CFI", "file not readable",
	"CFI does not fit", "no mapping", "depth limit"}

// Words says for people how the walk ended.
func (r Reason) Words() string {
	if int(r) < len(reasonWords) {
		return reasonWords[r]
	}
	return r.String()
}

// Source says how a frame was found.
type Source uint8

const (
	BySample       Source = iota // the sampled PC itself
	ByCFI                        // a CFI rule
	ByFramePointer               // the saved frame pointer, where there is no CFI
	ByHeuristic                  // a guess that was checked
	ByLive                       // by a stack that was read from the process after the sample
	ByKernel                     // by the kernel's own walk along frame pointers, beyond the copy

	NumSources = iota
)

var sourceNames = [NumSources]string{"sample", "cfi", "frame_pointer", "heuristic", "live", "kernel_fp"}

func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "unknown"
}
