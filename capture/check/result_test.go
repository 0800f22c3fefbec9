package check

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestNamesInAResult has names of the recorded system with what terminals obey: no form of a result has it, and JSON
// is read back as it was.
func TestNamesInAResult(t *testing.T) {
	const name = "a\x1b]0;owned\a\x7f\u009b31m\u202e\u200b"
	r := &Result{File: name, Wrong: []Wrong{{Caller: name, Callee: name, Source: "cfi", Why: "no call", Samples: 1}},
		Problems: []string{name}}
	var asJSON, text bytes.Buffer
	if err := r.WriteJSON(&asJSON); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{asJSON.String(), text.String()} {
		if i := strings.IndexFunc(out, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
			t.Errorf("%q is printed:\n%q", []rune(out[i:])[0], out)
		}
	}
	var back resultJSON
	if err := json.Unmarshal(asJSON.Bytes(), &back); err != nil || back.File != name || back.Worst[0].Caller != name ||
		back.Worst[0].Callee != name || back.Problems[0] != name {
		t.Errorf("read back: %+v, %v", back, err)
	}
}
