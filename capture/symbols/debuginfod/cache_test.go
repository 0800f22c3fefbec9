package debuginfod

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestCleaning(t *testing.T) {
	folder := t.TempDir()
	now := time.Now()
	age := func(name string, read, written time.Duration) {
		t.Helper()
		if err := os.Chtimes(filepath.Join(folder, name), now.Add(-read), now.Add(-written)); err != nil {
			t.Fatal(err)
		}
	}
	const week = 7 * day
	for _, f := range []struct {
		name          string
		read, written time.Duration
	}{
		{"00aa/debuginfo", week, 0},
		{"00aa/executable", time.Hour, 2 * week},
		{"00aa/source##usr##include##stdio.h", week, week},
		{"00aa/section-.gdb_index", week, week},
		{"00aa/debuginfo.123456", week, week}, // not completed, but not old enough
		{"00aa/debuginfo.234567", 0, week + day},
		{"00aa/notes", week, week}, // not a file of the cache
		{"00bb/debuginfo", week, week},
		{"README/debuginfo", week, week},
	} {
		write(t, filepath.Join(folder, f.name), []byte("x"))
		age(f.name, f.read, f.written)
	}
	age("00bb", week, week)
	c := cache{folder}
	c.clean(t.Context())
	if left := leftovers(t, folder); len(left) != 12 {
		t.Errorf("cleaned too early, left %q", left)
	}
	age(cleanInterval, day, day)
	c.clean(t.Context())
	want := []string{"00aa", "00aa/debuginfo.123456", "00aa/executable", "00aa/notes", "README",
		"README/debuginfo"}
	if left := leftovers(t, folder); !slices.Equal(left, want) {
		t.Errorf("left %q", left)
	}
	info, err := os.Stat(filepath.Join(folder, cleanInterval))
	if err != nil || info.ModTime().Before(now.Add(-time.Minute)) {
		t.Errorf("the time of cleaning: %v, %v", info, err)
	}
}

func TestControlFiles(t *testing.T) {
	c := cache{t.TempDir()}
	for _, s := range []struct {
		text string
		want time.Duration
	}{
		{"", 10 * time.Minute}, {"600", 10 * time.Minute}, {"", 10 * time.Minute}, {" 5\n", 5 * time.Second},
		{"0", 0}, {"-1", 0}, {"soon", 10 * time.Minute},
	} {
		if s.text != "" {
			write(t, filepath.Join(c.folder, missLifetime), []byte(s.text))
		}
		if got, _ := c.setting(missLifetime); s.text != "" && got != s.want {
			t.Errorf("%q: %v, want %v", s.text, got, s.want)
		}
	}
	c = cache{t.TempDir()}
	if got, _ := c.setting(missLifetime); got != 10*time.Minute {
		t.Errorf("without a file %v", got)
	}
	if b, err := os.ReadFile(filepath.Join(c.folder, missLifetime)); string(b) != "600" {
		t.Errorf("written: %q, %v", b, err)
	}
}
