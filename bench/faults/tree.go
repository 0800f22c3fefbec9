package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// filesOf lists the files of a checkout, but for those that git ignores.
func filesOf(tree string) ([]string, error) {
	list := exec.Command("git", "-C", tree, "ls-files", "-z", "-co", "--exclude-standard", "--deduplicate")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", tree, err)
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(tree, name)); err == nil { // not one that is deleted
			files = append(files, name)
		}
	}
	return files, nil
}

// state tells trees apart, and lanes of tests: what a test reaches depends on both.
func state(tree string, lane ...string) (string, error) {
	files, err := filesOf(tree)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, lane, os.Getenv("UNSPOOL_LANE"))
	for _, name := range files {
		if strings.HasSuffix(name, ".md") || strings.HasPrefix(name, "bench/faults/") {
			continue // so that the lists can be written meanwhile
		}
		text, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			continue // a link to a directory
		}
		fmt.Fprintln(h, name, len(text))
		h.Write(text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6]), nil
}

// copyTree makes a copy of a checkout, without its history. The modules that tests take from dist are linked.
func copyTree(from, to string) error {
	files, err := filesOf(from)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	for _, name := range files {
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"npm", "inputs"} {
		made, err := filepath.Abs(filepath.Join(from, "dist", name))
		if err != nil {
			return err
		}
		if _, err := os.Stat(made); err != nil {
			continue
		}
		if err := os.MkdirAll(filepath.Join(to, "dist"), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(made, filepath.Join(to, "dist", name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
