package live

import (
	"encoding/binary"
	"testing"
	"time"

	"unspool/capture/perfdata"
	"unspool/capture/session"
)

func newTestFlight(last time.Duration, most int) *flight {
	f := &flight{rotation: &Rotation{Last: last}, most: most, ids: make(map[string]perfdata.FileBuildID)}
	_ = f.next()
	return f
}

// TestFlightForgetsByMemory checks that what is kept is bounded, however long it is to be kept.
func TestFlightForgetsByMemory(t *testing.T) {
	const most = 4 << 20
	f := newTestFlight(time.Hour, most)
	rec := make([]byte, 60000)
	binary.NativeEndian.PutUint16(rec[6:], uint16(len(rec)))
	for range 1000 {
		if err := f.Write(rec); err != nil {
			t.Fatal(err)
		}
		if f.due() {
			_ = f.next()
		}
		if f.bytes > most+most/partsKept {
			t.Fatalf("%d bytes are kept in %d parts, of at most %d", f.bytes, len(f.parts), most)
		}
	}
	if f.bytes < most/2 {
		t.Errorf("%d bytes are kept, of at most %d", f.bytes, most)
	}
	n := 0
	for _, p := range f.parts {
		for _, c := range p.chunks {
			n += len(c)
		}
	}
	if n != f.bytes {
		t.Errorf("%d bytes in parts, %d counted", n, f.bytes)
	}
}

func TestFlightForgetsByTime(t *testing.T) {
	const last = time.Hour // which passes as the parts are made older
	f := newTestFlight(last, mostKept)
	began := f.parts[0].began
	passed := time.Duration(0)
	for passed < 3*last {
		const step = last / 40
		passed += step
		for i := range f.parts {
			f.parts[i].began = f.parts[i].began.Add(-step)
		}
		if f.due() {
			_ = f.next()
		}
		kept := time.Since(f.parts[0].began)
		if kept < min(last, passed) {
			t.Fatalf("%v are kept after %v", kept, passed)
		}
		if n := len(f.parts); n > partsKept+2 {
			t.Fatalf("%d parts are kept", n)
		}
	}
	if len(f.parts) < partsKept || !f.parts[0].began.After(began.Add(-2*last)) {
		t.Errorf("%d parts are kept, since %v", len(f.parts), time.Since(f.parts[0].began))
	}
}

// TestFlightForgetsNothingAtTheEnd has a recording end that has not looked at the parts for a second.
func TestFlightForgetsNothingAtTheEnd(t *testing.T) {
	f := newTestFlight(time.Second, mostKept)
	f.parts = make([]part, 5)
	for i := range f.parts {
		f.parts[i].began = time.Now().Add(time.Duration(i-8) * 250 * time.Millisecond)
	}
	ends := func() bool { return true }
	if err := f.rotate(&recording{session: &session.Session{}}, ends); err != nil || len(f.parts) != 5 {
		t.Errorf("%d of 5 parts are left: %v", len(f.parts), err)
	}
}

func TestFlightBoundsBuildIDs(t *testing.T) {
	f := newTestFlight(time.Hour, mostKept)
	for i := range 3 * perfdata.MostBuildIDs {
		f.BuildID("a", []byte{byte(i), byte(i >> 8), byte(i >> 16)}, false)
	}
	if n := len(f.ids); n > perfdata.MostBuildIDs {
		t.Errorf("%d build IDs are kept", n)
	}
}

// TestFlightOfManyProcesses checks that what is known of the processes does not have parts follow one another
// at once, however much it is.
func TestFlightOfManyProcesses(t *testing.T) {
	const most = 1 << 20
	f := newTestFlight(time.Hour, most)
	rec := make([]byte, 60000)
	binary.NativeEndian.PutUint16(rec[6:], uint16(len(rec)))
	for range 2 * most / len(rec) {
		_ = f.Write(rec)
	}
	f.stated(f.parts[len(f.parts)-1].bytes)
	if f.due() {
		t.Error("the next part is to begin, and nothing was recorded")
	}
	if err := f.Write(rec[:100]); err == nil {
		t.Error("no error for a record that is cut short")
	}
}
