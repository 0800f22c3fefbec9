package perfdata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"unspool/perfring"
)

// readFileHeader reads the header b of a file, its attributes, and where its features are.
func (r *Reader) readFileHeader(b []byte, at io.ReaderAt, size int64) error {
	var h fileHeader
	if _, err := binary.Decode(b, le, &h); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	if err := r.readAttrs(&h, at, uint64(size)); err != nil {
		return err
	}
	places := r.readFeatureTable(&h, at, uint64(size))

	length := int64(h.Data.Size)
	switch {
	case h.Data.Offset < headerSizeOld || h.Data.Offset > uint64(size):
		return fmt.Errorf("data at offset %d of a file of %d bytes", h.Data.Offset, size)
	case h.Data.Size > 1<<63-1-h.Data.Offset:
		return fmt.Errorf("data of %d bytes in a file of %d", h.Data.Size, size)
	case h.Data.Size == 0 && places == nil:
		length = -1 // perf was killed while it recorded: everything to the end of the file is data
	}
	for f, place := range places {
		r.features[f] = contents{at: at, in: place}
	}
	if places == nil && h.Features != [len(h.Features)]uint64{} && h.Data.Size > 0 {
		r.featureErr = &DamageError{Path: r.path, Offset: size,
			Err: errors.New("the features behind the data are cut off")}
	}
	r.begin = int64(h.Data.Offset)
	r.nameEvents(r.Feature(EventDesc))
	r.data = newScanner(&r.pool, from(at, int64(h.Data.Offset)), int64(h.Data.Offset), length)
	return nil
}

// within returns whether s lies in a file of so many bytes.
func (s section) within(size uint64) bool { return s.Offset <= size && s.Size <= size-s.Offset }

// readAttrs reads the attributes and their IDs. All of them must be there: without them no record can be
// read.
func (r *Reader) readAttrs(h *fileHeader, at io.ReaderAt, size uint64) error {
	if h.AttrSize < attrSizeMin+16 || h.AttrSize > attrSizeMax+16 {
		return fmt.Errorf("attributes of %d bytes each", h.AttrSize)
	}
	if !h.Attrs.within(size) || h.Attrs.Size < h.AttrSize || h.Attrs.Size > maxFeature {
		return fmt.Errorf("attributes of %d bytes at offset %d of a file of %d", h.Attrs.Size, h.Attrs.Offset, size)
	}
	b := make([]byte, h.Attrs.Size/h.AttrSize*h.AttrSize)
	if _, err := at.ReadAt(b, int64(h.Attrs.Offset)); err != nil {
		return fmt.Errorf("attributes: %w", noEOF(err))
	}
	total := uint64(0)
	for ; len(b) > 0; b = b[h.AttrSize:] {
		n := h.AttrSize - 16
		attr, err := decodeAttr(b[:n])
		if err != nil {
			return err
		}
		in := section{le.Uint64(b[n:]), le.Uint64(b[n+8:])}
		// Sections may overlap, and a sparse file holds less than its size: the sum is bounded.
		if total += in.Size; !in.within(size) || total > maxFeature {
			return fmt.Errorf("IDs of %d bytes at offset %d of a file of %d", in.Size, in.Offset, size)
		}
		ids := make([]byte, in.Size)
		if _, err := at.ReadAt(ids, int64(in.Offset)); err != nil && len(ids) > 0 {
			return fmt.Errorf("IDs: %w", noEOF(err))
		}
		r.addEvent(perfring.Attr{PerfEventAttr: attr, IDs: words(ids)})
	}
	return nil
}

// words decodes 64-bit words.
func words(b []byte) []uint64 {
	w := make([]uint64, len(b)/8)
	for i := range w {
		w[i] = le.Uint64(b[8*i:])
	}
	return w
}

// readFeatureTable reads the table behind the data. It is nil if not all of it is there: the file was cut
// short, and the records can be read nevertheless.
func (r *Reader) readFeatureTable(h *fileHeader, at io.ReaderAt, size uint64) map[Feature]section {
	n := 0
	for _, w := range h.Features {
		n += bits.OnesCount64(w)
	}
	table := section{h.Data.Offset + h.Data.Size, uint64(16 * n)}
	if n == 0 || table.Offset < h.Data.Offset || !table.within(size) {
		return nil
	}
	b := make([]byte, table.Size)
	if _, err := at.ReadAt(b, int64(table.Offset)); err != nil && err != io.EOF {
		return nil
	}
	places := map[Feature]section{}
	for f := range featureBits {
		if !h.has(Feature(f)) {
			continue
		}
		s := section{le.Uint64(b), le.Uint64(b[8:])}
		if !s.within(size) {
			return nil
		}
		places[Feature(f)] = s
		b = b[16:]
	}
	return places
}

// updateName is PERF_EVENT_UPDATE__NAME (tools/lib/perf/include/perf/event.h).
const updateName = 2

// describe reads a record that describes a pipe. used is false for all other records.
func (r *Reader) describe(rec perfring.Record) (used bool, err error) {
	body := rec.Body()
	switch rec.Type() {
	case perfring.RecordHeaderAttr:
		return true, r.headerAttr(body)
	case perfring.RecordHeaderFeature:
		if len(body) < 8 {
			return true, errors.New("HEADER_FEATURE record without a number")
		}
		// perf writes a last one whose number is that of no feature, and differs between its versions.
		if n := le.Uint64(body); n < featureBits && len(body) > 8 {
			r.features[Feature(n)] = contents{data: append([]byte(nil), body[8:]...)}
			if Feature(n) == EventDesc {
				r.nameEvents(body[8:])
			}
		}
		return true, nil
	case perfring.RecordTracingData:
		if len(body) < 4 {
			return true, errors.New("HEADER_TRACING_DATA record without a size")
		}
		data, err := r.data.take(uint64(le.Uint32(body)))
		r.features[TracingData] = contents{data: data}
		return true, err
	case perfring.RecordBuildID:
		if id, ok := decodeBuildID(rec); ok {
			r.ids = append(r.ids, id)
		}
		return true, nil
	case perfring.RecordEventUpdate:
		// u64 what, u64 ID, then for a name a string.
		if len(body) <= 16 || le.Uint64(body) != updateName {
			return false, nil
		}
		if i := r.Event(le.Uint64(body[8:])); i >= 0 {
			if name := text(body[16:]); name != "" {
				r.events[i].Name = name
			}
		}
		return true, nil
	}
	return false, nil
}

// maxEvents is how many events a pipe may tell of, as it can do that at any time.
const maxEvents = 1 << 16

// headerAttr reads the body of a HEADER_ATTR record.
func (r *Reader) headerAttr(body []byte) error {
	if len(body) < attrSizeMin {
		return fmt.Errorf("HEADER_ATTR record with %d bytes", len(body))
	}
	n := int(le.Uint32(body[4:]))
	if n == 0 {
		n = attrSizeMin
	}
	if n < attrSizeMin || n > len(body) {
		return fmt.Errorf("HEADER_ATTR record with %d bytes for an attribute of %d", len(body), n)
	}
	attr, err := decodeAttr(body[:n])
	if err != nil {
		return err
	}
	ids := words(body[n:])
	// An event with more IDs than one record holds comes in several records.
	if i := len(r.events) - 1; i >= 0 && len(r.events[i].IDs) > 0 && len(r.events[i].IDs)%maxPipeIDs == 0 &&
		r.events[i].PerfEventAttr == attr {
		for _, id := range ids {
			r.byID[id] = i
		}
		r.events[i].IDs = append(r.events[i].IDs, ids...)
		return nil
	}
	if len(r.events) >= maxEvents {
		return fmt.Errorf("more than %d events", maxEvents)
	}
	r.addEvent(perfring.Attr{PerfEventAttr: attr, IDs: ids})
	return nil
}
