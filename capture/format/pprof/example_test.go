package pprof_test

import (
	"fmt"
	"log"

	"unspool/capture/format/pprof"
	"unspool/capture/perfdata"
	"unspool/capture/profile"
	"unspool/capture/symbols"
)

// A recording as a profile of pprof. [pprof.Write] writes one as a file.
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
	converted, err := pprof.Convert(p)
	if err != nil {
		log.Fatal(err)
	}
	for _, of := range converted.SampleType {
		fmt.Println(of.Type, "in", of.Unit)
	}
	leaf := converted.Sample[0].Location[0]
	fmt.Println(leaf.Line[0].Function.Name, converted.Sample[0].Label["comm"], converted.Sample[0].Value)
	// Output:
	// samples in count
	// _start [shapes] [1]
}
