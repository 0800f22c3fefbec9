package srcline

import (
	"flag"
	"path/filepath"
	"runtime"
	"testing"
)

var image = flag.String("image", "",
	"the ELF file that BenchmarkFrames asks about, instead of a small one that it compiles")

// BenchmarkFrames looks up some thousand addresses all over an image.
func BenchmarkFrames(b *testing.B) {
	name := *image
	if name == "" {
		dir := b.TempDir()
		cxx("g++", "-O2", "-g").in(b, dir)
		name = filepath.Join(dir, "program")
	}
	addrs := textAddrs(b, name)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	found, frames := 0, 0
	for b.Loop() {
		d := open(b, name)
		err := d.Frames(addrs, func(_ int, f []Frame) {
			found++
			frames += len(f)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(len(addrs))*float64(b.N)/b.Elapsed().Seconds(), "addresses/s")
	b.ReportMetric(float64(frames)/float64(found), "frames/address")
	b.ReportMetric(float64(after.Sys)/(1<<20), "MiB")
}
