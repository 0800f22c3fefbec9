package perfdata

import (
	"encoding/binary"
	"fmt"

	"unspool/perfring"

	"golang.org/x/sys/unix"
)

// Numbers from tools/perf/util/header.h.
const (
	magic         = 0x32454c4946524550 // "PERFILE2", read as a little-endian word
	magicSwapped  = 0x50455246494c4532 // the same, written by a big-endian machine
	magic1        = 0x454c494646524550 // "PERFFILE", perf before Linux 3.2
	headerSize    = 104                // sizeof(struct perf_file_header)
	headerSizeOld = 72                 // without the feature bits
	pipeSize      = 16                 // sizeof(struct perf_pipe_file_header)
	sizeAt        = 48                 // offset of data.size in the header
	featureBits   = 256                // HEADER_FEAT_BITS
	nameAlign     = 64                 // strings are padded to it (NAME_ALIGN)
)

// recordHeader is the size of struct perf_event_header: type, misc, size.
const recordHeader = 8

const (
	miscKernel      = 1       // PERF_RECORD_MISC_KERNEL
	miscUser        = 2       // PERF_RECORD_MISC_USER
	miscBuildIDSize = 1 << 15 // PERF_RECORD_MISC_BUILD_ID_SIZE
)

// Sizes with which attributes are written. perf refuses those of a file that are longer than its own struct, so a file
// has the size of Linux 4.8 (PERF_ATTR_SIZE_VER5); what came later is zero in all that is written. For a pipe, perf up
// to version 6.4 assumes that the IDs in a HEADER_ATTR record begin where its own struct ends, which has the size of
// PERF_ATTR_SIZE_VER7 since 5.13: older ones read no pipe.
const (
	fileAttrSize = 112
	pipeAttrSize = 128
)

// Sizes of attributes: PERF_ATTR_SIZE_VER0, and room for what later kernels may add.
const (
	attrSizeMin = 64
	attrSizeMax = 4096
)

var le = binary.LittleEndian

// section is struct perf_file_section: a part of the file.
type section struct{ Offset, Size uint64 }

// fileHeader is struct perf_file_header.
type fileHeader struct {
	Magic, Size, AttrSize    uint64
	Attrs, Data, EventsTypes section
	Features                 [featureBits / 64]uint64
}

// set marks a feature as present.
func (h *fileHeader) set(f Feature) { h.Features[f/64] |= 1 << (f % 64) }

// has reports whether a feature is marked as present.
func (h *fileHeader) has(f Feature) bool { return h.Features[f/64]>>(f%64)&1 != 0 }

// encode appends v, a struct of fixed size, to b.
func encode(b []byte, v any) []byte {
	b, _ = binary.Append(b, le, v) // fails only where the size is not fixed
	return b
}

// appendHeader appends a struct perf_event_header.
func appendHeader(b []byte, typ perfring.RecordType, misc uint16, size int) []byte {
	b = le.AppendUint32(b, uint32(typ))
	b = le.AppendUint16(b, misc)
	return le.AppendUint16(b, uint16(size))
}

// appendString appends s as perf does: the padded length, the bytes, zeros.
func appendString(b []byte, s string) []byte {
	n := align(len(s)+1, nameAlign)
	b = le.AppendUint32(b, uint32(n))
	b = append(b, s...)
	return append(b, make([]byte, n-len(s))...)
}

// align rounds n up to a multiple of to, a power of two.
func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

// appendAttr appends a with a size.
func appendAttr(b []byte, a unix.PerfEventAttr, size int) []byte {
	a.Size = uint32(size)
	at := len(b)
	b = encode(b, a)
	return append(b[:min(len(b), at+size)], make([]byte, max(0, at+size-len(b)))...)
}

// decodeAttr reads an attribute that takes all of b. Short attributes come from older versions of perf.
// Fields that later kernels added are accepted if they are zero, as they then change nothing.
func decodeAttr(b []byte) (a unix.PerfEventAttr, err error) {
	size := binary.Size(a)
	if len(b) < attrSizeMin {
		return a, fmt.Errorf("attribute of %d bytes, at least %d expected", len(b), attrSizeMin)
	}
	// config3 (PERF_ATTR_SIZE_VER8) says what is counted and changes no record's layout.
	for _, x := range b[min(len(b), max(size, 136)):] {
		if x != 0 {
			return a, fmt.Errorf("attribute of %d bytes with unknown fields, made by a later perf", len(b))
		}
	}
	whole := make([]byte, size)
	copy(whole, b)
	if _, err := binary.Decode(whole, le, &a); err != nil {
		return a, fmt.Errorf("attribute: %w", err)
	}
	return a, nil
}
