package check

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// TestWrongEdgesThatAreNotNamed: of more wrong edges than the text names, it says how many there are.
func TestWrongEdgesThatAreNotNamed(t *testing.T) {
	for more, want := range []string{"", "          and 1 other\n", "          and 2 others\n"} {
		r := &Result{}
		for i := range mostShown + more {
			r.Wrong = append(r.Wrong, Wrong{Caller: fmt.Sprint("caller", i), Callee: "callee", Why: "no call", Samples: 1})
		}
		var text strings.Builder
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		_, rest, found := strings.Cut(text.String(), fmt.Sprintf("called by caller%d\n", mostShown-1))
		if !found || rest != want {
			t.Errorf("%d more than are named: %q, want %q", more, rest, want)
		}
	}
}
