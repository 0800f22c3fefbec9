package recordings_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/recordings"
)

// TestRecordings reads all of them. Those with callchains have names where they are placed.
func TestRecordings(t *testing.T) {
	for name, function := range map[string]string{
		"halves": "halves_mix", "before": "changed_gone", "again": "changed_gone", "after": "changed_pack",
		"shapes": "shapes::Circle::area", "pointers": "shapes::Circle::area",
		"raw": "", "raw-pipe": "", "raw-storm": "",
	} {
		r, err := perfdata.Open(filepath.Join(recordings.Place(t, name), name+".data"))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if function == "" {
			if _, err := r.Next(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		p, err := profile.Load(r, symbols.New(symbols.Options{Kallsyms: os.DevNull}), profile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		samples := uint64(0)
		for _, s := range p.Samples {
			if p.Frames[p.Nodes[s.Node].Frame].Name == function {
				samples += s.Count
			}
		}
		if samples < 20 {
			t.Errorf("%s: %d samples of %s", name, samples, function)
		}
	}
}

// TestSize keeps what everybody who has the sources has to load small.
func TestSize(t *testing.T) {
	sum := int64(0)
	if err := filepath.WalkDir(".", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			sum += info.Size()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if sum > 3<<20 {
		t.Errorf("%d bytes", sum)
	}
}
