package link

import "unsafe"

// A run is frames of a walk, leaf first, in two parts: far goes on where near ends. far is a part of an
// array that other walks share, as the outer frames of a thread rarely change from one walk to the next. Its
// capacity goes to the end of the array.
type run struct{ near, far []Frame }

// arrayEnd tells the array that far is a part of: it is the address of its end.
func arrayEnd(far []Frame) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(far))) + uintptr(cap(far))*unsafe.Sizeof(Frame{})
}

func (r *run) len() int { return len(r.near) + len(r.far) }

func (r *run) at(i int) Frame {
	if i < len(r.near) {
		return r.near[i]
	}
	return r.far[i-len(r.near)]
}

// from is the run without its first i frames.
func (r *run) from(i int) run {
	if i <= len(r.near) {
		return run{r.near[i:], r.far}
	}
	return run{far: r.far[i-len(r.near):]}
}

// appendTo appends the first n frames to dst.
func (r *run) appendTo(dst []Frame, n int) []Frame {
	near := min(n, len(r.near))
	return append(append(dst, r.near[:near]...), r.far[:n-near]...)
}

// find is the index of the first frame, whose SP goes up, that has sp or a higher one.
func (r *run) find(sp uint64) int {
	if len(r.far) > 0 && sp > r.far[0].SP {
		return len(r.near) + find(r.far, sp)
	}
	return find(r.near, sp)
}

// find is the index of the first of frames, whose SP goes up, that has sp or a higher one.
func find(frames []Frame, sp uint64) int {
	low, high := 0, len(frames)
	for low < high {
		if mid := int(uint(low+high) / 2); frames[mid].SP < sp {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// holds reports whether f is one of the frames.
func (r *run) holds(f Frame) bool {
	i := r.find(f.SP)
	return i < r.len() && r.at(i) == f
}

// agree is how many frames two stacks have in common from the leaf on.
func agree(a, b *run) int {
	n := min(a.len(), b.len())
	for i := 0; i < n; {
		x, y := a.part(i), b.part(i)
		m := min(len(x), len(y), n-i)
		if !equal(x[:m], y[:m]) {
			for x[0] == y[0] {
				x, y, i = x[1:], y[1:], i+1
			}
			return i
		}
		i += m
	}
	return n
}

// part is what follows frame i in the part that it is in, beginning with it.
func (r *run) part(i int) []Frame {
	if i < len(r.near) {
		return r.near[i:]
	}
	return r.far[i-len(r.near):]
}

// equal reports whether two runs of the same length are equal.
func equal(x, y []Frame) bool {
	return unsafe.SliceData(x) == unsafe.SliceData(y) || bytesOf(x) == bytesOf(y)
}

// bytesOf is the memory of frames, which is compared at once.
func bytesOf(f []Frame) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(f))), uintptr(len(f))*unsafe.Sizeof(Frame{}))
}

// differ reports whether two stacks differ in the part that both have.
func differ(a, b *run) bool {
	n := agree(a, b)
	return n < a.len() && n < b.len()
}
