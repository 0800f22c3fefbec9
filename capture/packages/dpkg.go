package packages

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	maxList  = 32 << 20 // bytes of one list of files
	patience = time.Second
)

// owners finds the packages of files by dpkg's lists of files: a folder with one for each package, named
// after it. The result has a name for each path, "" for none. All paths are one search, as all lists are
// read.
func owners(folder string, paths []string) []string {
	found := make([]string, len(paths))
	lists, err := os.ReadDir(folder)
	if err != nil {
		return found
	}
	var wanted [][][]byte // by path: the lines that it may have
	for _, path := range paths {
		wanted = append(wanted, linesOf(path))
	}
	deadline := time.Now().Add(patience)
	for _, entry := range lists {
		name, ok := strings.CutSuffix(entry.Name(), ".list")
		if !ok {
			continue
		}
		if time.Now().After(deadline) {
			break
		}
		list := readList(filepath.Join(folder, entry.Name()))
		name, _, _ = strings.Cut(name, ":") // the architecture
		for i, lines := range wanted {
			for _, line := range lines {
				if bytes.Contains(list, line) {
					found[i] = name
				}
			}
		}
	}
	return found
}

// linesOf are the lines by which a list has a file. Its name there may still be the one from before /usr was
// merged.
func linesOf(path string) (lines [][]byte) {
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "\n") {
		return nil
	}
	for _, p := range []string{path, strings.TrimPrefix(path, "/usr"), "/usr" + path} {
		lines = append(lines, []byte("\n"+p+"\n"))
	}
	return lines
}

// readList reads a list; its first line is "/.", so that all files are behind a line's end.
func readList(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	list, err := io.ReadAll(io.LimitReader(file, maxList))
	if err != nil {
		return nil
	}
	return list
}
