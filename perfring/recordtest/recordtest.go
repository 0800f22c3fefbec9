// Package recordtest makes records for tests that only the kernel and perf make otherwise.
package recordtest

import (
	"encoding/binary"

	"unspool/perfring"
)

// AppendTask appends m as a record of type t, which is RecordFork or RecordExit, of an event with the format
// f.
func AppendTask(
	dst []byte, f *perfring.SampleFormat, t perfring.RecordType, m *perfring.Task, id *perfring.SampleID,
) ([]byte, error) {
	// A LOST record has the same trailer.
	lost, err := perfring.AppendLost(nil, f, &perfring.Lost{}, id)
	if err != nil {
		return dst, err
	}
	trailer := lost[len(lost)-f.SampleIDSize():]
	le := binary.LittleEndian
	const header, body = 8, 24
	dst = le.AppendUint32(dst, uint32(t))
	dst = le.AppendUint16(dst, 0)
	dst = le.AppendUint16(dst, uint16(header+body+len(trailer)))
	dst = le.AppendUint32(le.AppendUint32(dst, m.PID), m.PPID)
	dst = le.AppendUint32(le.AppendUint32(dst, m.TID), m.PTID)
	dst = le.AppendUint64(dst, m.Time)
	return append(dst, trailer...), nil
}
