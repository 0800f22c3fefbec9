package perfdata

import "slices"

// beginFile writes header, IDs, attributes and the features that must be there from the beginning.
func (w *Writer) beginFile() error {
	b := make([]byte, headerSize)
	events, attrs := w.appendEvents(nil, headerSize)
	b = append(b, events...)
	w.header = fileHeader{Magic: magic, Size: headerSize, AttrSize: fileAttrSize + 16, Attrs: attrs}
	for _, f := range w.early {
		w.places[f.num] = section{uint64(len(b)), uint64(len(f.data))}
		w.table = encode(w.table, w.places[f.num])
		w.header.set(f.num)
		b = append(b, f.data...)
	}
	b = append(b, make([]byte, align(len(b), 8)-len(b))...)
	w.header.Data.Offset = uint64(len(b))
	encode(b[:0], w.header)
	b = append(b, w.table...)
	if _, err := w.file.WriteAt(b, 0); err != nil {
		return err
	}
	w.written = int64(len(b))
	return nil
}

// appendEvents appends the IDs and then the attributes of all events, for an offset in the file, and returns
// where the attributes are.
func (w *Writer) appendEvents(b []byte, at uint64) (_ []byte, attrs section) {
	ids := make([]section, len(w.events))
	for i, e := range w.events {
		ids[i] = section{at + uint64(len(b)), uint64(8 * len(e.IDs))}
		for _, id := range e.IDs {
			b = le.AppendUint64(b, id)
		}
	}
	attrs.Offset = at + uint64(len(b))
	for i, e := range w.events {
		b = encode(appendAttr(b, e.PerfEventAttr, fileAttrSize), ids[i])
	}
	attrs.Size = at + uint64(len(b)) - attrs.Offset
	return b, attrs
}

// commit appends data to the data section, writes tail behind it, and makes h the header. tail begins with
// the feature table that belongs to h.
//
// The process can be killed between any two system calls, and perf must be able to read the file
// nevertheless. The header has the old size while the data is written, so a file whose features all come last
// is complete at every moment. A file that cannot be read without its features (TRACING_DATA, COMPRESSED) has
// its table right behind the data, where the new data has to go. There everything behind the table is written
// first, then the data in the place of the table, then the header. So the file is incomplete only between two
// system calls that write a few bytes each.
func (w *Writer) commit(data, tail []byte, h fileHeader) error {
	end := int64(w.header.Data.Offset + w.header.Data.Size)
	old := len(w.table)
	all := append(data, tail...)
	h.Data.Size += uint64(len(data))
	err := w.writeParts(end, all, min(old, len(all)))
	if err == nil {
		if h.Features == w.header.Features && h.Attrs == w.header.Attrs {
			_, err = w.file.WriteAt(le.AppendUint64(nil, h.Data.Size), sizeAt)
		} else {
			_, err = w.file.WriteAt(encode(nil, h), 0)
		}
	}
	if err != nil {
		// Restore the state of the last flush. The error that is reported is the first one.
		_, _ = w.file.WriteAt(w.table, end)
		_ = w.file.Truncate(end + int64(old))
		return err
	}
	w.header = h
	w.written = end + int64(len(all))
	return nil
}

// writeParts writes b at off: first all but its first n bytes, and then these.
func (w *Writer) writeParts(off int64, b []byte, n int) error {
	if _, err := w.file.WriteAt(b[n:], off+int64(n)); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	_, err := w.file.WriteAt(b[:n], off)
	return err
}

// finishFile writes the features and the header that announces them.
func (w *Writer) finishFile() error {
	fs := slices.Clone(w.static)
	set := func(f feature) {
		fs = slices.DeleteFunc(fs, func(g feature) bool { return g.num == f.num })
		at, _ := slices.BinarySearchFunc(fs, f.num, func(g feature, n Feature) int { return int(g.num) - int(n) })
		fs = slices.Insert(fs, at, f)
	}
	ids := feature{num: BuildIDs}
	for _, id := range w.ids {
		if !w.isUnlisted(id.Path) {
			ids.data = appendBuildID(ids.data, 0, id)
		}
	}
	if len(ids.data) > 0 {
		set(ids)
	}
	if w.last > 0 {
		set(feature{SampleTime, le.AppendUint64(le.AppendUint64(nil, w.first), w.last)})
	}
	if w.comp != nil {
		delete(w.places, Compressed) // it is written again, as the ratio is known now
		set(w.comp.feature())
	}

	if w.late {
		set(feature{EventDesc, eventDesc(w.events)})
	}

	h := w.header
	tail := make([]byte, 0, 16*len(fs))
	var contents []byte
	at := h.Data.Offset + h.Data.Size + uint64(cap(tail))
	for _, f := range fs {
		place, ok := w.places[f.num]
		if !ok {
			place = section{at + uint64(len(contents)), uint64(len(f.data))}
			contents = append(contents, f.data...)
		}
		tail = encode(tail, place)
		h.set(f.num)
	}
	if w.late {
		contents, h.Attrs = w.appendEvents(contents, at)
	}
	contents = appendPerfMaps(contents, w.perfMaps)
	return w.commit(nil, append(tail, contents...), h)
}
