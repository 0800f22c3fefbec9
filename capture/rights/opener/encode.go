package opener

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

func appendNumbers(b []byte, all []uint32) []byte {
	for _, n := range all {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

func parseNumbers(b []byte) (all []uint32) {
	for ; len(b) >= 4; b = b[4:] {
		all = append(all, binary.LittleEndian.Uint32(b))
	}
	return all
}

// statSize is the size of an encoded stat: device, inode, size, mtime and ctime.
const statSize = 7 * 8

func appendStat(b []byte, st *unix.Stat_t) []byte {
	for _, n := range []uint64{st.Dev, st.Ino, uint64(st.Size), uint64(st.Mtim.Sec), uint64(st.Mtim.Nsec),
		uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func parseStat(b []byte) (st unix.Stat_t, err error) {
	if len(b) != statSize {
		return st, errMessage
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	st.Dev, st.Ino, st.Size = n(0), n(1), int64(n(2))
	st.Mtim.Sec, st.Mtim.Nsec = int64(n(3)), int64(n(4))
	st.Ctim.Sec, st.Ctim.Nsec = int64(n(5)), int64(n(6))
	return st, nil
}
