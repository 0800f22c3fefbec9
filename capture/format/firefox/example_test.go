package firefox_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log"

	"unspool/capture/format/firefox"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// A recording as a file of Firefox Profiler, of which some is read again. The timeline has its samples one by one.
func Example() {
	const recordings = "../../../testdata/recordings/"
	r, err := perfdata.Open(recordings + "shapes/perf.data")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	names := symbols.New(symbols.Options{Root: recordings + "root"})
	timeline, err := profile.NewTimeline()
	if err != nil {
		log.Fatal(err)
	}
	defer timeline.Close()
	p, err := profile.Load(r, names, profile.Options{Timeline: timeline})
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := firefox.Write(&file, p, timeline, firefox.Options{}); err != nil {
		log.Fatal(err)
	}
	text, err := gzip.NewReader(&file)
	if err != nil {
		log.Fatal(err)
	}
	var read struct {
		Threads []struct {
			Name    string
			Samples struct{ Length int }
		}
	}
	if err := json.NewDecoder(text).Decode(&read); err != nil {
		log.Fatal(err)
	}
	fmt.Println(read.Threads[0].Name, "has", read.Threads[0].Samples.Length, "samples")
	// Output:
	// shapes has 62 samples
}
