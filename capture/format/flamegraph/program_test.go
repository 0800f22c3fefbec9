package flamegraph

import (
	"fmt"
	"path/filepath"
	"testing"

	"unspool/capture/output/human"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
	"unspool/testdata/browser"
	"unspool/testdata/recordings"
)

// A recording of a real program, with inlined functions and lines of its source.
func TestProgram(t *testing.T) {
	r, err := perfdata.Open(filepath.Join(recordings.Place(t, "shapes"), "shapes.data"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := profile.Load(r, symbols.New(symbols.Options{}), profile.Options{Lines: true})
	if err != nil {
		t.Fatal(err)
	}

	// The number of samples in a function's frames, by the profile.
	in := func(name string) uint64 {
		var n uint64
		for _, s := range p.Samples {
			for node := s.Node; node > 0; node = p.Nodes[node].Parent {
				if p.Frames[p.Nodes[node].Frame].Name == name {
					n += s.Count
					break
				}
			}
		}
		return n
	}
	const inlined = "bare_touch"
	touch, circle := in(inlined), in("shapes::Circle::area")
	if circle == 0 || touch <= circle {
		t.Fatalf("%d samples in Circle::area, %d in what is inlined there and elsewhere", circle, touch)
	}
	for _, o := range []Options{{Format: HTML}, {Format: SVG}} {
		page := open(t, p, o)
		page.PressCtrl("f")
		page.Press(inlined)
		if o.Format == SVG {
			page.Until("document.querySelector('#found').textContent.includes(" +
				browser.Quote(fmt.Sprintf("%.1f %% of samples", 100*float64(touch)/float64(p.Count()))) + ")")
			continue
		}
		page.Until("document.querySelector('#found').textContent.includes('of samples')")
		page.Press("\r")
		page.text("#detail .name", inlined)
		place := browser.Eval[string](page.Page, "document.querySelector('#detail .place').textContent")
		if want := "inlined · shapes · "; len(place) < len(want) || place[:len(want)] != want {
			t.Errorf("%s is %q", inlined, place)
		}
		page.text("dd", human.Plural(p.Count(), "sample")+" of 1 thread in "+human.Duration(p.Duration))
	}
}
