package asm

import (
	"strings"
	"testing"

	"unspool/testdata/programs"
	"unspool/unwind/rule"
)

// A function whose cases are reached only through a jump table, in a loop out of
// which compilers move the loading of the table's address, with calls in the
// cases, one of which does not return.
const switches = `
#include <stdlib.h>
volatile long total;
__attribute__((noinline)) void note(long n) { total += n; }
__attribute__((noinline)) long run(const unsigned char *code, long n, long *regs) {
	long a = regs[0], b = regs[1], c = regs[2], room[4] = {0};
	for (long i = 0; i < n; i++)
		switch (code[i]) {
		case 0: note(a); a += b; break;
		case 1: note(b); b ^= c * 3; break;
		case 2: note(c); c -= a; break;
		case 3: a = room[c & 3]; note(a + b); break;
		case 4: room[b & 3] = a * c; note(4); break;
		case 5: note(i); i += 2; break;
		case 6: if (a > b) note(a - b); break;
		case 7: note(a); note(b); return a - b;
		case 8: abort();
		case 9: note(c * c); a = b = c; break;
		}
	return a + b + c;
}
int main(int argc, char **argv) {
	long regs[3] = {argc, 2, 3};
	return run((const unsigned char *)argv[0], argc, regs);
}
`

// TestSwitches reads switch statements without their CFI. Each instruction must have
// a rule, which must be that of the CFI.
func TestSwitches(t *testing.T) {
	for _, compiler := range []string{"gcc", "clang"} {
		for _, flags := range []string{"-O1 -fPIE -pie", "-O2 -fPIE -pie", "-Os -fPIE -static",
			"-O2 -fno-pie -no-pie", "-Os -fno-pie -static", "-O3 -fPIC -pie -fcf-protection=full"} {
			t.Run(compiler+" "+flags, func(t *testing.T) {
				args := append(strings.Fields(compiler+" "+flags), "-fomit-frame-pointer")
				path := programs.BuildText(t, "switches.c", switches, args...)
				start := programs.AddressOf(t, path, "run")
				c, table := openCode(t, path, nil)
				fde, err := table.FDE(start)
				if err != nil {
					t.Fatal(err)
				}
				cases := 0
				var in insn
				for row, err := range fde.Rows() {
					if err != nil {
						t.Fatal(err)
					}
					for pc := row.Start; pc < row.End; pc += uint64(in.Len) {
						if !in.Decode(c.bytes(pc)) {
							t.Fatalf("%#x: not decoded", pc)
						}
						if turn, _ := in.turn(pc); turn == jumpsFar {
							cases++
						}
						if in.isPadding() {
							continue
						}
						got, ok := c.Rule(pc)
						if !ok {
							t.Errorf("%#x: no rule", pc)
							continue
						}
						want := rule.Compile(row, pc)
						if want.BP() == 0 {
							want |= got & (rule.MaxBP << 4) // clang's CFI says that BP is saved only after all pushes
						}
						if same, compared := sameRule(c, pc, got, want); compared && !same {
							t.Errorf("%#x: code %s, CFI %s", pc, show(got), show(want))
						}
					}
				}
				if cases == 0 {
					t.Error("there is no jump table")
				}
			})
		}
	}
}

// TestJumpTableIsFollowedWhenItsLengthIsKnown has a case that only the table leads to,
// an endless loop.
func TestJumpTableIsFollowedWhenItsLengthIsKnown(t *testing.T) {
	const (
		entry = "\x53" // push %rbx
		// lea table(%rip), %rax; movslq (%rax,%rdi,4), %rcx; add %rax, %rcx; jmp *%rcx
		jump   = "\x48\x8d\x05\x0f\x00\x00\x00\x48\x63\x0c\xb8\x48\x01\xc1\xff\xe1"
		leave  = "\x5b\xc3"         // pop %rbx; ret
		loop   = "\x90\xeb\xfd\xcc" // 1: nop; jmp 1b; int3
		within = "\xfc\xff\xff\xff"
		beyond = "\xff\xff\xff\x7f"
	)
	for _, c := range []struct{ name, before, table string }{
		{"cmp $1, %edi; ja", "\x83\xff\x01\x77\x10", within + within},
		{"cmp $2, %edi; jae", "\x83\xff\x02\x73\x10", within + within},
		{"and $1, %edi", "\x83\xe7\x01\x90\x90", within + within},
		{"not: of unknown length", "\x90\x90\x90\x90\x90", within + within},
		{"not: compared with something else since", "\x83\xff\x01\x39\xf7", within + within},
		{"not: a case outside the file", "\x83\xff\x01\x77\x10", within + beyond},
		{"not: longer than the file", "\x83\xff\x02\x77\x10", within + within},
	} {
		code := assemble(t, entry+c.before+jump+leave+loop+c.table)
		want := rule.GuessSP | 2<<16
		if strings.HasPrefix(c.name, "not") {
			want = rule.None
		}
		if got, _ := code.Rule(0x1018); got != want {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
