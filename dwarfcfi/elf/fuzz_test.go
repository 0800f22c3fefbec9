package elf

import (
	"bytes"
	"os"
	"testing"

	"unspool/dwarfcfi/elf/elftest"
	"unspool/testdata/costs"
	"unspool/testdata/inputs"
)

func FuzzELF(f *testing.F) {
	for _, class := range []int{64, 32} {
		image := elftest.Small(class, make([]byte, 44), 20)
		f.Add(image)
		stripped := bytes.Clone(image)
		clear(stripped[40:48]) // e_shoff
		f.Add(stripped)
		big := bytes.Clone(image)
		big[5] = 2
		f.Add(big)
	}
	if self, err := os.ReadFile("/proc/self/exe"); err == nil {
		f.Add(self[:4096])
	}
	for _, file := range inputs.Files(40, 40<<10, inputs.Objects...) {
		f.Add(file)
	}
	for _, file := range inputs.Files(20, 40<<10, "../../dist/inputs/*.elf") {
		f.Add(file)
	}
	f.Fuzz(inputs.Many(f, func(t *testing.T, file []byte) {
		defer costs.For(len(file)).Check(t)()
		r := bytes.NewReader(file)
		ReadBuildID(r)
		l, err := ReadLayout(r, int64(len(file)))
		if err != nil {
			return
		}
		for _, e := range []Extent{l.EhFrame, l.EhFrameHdr, l.DebugFrame, l.DebugLink, l.Pclntab} {
			if !l.Holds(e) {
				t.Errorf("%+v of %d bytes", e, len(file))
			}
			read, err := l.Contents(r, e)
			if err == nil && e.Packed == Plain && !bytes.Equal(read, file[e.Offset:][:e.Size]) {
				t.Errorf("%+v: %d bytes that are not the file's", e, len(read))
			}
		}
	}, inputs.InELF(".shstrtab", ".note", ".dynamic")))
}
