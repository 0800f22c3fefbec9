package syscap

// embedded is a file within the capture: FILE_CHUNK frames with the same path.
type embedded struct {
	w    *Writer
	path string
	data []byte // not written yet
}

// maxChunk is how much of a file a frame holds: as much as in Sysprof's own captures, since sysprof-cli
// --merge has no room for larger ones and crashes.
const maxChunk = 16<<10 - fileSize

func (f *embedded) write(b []byte) {
	for n := maxChunk - len(f.data); len(b) > n; n = maxChunk {
		f.chunk(append(f.data, b[:n]...), false)
		f.data, b = f.data[:0], b[n:]
	}
	f.data = append(f.data, b...)
}

// close writes the last chunk, which is marked as such.
func (f *embedded) close() { f.chunk(f.data, true) }

func (f *embedded) chunk(b []byte, isLast bool) {
	w := f.w
	at := w.open(frameFile, frameHeader{cpu: -1, pid: -1, time: w.end})
	w.frames.chunk(f.path, b, isLast)
	w.close(at)
}
