package symbols_test

import (
	"fmt"
	"log"

	"unspool/capture/symbols"
	"unspool/vmas"
)

// The function at an offset in a file, which is looked for below another root. No build ID of it is known, so whatever
// is at the path is taken for it.
func Example() {
	names := symbols.New(symbols.Options{Root: "../../testdata/recordings/root"})
	image := names.Image("/tmp/unspool-recording-AAAAAAAAAAAAAA/shapes", nil, vmas.FileID{})
	f, ok := image.Lookup(0x2b8)
	if !ok {
		log.Fatal(names.Problems())
	}
	fmt.Printf("%s, %#x to %#x\n", names.Name(f.Name), f.Addr, f.Addr+f.Size)
	// Output:
	// shapes::Circle::area, 0x4002b0 to 0x40030c
}
