package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// inWords is the text of an error. What Go says about a file that cannot be used, "open x: permission
// denied", is put into a sentence.
func inWords(err error) string {
	text := err.Error()
	var path *fs.PathError
	if errors.As(err, &path) {
		text = strings.Replace(text, path.Error(), pathInWords(path), 1)
	}
	return strings.Join(strings.Fields(text), " ")
}

// attempts are what system calls, as Go names them, try to do with a file.
var attempts = map[string]string{
	"open": "open", "openat": "open", "openfdat": "open",
	"stat": "find", "lstat": "find", "fstatat": "find",
	"create": "create", "mkdir": "create", "mkdirat": "create",
	"read": "read", "pread": "read", "write": "write", "pwrite": "write",
	"fork/exec": "run", "chdir": "enter",
}

func pathInWords(e *fs.PathError) string {
	attempt, ok := attempts[e.Op]
	if !ok {
		attempt = "use"
	}
	text := fmt.Sprintf("cannot %s %s: %v", attempt, quoted(e.Path), e.Err)
	if errors.Is(e, fs.ErrNotExist) {
		text += piecesInWords(e.Path)
	}
	return text
}
