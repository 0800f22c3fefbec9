package export_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"unspool/capture/format/export"
	"unspool/capture/symbols"
)

// A recording in the format that the name of the output asks for.
func Example() {
	const recordings = "../../../testdata/recordings/"
	folder, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "shapes.folded")
	format, err := export.Find("", path)
	if err != nil {
		log.Fatal(err)
	}
	out, err := export.Write(context.Background(), export.Options{
		Format: format, Input: recordings + "shapes/perf.data", Output: path,
		Symbols: symbols.Options{Root: recordings + "root"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(format.Name, "of", out.Samples, "samples")
	// Output:
	// folded of 62 samples
}
