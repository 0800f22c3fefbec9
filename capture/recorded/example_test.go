package recorded_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"unspool/capture/perfdata"
	"unspool/capture/recorded"
)

// A recording of perf with raw stacks becomes one with callchains.
func ExampleConvert() {
	const recordings = "../../testdata/recordings/"
	folder, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "perf.data")
	out, err := recorded.Convert(context.Background(), recorded.Options{
		Input: recordings + "raw/perf.data", Output: path, Symfs: recordings + "root", MaxStack: 100,
	})
	if err != nil {
		log.Fatal(err)
	}
	r, err := perfdata.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	fmt.Println(out.Stats.Samples, "samples of", r.Events()[0].Name+", with raw stacks:", recorded.HasStacks(r.Events()))
	// Output:
	// 82 samples of page-faults:u, with raw stacks: false
}
