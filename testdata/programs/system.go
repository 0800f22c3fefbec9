package programs

import (
	"debug/elf"
	"path/filepath"
	"slices"
	"testing"
)

// System returns binaries of this system whose CFI together has every form that
// compilers and hand-written assembly produce.
func System(t testing.TB) []string {
	var found []string
	for _, pattern := range []string{
		"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6",
		"/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.[0-9]*", "/usr/lib64/libcrypto.so.[0-9]*",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6",
		"/usr/bin/perl", "/usr/bin/bash",
	} {
		files, _ := filepath.Glob(pattern)
		found = append(found, files...)
	}
	if len(found) == 0 {
		t.Skip("skipped for want of system libraries in their usual places")
	}
	return found
}

// AddressOf gives the address that the symbol table of an ELF file has for a function.
func AddressOf(t testing.TB, path, function string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == function })
	if i < 0 {
		t.Fatalf("%s: no function %s", path, function)
	}
	return symbols[i].Value
}
