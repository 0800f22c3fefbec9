package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// What was compiled is kept in the user's cache folder, as Go keeps what it compiles: compiling the programs takes
// longer than sampling them. What no test has used for keptFor goes.
const keptFor = 14 * 24 * time.Hour

// keptAt is the folder for what is made by a key, or "" if nothing can be kept. It is another one when a compiler
// or a source of this package is.
func keptAt(key string) string {
	root, world := keptRoot(), world()
	if root == "" || world == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(world + "\x00" + key))
	return filepath.Join(root, hex.EncodeToString(sum[:16]))
}

var keptRoot = sync.OnceValue(func() string {
	user, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	root := filepath.Join(user, "unspool-programs")
	if os.MkdirAll(root, 0o700) != nil {
		return ""
	}
	forget(root)
	return root
})

// world describes what programs are made with: the compilers, the linkers, the C library, our sources.
var world = sync.OnceValue(func() string {
	h := sha256.New()
	for _, tool := range []string{"gcc", "g++", "clang", "clang++", "ld", "ld.gold", "ld.lld", "as", "musl-gcc", "rustc",
		"objcopy", "strip", "dwz", "dwp", "llvm-dwp", "go"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			continue
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return ""
		}
		describe(h, path)
	}
	for _, library := range []string{"/usr/lib/*/libc.so.6", "/usr/lib/*/libc.a", "/lib64/ld-linux*", "/usr/lib/gcc/*/*"} {
		found, _ := filepath.Glob(library)
		for _, path := range found {
			describe(h, path)
		}
	}
	err := fs.WalkDir(sources, "src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
})

// describe writes by what a file would be seen to be another one.
func describe(w io.Writer, path string) {
	if st, err := os.Stat(path); err == nil {
		fmt.Fprintln(w, path, st.Size(), st.ModTime().UnixNano())
	}
}

// forget removes what has not been used for long.
func forget(root string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keptFor {
			_ = os.RemoveAll(filepath.Join(root, e.Name()))
		}
	}
}
