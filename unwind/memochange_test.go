package unwind

import (
	"fmt"
	"testing"

	"unspool/unwind/rule"
	"unspool/vmas"
)

// TestMemoIsOfOneSetOfMappings walks the same stack of a thread again and again, while what its
// return addresses lie in changes and changes back: code becomes data, or another file's, or the
// process another one.
func TestMemoIsOfOneSetOfMappings(t *testing.T) {
	const leafAt, callersAt = 0x400000, 0x900000 // the program, twice
	first, images, at := pointerProgram(t)
	whole := *firstMapping(first)
	program := vmas.Map{Addr: leafAt, Len: whole.End - whole.Start, Prot: whole.Prot,
		Name: []byte(whole.File.Path)}
	callers := program
	callers.Addr = callersAt
	data, generated := callers, callers
	data.Prot = vmas.ProtRead
	generated.Name = []byte("//anon")
	table := vmas.NewTable("")
	for pid := uint32(1); pid <= 2; pid++ {
		table.Mmap(pid, program)
		table.Mmap(pid, callers)
	}
	table.Mmap(2, data)

	inWork, inRecurse, inMain, inStart := at["in_work"], at["in_recurse"], at["in_main"], at["in_start"]
	const other = callersAt - leafAt
	words := []uint64{0, 0, inRecurse}
	for range 5 {
		words = append(words, madeSP+8*(uint64(len(words))+2), inRecurse+other)
	}
	words = append(words, madeSP+8*(uint64(len(words))+2), inMain+other, 0, inStart+other, 1)
	var regs Regs
	regs.set(rule.IP, inWork)
	regs.set(rule.SP, madeSP)
	regs.set(rule.BP, madeSP+24)

	u := NewUnwinder(images)
	walk := func(pid, thread uint32) string {
		stack := madeCopy(true, words...)
		stack.Thread = thread
		return fmt.Sprint(u.Unwind(table.Space(pid), &regs, stack))
	}
	complete := 0
	for n := range 40 {
		pid := uint32(1)
		switch n % 5 {
		case 0:
			table.Mmap(1, callers)
		case 1: // as before
		case 2:
			table.Mmap(1, data)
		case 3:
			table.Mmap(1, generated)
		case 4:
			pid = 2 // which has data there, and a thread of the same number
			for table.Space(2).Generation() != table.Space(1).Generation() {
				table.Mmap(2, program)
			}
		}
		fresh := walk(pid, 0)
		if got := walk(pid, 1); got != fresh {
			t.Fatalf("walk %d, of process %d:\n%s, want\n%s", n, pid, got, fresh)
		}
		if got := walk(pid, 1); got != fresh {
			t.Fatalf("walk %d, of process %d, repeated:\n%s, want\n%s", n, pid, got, fresh)
		}
		if n%5 == 1 && u.memos[1].score > 0 {
			complete++
		}
	}
	if complete == 0 {
		t.Error("no walk made use of the one before")
	}
}
