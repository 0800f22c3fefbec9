package perfdata

import (
	"errors"
	"fmt"
	"io/fs"

	"unspool/perfring"
)

// beginPipe writes the header of a pipe, the attributes, and the features known so far.
func (w *Writer) beginPipe() error {
	b := le.AppendUint64(nil, magic)
	b = le.AppendUint64(b, pipeSize)
	for _, e := range w.events {
		b = appendHeaderAttrs(b, e, len(w.events) > 1)
	}
	var tracing []byte
	for _, f := range w.static {
		size := align(recordHeader+8+len(f.data), 8)
		switch {
		case len(f.data) == 0:
			// A record without contents ends the features.
		case f.num == TracingData:
			tracing = f.data
		case size <= perfring.MaxRecordSize:
			b = appendHeader(b, perfring.RecordHeaderFeature, 0, size)
			b = le.AppendUint64(b, uint64(f.num))
			b = append(b, f.data...)
			b = append(b, make([]byte, size-recordHeader-8-len(f.data))...)
		}
		// A feature that is too long for a record, such as a command line of 64 KiB, is left out.
	}
	if tracing != nil {
		// The data follows the record and is not a part of it.
		size := align(len(tracing), 8)
		b = appendHeader(b, perfring.RecordTracingData, 0, recordHeader+4)
		b = le.AppendUint32(b, uint32(size))
		b = append(b, tracing...)
		b = append(b, make([]byte, size-len(tracing))...)
	}
	return w.send(b)
}

// maxPipeIDs is how many IDs fit into a HEADER_ATTR record.
const maxPipeIDs = (perfring.MaxRecordSize - recordHeader - pipeAttrSize) / 8

// maxEventName is how long a name of an event is that is written. perf's are those of its command line.
const maxEventName = 4096

// appendHeaderAttrs appends the HEADER_ATTR records of an event. An event on many threads and CPUs has more
// IDs than a record holds. A reader needs the IDs to distinguish events: if there are several events, the
// event is repeated with the rest of its IDs; if there is only one, the rest is left out.
func appendHeaderAttrs(b []byte, e perfring.Attr, several bool) []byte {
	for ids := e.IDs; ; {
		n := min(len(ids), maxPipeIDs)
		b = appendHeader(b, perfring.RecordHeaderAttr, 0, recordHeader+pipeAttrSize+8*n)
		b = appendAttr(b, e.PerfEventAttr, pipeAttrSize)
		for _, id := range ids[:n] {
			b = le.AppendUint64(b, id)
		}
		if ids = ids[n:]; len(ids) == 0 || !several {
			return b
		}
	}
}

// appendEventName appends the EVENT_UPDATE record that names an event.
func appendEventName(b []byte, e perfring.Attr) []byte {
	if len(e.IDs) == 0 || len(e.Name) > maxEventName {
		return b
	}
	size := align(recordHeader+16+len(e.Name)+1, 8)
	end := len(b) + size
	b = appendHeader(b, perfring.RecordEventUpdate, 0, size)
	b = le.AppendUint64(b, updateName)
	b = le.AppendUint64(b, e.IDs[0])
	b = append(b, e.Name...)
	return append(b, make([]byte, end-len(b))...)
}

// send writes b to the pipe.
func (w *Writer) send(b []byte) error {
	n, err := w.out.Write(b)
	w.written += int64(n)
	var path *fs.PathError
	if err != nil && !errors.As(err, &path) {
		err = fmt.Errorf("write %s: %w", w.name, err)
	}
	return err
}
