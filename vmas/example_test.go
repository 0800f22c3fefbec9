package vmas_test

import (
	"fmt"

	"unspool/vmas"
)

// The kernel's records about a process say in which file an address is, and at which offset.
func Example() {
	table := vmas.NewTable("") // no /proc: all that is known comes from records
	table.Fork(4711, 4711, 1, 1)
	table.Comm(4711, 4711, []byte("hello"), true)
	table.Mmap(4711, vmas.Map{
		Addr: 0x5600_0000_1000, Len: 0x3000, Offset: 0x1000,
		Prot: vmas.ProtRead | vmas.ProtExec, Name: []byte("/usr/bin/hello"),
	})

	space := table.Space(4711)
	m := space.Find(0x5600_0000_2234)
	fmt.Printf("%s: %s+%#x\n", space.Comm(4711), m.File.Path, 0x5600_0000_2234-m.Start+m.Offset)
	fmt.Println(space.Find(0x1234) == nil)

	table.Exit(4711, 4711)
	fmt.Println(table.Len())
	// Output:
	// hello: /usr/bin/hello+0x2234
	// true
	// 0
}
