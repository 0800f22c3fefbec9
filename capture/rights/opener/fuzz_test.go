package opener

import (
	"bytes"
	"testing"

	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

// FuzzMessages reads what the other end of a line may send as a request and as an answer: what is read is
// what was sent.
func FuzzMessages(f *testing.F) {
	f.Add((&request{op: openPath, pid: 1, tid: 2, start: 3, end: 4, text: []byte("/usr/bin/true")}).append(nil))
	f.Add((&answer{errno: errOther, more: 1, value: 3, bytes: []byte("no such file")}).append(nil))
	f.Add((&answer{bytes: make([]byte, statSize)}).append(nil))
	f.Fuzz(inputs.Many(f, func(t *testing.T, b []byte) {
		defer costs.For(len(b)).Check(t)()
		if r, err := parseRequest(b); err == nil {
			if again := r.append(nil); !bytes.Equal(again, b) {
				t.Errorf("request %+v was %x, is %x", r, b, again)
			}
			if len(r.text) > mostText {
				t.Errorf("a text of %d bytes", len(r.text))
			}
		}
		a, err := parseAnswer(b)
		if err != nil {
			return
		}
		if again := a.append(nil); !bytes.Equal(again, b) {
			t.Errorf("answer %+v was %x, is %x", a, b, again)
		}
		if err := a.err(); (err == nil) != (a.errno == 0) {
			t.Errorf("errno %d is %v", a.errno, err)
		}
		if st, err := parseStat(a.bytes); err == nil && !bytes.Equal(appendStat(nil, &st), a.bytes) {
			t.Errorf("%x is %+v", a.bytes, st)
		}
		if all := parseNumbers(a.bytes); !bytes.Equal(appendNumbers(nil, all), a.bytes[:len(a.bytes)&^3]) {
			t.Errorf("%x is %v", a.bytes, all)
		}
	}))
}
