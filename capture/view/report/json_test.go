package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unspool/capture/profile"
	"unspool/capture/profile/profiletest"
)

func TestJSON(t *testing.T) {
	for name, o := range map[string]Options{
		"function": {File: "perf.data"},
		"process":  {By: Process, NoKernel: true, Filter: "pid 10"},
		"thread":   {By: Thread},
		"source":   {By: Source},
	} {
		t.Run(name, func(t *testing.T) {
			p := withLines()
			p.Began = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600))
			var b strings.Builder
			if err := WriteJSON(&b, p, o); err != nil {
				t.Fatal(err)
			}
			var v any
			if err := json.Unmarshal([]byte(b.String()), &v); err != nil {
				t.Errorf("%v", err)
			}
			golden := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("%s (go test -update writes it anew):\n%s", golden, &b)
			}
		})
	}
}

func TestJSONOfNothing(t *testing.T) {
	p := profiletest.New(&profile.Profile{Events: []profile.Event{{Name: "cycles"}}}).Profile
	var b strings.Builder
	if err := WriteJSON(&b, p, Options{}); err != nil {
		t.Fatal(err)
	}
	var v struct {
		Header struct {
			Command, Notes []string
			Began          *time.Time
			Stacks         any
		}
		Events []any
	}
	if err := json.Unmarshal([]byte(b.String()), &v); err != nil {
		t.Fatal(err)
	}
	if v.Header.Command == nil || v.Header.Notes == nil || v.Header.Began != nil || v.Header.Stacks != nil ||
		v.Events == nil || len(v.Events) > 0 {
		t.Errorf("%+v\n%s", v, &b)
	}
	p.Samples = []profile.Sample{{Node: 1, Count: 1}}
	if err := WriteJSON(&b, p, Options{}); err == nil {
		t.Error("an invalid profile is written")
	}
}
