package capture_test

import (
	"context"
	"fmt"
	"log"

	"unspool/capture"
	"unspool/capture/profile"
)

// How many stacks of a recording of perf are complete, and the first deep one.
func Example() {
	const recordings = "../testdata/recordings/"
	rec, err := capture.Open(context.Background(), recordings+"raw/perf.data",
		capture.Options{Symfs: recordings + "root"})
	if err != nil {
		log.Fatal(err)
	}
	defer rec.Close()
	samples, complete, deep := 0, 0, false
	for s, err := range rec.Samples() {
		if err != nil {
			log.Fatal(err)
		}
		if samples++; s.End == profile.Complete {
			complete++
		}
		if !deep && len(s.Stack) > 3 {
			deep = true
			fmt.Println(s.Event, "of", s.Thread.Comm)
			for _, frame := range s.Stack {
				fmt.Printf("  %s in %s\n", frame.Name, rec.Image(&frame).Name)
			}
		}
	}
	fmt.Println(samples, "samples,", complete, "complete")
	// Output:
	// page-faults:u of shapes
	//   shapes::Square::area in shapes
	//   shapes::Group<5>::nested in shapes
	//   shapes::Group<5>::area in shapes
	//   bare_main in shapes
	//   _start in shapes
	// 82 samples, 82 complete
}
