package perfdata

import (
	"encoding/binary"

	"unspool/unwind"
)

// Bits 8 to 11 of a sample's misc say why the walk over its user stack ended: the reason plus one, or 0 where nothing
// is said. The kernel leaves these bits 0 (linux/perf_event.h gives PERF_RECORD_SAMPLE bits 0 to 2, 14 and 15), and readers
// mask them out.
const (
	endShift = 8
	endMask  = 0xf
)

// SetEnd stores in a sample's record why its walk ended.
func SetEnd(rec []byte, r unwind.Reason) {
	misc := binary.LittleEndian.Uint16(rec[4:])
	binary.LittleEndian.PutUint16(rec[4:], misc&^(endMask<<endShift)|uint16(r+1)<<endShift)
}

// End reads from a sample's misc what SetEnd stored. It is false where nothing was, as in the recordings of other programs.
func End(misc uint16) (unwind.Reason, bool) {
	n := misc >> endShift & endMask
	return unwind.Reason(n - 1), n > 0 && n <= unwind.NumReasons
}

// The reasons fit.
const _ = uint(endMask - unwind.NumReasons)
