package profile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Point is a sample in a Timeline.
type Point struct {
	Time   uint64 // ns of the recording's clock
	Node   int32  // the leaf: index in Profile.Nodes
	Event  int32  // index in Profile.Events
	CPU    int32  // -1 when unknown
	End    End
	Period uint64
}

// Timeline keeps the samples of a recording one by one, by thread. They are in a temporary file, so memory
// depends on the number of threads. The file has no name, and is gone when the process ends.
type Timeline struct {
	file    *os.File
	out     *bufio.Writer
	written int64
	threads []series // by index in Profile.Threads
	remap   []int32  // from the node when the sample was added to the profile's final node; nil if equal
}

// series is a thread's points: full blocks in the file, and the rest.
type series struct {
	blocks []int64 // where they begin
	rest   []byte
}

const (
	pointSize = 32
	blockSize = 32 * pointSize
)

// NewTimeline makes an empty Timeline with its file in the folder for temporary files.
func NewTimeline() (*Timeline, error) {
	f, err := os.CreateTemp("", "unspool-timeline-")
	if err != nil {
		return nil, fmt.Errorf("temporary file for the samples: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Timeline{file: f, out: bufio.NewWriterSize(f, 256<<10)}, nil
}

// Close frees the file.
func (t *Timeline) Close() error { return t.file.Close() }

// Add adds a sample, the next one of its thread.
func (t *Timeline) Add(time uint64, s *Sample) error {
	for int(s.Thread) >= len(t.threads) {
		t.threads = append(t.threads, series{})
	}
	th := &t.threads[s.Thread]
	b := binary.LittleEndian.AppendUint64(th.rest, time)
	b = binary.LittleEndian.AppendUint64(b, s.Period)
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Node))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Event))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.CPU))
	th.rest = binary.LittleEndian.AppendUint32(b, uint32(s.End))
	if len(th.rest) < blockSize {
		return nil
	}
	th.blocks = append(th.blocks, t.written)
	t.written += blockSize
	_, err := t.out.Write(th.rest)
	th.rest = th.rest[:0]
	return err
}

// remapped notes that the profile's nodes have become others: node i is now[i].
func (t *Timeline) remapped(now []int32) {
	if t.remap == nil {
		t.remap = now
		return
	}
	for i, node := range t.remap {
		t.remap[i] = now[node]
	}
}

// Each calls fn with the points of a thread, in the order of the recording. The error is that of the file
// or of fn.
func (t *Timeline) Each(thread int32, fn func(Point) error) error {
	if int(thread) >= len(t.threads) {
		return nil
	}
	if err := t.out.Flush(); err != nil {
		return err
	}
	th := &t.threads[thread]
	block := make([]byte, blockSize)
	for _, at := range th.blocks {
		if _, err := t.file.ReadAt(block, at); err != nil {
			return fmt.Errorf("temporary file of the samples: %w", err)
		}
		if err := t.each(block, fn); err != nil {
			return err
		}
	}
	return t.each(th.rest, fn)
}

func (t *Timeline) each(b []byte, fn func(Point) error) error {
	for ; len(b) > 0; b = b[pointSize:] {
		word := func(at int) int32 { return int32(binary.LittleEndian.Uint32(b[at:])) }
		p := Point{
			Time: binary.LittleEndian.Uint64(b), Period: binary.LittleEndian.Uint64(b[8:]),
			Node: word(16), Event: word(20), CPU: word(24), End: End(word(28)),
		}
		if t.remap != nil {
			p.Node = t.remap[p.Node]
		}
		if err := fn(p); err != nil {
			return err
		}
	}
	return nil
}
