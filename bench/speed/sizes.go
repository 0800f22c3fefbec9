package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"unspool/bench/section"
)

// sizes compares recordings of raw stacks with what convert makes of them: with the 8 KiB of each
// stack that perf copies by default, and with 32.
func (b *bench) sizes() (string, error) {
	unspool, err := b.executable()
	if err != nil {
		return "", err
	}
	t := section.NewTable("program", "stack, KiB", "recorded, MB", "converted, MB", "× smaller")
	for _, name := range []string{"python3", "cc1plus", "git log", "clang"} {
		for _, kib := range []int{8, 32} {
			if err := b.size(t, unspool, name, kib); err != nil {
				b.leaveOut(name, err)
				break
			}
		}
	}
	return "## Size\n\n" + t.String(), nil
}

// size records a program with so many KiB of each stack, and converts that.
func (b *bench) size(t *section.Table, unspool, name string, kib int) error {
	w, err := b.workload(name)
	if err != nil {
		return err
	}
	w.StackSize = kib << 10
	raw, converted := filepath.Join(b.dir, "raw.data"), filepath.Join(b.dir, "converted.data")
	defer os.Remove(raw)
	b.say("recording %s with %d KiB", name, kib)
	if err := w.Record(raw); err != nil {
		return err
	}
	if text, err := exec.Command(unspool, "convert", "-q", "-o", converted, raw).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	before, err := os.Stat(raw)
	if err != nil {
		return err
	}
	after, err := os.Stat(converted)
	if err != nil {
		return err
	}
	t.Add(name, fmt.Sprint(kib), fmt.Sprintf("%.1f", float64(before.Size())/1e6),
		fmt.Sprintf("%.2f", float64(after.Size())/1e6), number(float64(before.Size())/float64(after.Size())))
	return nil
}
