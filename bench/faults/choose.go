package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// small is the number of lines up to which a package may have no fault.
const small = 150

// draw draws faults from all packages of a tree, for each package three times as many as it gets of n, as
// tests may not reach some. A function has one at most, and the kinds take turns.
func draw(tree string, n int, seed uint64) ([]*fault, error) {
	files, err := productFiles(tree)
	if err != nil {
		return nil, err
	}
	lines, all := make(map[string]int), make(map[string][]*fault)
	for _, name := range files {
		source, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			return nil, err
		}
		found, err := candidates(name, source)
		if err != nil {
			return nil, err
		}
		lines[filepath.Dir(name)] += bytes.Count(source, []byte("\n"))
		all[filepath.Dir(name)] = append(all[filepath.Dir(name)], found...)
	}
	checker, err := newChecker(tree)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, 0))
	var chosen []*fault
	for _, pkg := range slices.Sorted(maps.Keys(all)) {
		got := 0
		for _, f := range takeTurns(all[pkg], random) {
			if got == 3*quota(lines, n)[pkg] {
				break
			}
			twice := func(c *fault) bool { return c.file == f.file && c.function == f.function }
			if slices.ContainsFunc(chosen, twice) || !checker.compiles(f) {
				continue
			}
			chosen = append(chosen, f)
			got++
		}
		log.Printf("%s: %d of %d candidates", pkg, got, len(all[pkg]))
	}
	return chosen, nil
}

// quota is how many of n faults each package gets: one, if it is not small, and the others where there are
// most lines for each.
func quota(lines map[string]int, n int) map[string]int {
	quota := make(map[string]int)
	sum := 0
	for pkg, count := range lines {
		if count > small {
			quota[pkg] = 1
			sum++
		}
	}
	packages := slices.Sorted(maps.Keys(lines))
	for ; sum < n; sum++ {
		most := slices.MaxFunc(packages, func(a, b string) int {
			return cmp.Compare(lines[a]*(quota[b]+1), lines[b]*(quota[a]+1))
		})
		quota[most]++
	}
	return quota
}

// takeTurns orders candidates at random, but so that the kinds take turns.
func takeTurns(faults []*fault, random *rand.Rand) (ordered []*fault) {
	kinds := make(map[string][]*fault)
	for _, f := range faults {
		kinds[f.kind] = append(kinds[f.kind], f)
	}
	names := slices.Sorted(maps.Keys(kinds))
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		kind := kinds[name]
		random.Shuffle(len(kind), func(i, j int) { kind[i], kind[j] = kind[j], kind[i] })
	}
	for i := 0; len(ordered) < len(faults); i++ {
		for _, name := range names {
			if i < len(kinds[name]) {
				ordered = append(ordered, kinds[name][i])
			}
		}
	}
	return ordered
}

// choose draws many more faults than wanted, and chooses among those that tests reach.
func choose(ctx context.Context, l *lane, n int, seed uint64) ([]*fault, error) {
	pool := filepath.Join(l.work, fmt.Sprintf("pool-%d-%d.txt", n, seed))
	drawn, err := readFaults(pool)
	if err != nil {
		if drawn, err = draw(l.tree, n, seed); err != nil {
			return nil, err
		}
		for i, f := range drawn {
			f.id = i + 1
		}
		if err := writeFaults(pool, drawn); err != nil {
			return nil, err
		}
	}
	tests, err := l.reach(ctx, drawn)
	if err != nil {
		return nil, err
	}
	lines, err := linesOf(l.tree)
	if err != nil {
		return nil, err
	}
	var chosen []*fault
	for pkg, wanted := range quota(lines, n) {
		for _, f := range drawn {
			reaches := func(t *test) bool { return t.reached[f.key()] && !t.failed }
			if wanted > 0 && f.pkg() == pkg && slices.ContainsFunc(tests, reaches) {
				chosen = append(chosen, f)
				wanted--
			}
		}
		if wanted > 0 {
			log.Printf("%s: tests reach too few of those drawn, %d are missing", pkg, wanted)
		}
	}
	slices.SortFunc(chosen, func(a, b *fault) int { return cmp.Or(cmp.Compare(a.file, b.file), a.line-b.line) })
	for i, f := range chosen {
		f.id = i + 1
	}
	return chosen, nil
}

func linesOf(tree string) (map[string]int, error) {
	files, err := productFiles(tree)
	lines := make(map[string]int)
	for _, name := range files {
		source, readErr := os.ReadFile(filepath.Join(tree, name))
		if readErr != nil {
			return nil, readErr
		}
		lines[filepath.Dir(name)] += bytes.Count(source, []byte("\n"))
	}
	return lines, err
}

func writeFaults(name string, faults []*fault) error {
	text := []byte(header)
	for _, f := range faults {
		text = append(text, f.String()...)
	}
	return os.WriteFile(name, text, 0o666)
}
