package profile

import (
	"fmt"
	"slices"
	"testing"
)

func TestNotesOfAKindAreOne(t *testing.T) {
	p := &Profile{Problems: []string{"the recording is cut"}, Kinds: make(map[string]string)}
	add := func(kind, text string) {
		p.Problems = append(p.Problems, text)
		p.Kinds[text] = kind
	}
	add("gone", "/a: gone")
	for i := range 1001 {
		add("stripped", fmt.Sprintf("/lib/%d: stripped", i))
	}
	n := p.Notes()
	if !slices.Equal(n.Recording, []string{"the recording is cut"}) ||
		!slices.Equal(n.Names, []string{"/lib/0: stripped (and 1,000 more)", "/a: gone"}) {
		t.Errorf("%+v", n)
	}
}

func TestFewNotes(t *testing.T) {
	notes := []string{"1", "2", "3", "4", "5", "6", "7"}
	if got := Few(notes[:5], "-v"); !slices.Equal(got, notes[:5]) {
		t.Errorf("%q", got)
	}
	want := []string{"1", "2", "3", "4", "… and 3 notes of other kinds (-v lists them)"}
	if got := Few(notes, "-v lists them"); !slices.Equal(got, want) || notes[4] != "5" {
		t.Errorf("%q", got)
	}
}
