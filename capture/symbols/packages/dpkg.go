package packages

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unspool/vmas/process"
)

const (
	maxList   = 32 << 20 // bytes of one list of files
	maxStatus = 64 << 20
	mostTime  = time.Second
)

// owners finds the packages of files by dpkg's lists of files: a folder with one for each package, named
// after it. The result has a name for each path, "" for none. All paths are one search: it reads lists until all
// are found.
func owners(folder string, paths []string) []string {
	found := make([]string, len(paths))
	lists, err := os.ReadDir(folder)
	if err != nil {
		return found
	}
	wanted := make(map[string][]int) // by line that a path may have: which paths
	for i, path := range paths {
		for _, line := range linesOf(path) {
			wanted[line] = append(wanted[line], i)
		}
	}
	deadline := time.Now().Add(mostTime)
	for _, entry := range lists {
		name, ok := strings.CutSuffix(entry.Name(), ".list")
		if !ok {
			continue
		}
		if time.Now().After(deadline) || !slices.Contains(found, "") {
			break
		}
		list := readBounded(filepath.Join(folder, entry.Name()), maxList)
		name, _, _ = strings.Cut(name, ":") // the architecture
		for len(list) > 0 {
			var line []byte
			line, list, _ = bytes.Cut(list, []byte("\n"))
			for _, i := range wanted[string(line)] {
				found[i] = name
			}
		}
	}
	return found
}

// linesOf are the lines by which a list may have a file. Its name there may still be the one from before /usr was
// merged.
func linesOf(path string) []string {
	if !strings.HasPrefix(path, "/") {
		return nil
	}
	return []string{path, strings.TrimPrefix(path, "/usr"), "/usr" + path}
}

// versions are those of the installed packages, by name, from dpkg's status; nil if there is none.
func versions(status string) map[string]string {
	file, err := process.OpenRegular(status)
	if err != nil {
		return nil
	}
	defer file.Close()
	all := make(map[string]string)
	var name string
	lines := bufio.NewScanner(io.LimitReader(file, maxStatus))
	for lines.Scan() {
		if key, value, _ := bytes.Cut(lines.Bytes(), []byte(": ")); string(key) == "Package" {
			name = string(value)
		} else if string(key) == "Version" {
			all[name] = string(value)
		}
	}
	return all
}

// readBounded reads a regular file, of which nil is left where it cannot be read.
func readBounded(path string, most int64) []byte {
	file, err := process.OpenRegular(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return nil
	}
	return text
}
