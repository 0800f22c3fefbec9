package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// corpus is where targets look for recordings and the like, relative to the top of the module.
const corpus = "dist/inputs"

// A program without a library: its ELF file is small, and each kind of its debugging information is, too.
const program = `static int f(int x) { return x * 3; }
__attribute__((cold, section(".text.cold"))) int g(int x) { return x > 3 ? f(x) : f(x + 1); }
int h(int x) { volatile int y[40]; y[x] = g(x); return f(y[x]); }
void _start(void) { h(4); for (;;) ; }
`

// compile is a command that makes a program, without the unwind table that processes need.
const compile = "gcc -x c -O2 -g -ffreestanding -nostdlib -static -fno-asynchronous-unwind-tables " +
	"-fno-unwind-tables -ffunction-sections program.c "

// load is a program to record, which is small as well: what is recorded of it refers to little else.
const load = `static volatile int sum;
__attribute__((noinline))
int down(int n) { volatile int y[8]; y[0] = n; return n ? down(n - 1) + y[0] : sum++; }
void _start(void) {
	for (int i = 0; i < 300000; i++)
		down(20);
	__asm__ volatile("syscall" : : "a"(231), "D"(0));
}
`

// collect makes recordings and programs that are small, by perf, node and gcc, where these are.
func collect(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, text := range map[string]string{"program.c": program, "load.c": load} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	const perf = "gcc -O2 -ffreestanding -nostdlib -static -fno-optimize-sibling-calls load.c -o load && " +
		"perf record -q -F 999 -e cpu-clock "
	for name, command := range map[string]string{
		"dwarf5.elf":  compile + "-gdwarf-5 -o dwarf5.elf",
		"dwarf4.elf":  compile + "-gdwarf-4 -o dwarf4.elf",
		"small.elf":   compile + "-m32 -gdwarf-5 -o small.elf",
		"zlib.elf":    compile + "-gz=zlib -o zlib.elf",
		"zlibgnu.elf": compile + "-gz=zlib-gnu -o zlibgnu.elf",
		"zstd.elf":    compile + "-o zstd.elf && objcopy --compress-debug-sections=zstd zstd.elf",
		"alt.elf": compile + "-o alt.elf && printf 'other.debug\\000abcdefghijklmnopqrst' >alt.link && " +
			"objcopy --add-section .gnu_debugaltlink=alt.link alt.elf && rm alt.link",
		// Without a sum of what is packed, and with a dictionary that costs nothing.
		"mini.elf": compile + "-o mini.elf && objcopy -S --keep-symbol=h mini.elf mini.debug && " +
			"xz --check=none --lzma2=dict=4KiB mini.debug && " +
			"objcopy -S --add-section .gnu_debugdata=mini.debug.xz mini.elf && rm mini.debug.xz",
		"dwarf.data": perf + "--call-graph dwarf,1024 -o dwarf.data -- ./load",
		"zstd.data":  perf + "-z --call-graph dwarf,1024 -o zstd.data -- ./load",
		"fp.pipe":    perf + "-g -o - -- ./load >fp.pipe",
		"zstd.pipe":  perf + "-z --call-graph dwarf,1024 -o - -- ./load >zstd.pipe",
		// Pieces of long files: one ends in the middle of a record.
		"jit.dump": "node --perf-prof -e 1; head -c 8000 jit-*.dump >jit.dump; rm -f jit-*.dump *.log",
		"perf-node.map": "node --perf-basic-prof -e 'console.log(process.pid)' >pid; " +
			"head -n 200 /tmp/perf-$(cat pid).map >perf-node.map; rm -f /tmp/perf-$(cat pid).map pid *.log",
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			continue
		}
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "without %s: %v\n%s", name, err, out)
		}
	}
	return nil
}
