package speedscope_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"

	"unspool/capture/format/speedscope"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// A recording as a file of speedscope, of which some is read again.
func Example() {
	const recordings = "../../../testdata/recordings/"
	r, err := perfdata.Open(recordings + "shapes/perf.data")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	names := symbols.New(symbols.Options{Root: recordings + "root"})
	p, err := profile.Load(r, names, profile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := speedscope.Write(&file, p, speedscope.Options{Name: "shapes"}); err != nil {
		log.Fatal(err)
	}
	var read struct {
		Name     string
		Shared   struct{ Frames []struct{ Name string } }
		Profiles []struct{ Unit string }
	}
	if err := json.Unmarshal(file.Bytes(), &read); err != nil {
		log.Fatal(err)
	}
	fmt.Println(read.Name, read.Profiles[0].Unit, read.Shared.Frames[0].Name)
	// Output:
	// shapes none _start
}
